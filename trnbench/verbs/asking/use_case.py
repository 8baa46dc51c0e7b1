"""What a front gives to a use case besides its question: who hears of progress, who may stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Hears how many steps are done, of how many, and what comes next."""
Cancel: TypeAlias = Callable[[], bool]
"""Says whether a job is to stop with what it has."""


def quiet(done: int, total: int, what: str) -> None:
    """Hear of progress, and say nothing."""


def never() -> bool:
    """Let a job run to its end."""
    return False
