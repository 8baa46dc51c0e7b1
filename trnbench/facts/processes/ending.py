"""Requests to end the process (SIGTERM, SIGHUP, Ctrl-C), heard wherever they arrive.

Python loses an exception raised by a signal inside a weak reference's callback or `__del__`, and
inside an import the exception leaves half a module behind. There the request is repeated a moment
later, until the exception arrives where it counts.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

ENDED_BY = 128
"""Exit codes above this number name the signal that ended the process."""
AGAIN_S = 0.002
"""Delay before a request that would have been lost is tried again."""
_REQUESTS = (signal.SIGTERM, signal.SIGHUP)
_IMPORTS = "<frozen importlib._bootstrap>"


class Requests:
    """Context in which SIGTERM, and SIGHUP unless ignored, raise SystemExit."""

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
        # The frames show an import under way; losses in callbacks show only afterwards, by the hook
        # for unraisable exceptions.
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
        """Repeat a request that Python has ignored; report all other lost exceptions."""
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
