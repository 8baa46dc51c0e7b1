"""A progress line on stderr for work that takes more than a second; gone when the work is done."""

from __future__ import annotations

import time

from trnbench.cli.diagnostics import say_in_place, watched

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
