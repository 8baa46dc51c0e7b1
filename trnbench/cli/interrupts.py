"""Long jobs: the first Ctrl-C stops one with what it has, the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType


class Interrupts:
    """Counts Ctrl-C while a job runs; `asked` is handed to the job as its `cancel`."""

    def __init__(self) -> None:
        self._asked = False
        self._before: signal.Handlers | int | object = None

    def asked(self) -> bool:
        """Tell whether the user wants the job to stop."""
        return self._asked

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True


def processors() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
