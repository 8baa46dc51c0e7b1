"""Long jobs: a line on stderr says how far one is, and Ctrl-C stops it with what it has.

A second Ctrl-C ends the process. The line is there after a second, and gone when the work is done.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from trnbench.cli.asking import AGAIN
from trnbench.cli.diagnostics import say_in_place, watched
from trnbench.verbs.asking.use_case import Watch

if TYPE_CHECKING:
    from trnbench.cli.output import Output


class Interrupts:
    """Counts Ctrl-C while a job runs; `asked` is handed to the job as its `cancel`.

    SIGTERM, as a machine that is taken back sends it, counts too.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """Tell whether the user wants the job to stop."""
        return self._asked

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True


def processors() -> int:
    """Return the number of processors this process may use; to answer among others, one."""
    if AGAIN.get() is not None:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


DELAY_S = 1.0
INTERVAL_S = 0.1


class ProgressLine:
    """Shows how far a job is: only on a terminal, not under CI, not when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._on = not quiet and watched()
        self._shown = False
        self._next = time.monotonic() + DELAY_S

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show that `done` of `total` are done and `what` comes next."""
        if self._on and time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL_S
            self._shown = True
            say_in_place(f"{done}/{total}  {what}")

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            say_in_place("")


@contextmanager
def watching(out: Output) -> Iterator[Watch]:
    """Yield what a long job tells of its progress, and what stops it."""
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        yield Watch(progress=progress, cancel=interrupts.asked, workers=processors())
