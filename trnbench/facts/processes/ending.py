"""Requests to end the process: each is heard, wherever in the program it comes.

An exception that a signal raises is lost where Python ignores exceptions - in a callback of a weak
reference, in `__del__` - and leaves half a module behind in an import. There it is raised again a
moment later, until it comes where it counts.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

ENDED_BY = 128
"""Exit codes above it say by which signal the process was asked to end."""
AGAIN_S = 0.002
"""So much later a request that came where it would be lost is looked at again."""
_REQUESTS = (signal.SIGTERM, signal.SIGHUP)
_IMPORTS = "<frozen importlib._bootstrap>"


class Requests:
    """While it is entered, SIGTERM, and SIGHUP where nobody ignores it, raise SystemExit."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._waiting: int | None = None
        self._said = sys.unraisablehook

    def __enter__(self) -> Requests:
        for number in _REQUESTS:
            if signal.getsignal(number) == signal.SIG_DFL:
                self._before[number] = signal.signal(number, self._came)
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._again)
        self._said, sys.unraisablehook = sys.unraisablehook, self._ignored
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.unraisablehook = self._said
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self._waiting is None and _in_import(frame):
            self._wait(number)
            return
        # A second request does not wait: an import may never end.
        self._waiting = None
        raise SystemExit(ENDED_BY + number)

    def _again(self, alarm: int, frame: FrameType | None) -> None:
        number = self._waiting
        if number is None:
            return
        if _in_import(frame):
            self._wait(number)
            return
        self._waiting = None
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(ENDED_BY + number)

    def _ignored(self, lost: sys.UnraisableHookArgs) -> None:
        """Have a request to end that Python has ignored come again; tell of all else."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            self._wait(signal.SIGINT)
            return
        code = lost.exc_value.code if isinstance(lost.exc_value, SystemExit) else None
        if isinstance(code, int) and code - ENDED_BY in _REQUESTS:
            self._wait(code - ENDED_BY)
            return
        self._said(lost)

    def _wait(self, number: int) -> None:
        self._waiting = number
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False
