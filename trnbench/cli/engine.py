"""The choice between engines, as commands offer it."""

from __future__ import annotations

from enum import StrEnum


class ComparedEngine(StrEnum):
    """Which engine's answers stand beside measurements."""

    ANALYTIC = "analytic"
    EMULATE = "emulate"
