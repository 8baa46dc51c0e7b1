"""The choice between engines, as commands offer it."""

from __future__ import annotations

from enum import StrEnum


class EngineChoice(StrEnum):
    """Which engine answers."""

    ANALYTIC = "analytic"
    EMULATE = "emulate"
    BOTH = "both"

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines this stands for."""
        return ("analytic", "emulate") if self is EngineChoice.BOTH else (self.value,)


class ComparedEngine(StrEnum):
    """Which engine's answers stand beside measurements."""

    ANALYTIC = "analytic"
    EMULATE = "emulate"


class TrainEngine(StrEnum):
    """Which engine answers about a training step; `functional` trains with real numbers."""

    ANALYTIC = "analytic"
    EMULATE = "emulate"
    BOTH = "both"
    FUNCTIONAL = "functional"

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines this stands for."""
        return (self.value,) if self is TrainEngine.FUNCTIONAL else EngineChoice(self.value).engines
