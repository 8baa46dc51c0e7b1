"""The lock beside the file of kept runs: who makes, changes or replaces that file holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trnbench.store.faults import StoreFault
from trnbench.store.place import OWNER_ONLY

_LONGEST_S = 30.0
_POLL_S = 0.01
_HELD = (errno.EAGAIN, errno.EACCES)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file for the block; its folder is made where it is not there."""
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened = os.open(lock, flags, OWNER_ONLY)
    try:
        end = time.monotonic() + _LONGEST_S
        while not _taken(opened):
            if time.monotonic() > end:
                raise StoreFault(f"{lock} is held by another process; try again when it is done")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(opened)


def _taken(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    return True
