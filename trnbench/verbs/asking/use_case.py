"""Callbacks of a front to a use case: for progress, and for the wish to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from trnbench.facts.records import Record

Progress: TypeAlias = Callable[[int, int, str], None]
"""Hears how many steps are done, of how many, and what comes next."""
Cancel: TypeAlias = Callable[[], bool]
"""Says whether a job is to stop with what it has."""


def quiet(done: int, total: int, what: str) -> None:
    """Hear of progress, and say nothing."""


def never() -> bool:
    return False


class Watch(Record):
    """Callbacks of the asker: progress as (done, all, of what), and whether to stop.

    `workers`: how many processes may search side by side. They are forked: more than one is only
    for a process that has no threads of its own.
    """

    progress: Progress = quiet
    cancel: Cancel = never
    workers: int = 1
