"""The choice between the two engines, as commands offer it."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """Which engine answers."""

    ANALYTIC = "analytic"
    EMULATE = "emulate"
    BOTH = "both"

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines this stands for."""
        return ("analytic", "emulate") if self is Engine.BOTH else (self.value,)
