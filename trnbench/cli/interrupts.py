"""Long jobs: the first Ctrl-C stops one with what it has, the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from trnbench.cli.asking import AGAIN


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
    """Return how many processors this process may use; to answer among others, one."""
    if AGAIN.get() is not None:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
