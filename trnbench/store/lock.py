"""Lock beside the file of kept runs: shared while the file is open, exclusive to replace it.

SQLite knows the files beside a database by name: if a database is renamed while it is open, later
writes are lost.
"""

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
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HELD = (errno.EAGAIN, errno.EACCES)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a file for the block; a missing folder is made."""
    opened = _lock_file(path)
    try:
        _wait(opened, fcntl.LOCK_EX, path)
        yield
    finally:
        os.close(opened)


def shared(path: Path, *, to_write: bool) -> int | None:
    """Descriptor of a shared lock; None where a reader cannot have one."""
    try:
        opened = _lock_file(path) if to_write else os.open(_beside(path), os.O_RDONLY | _SAFELY)
    except OSError:
        if to_write:
            raise
        return None
    try:
        _wait(opened, fcntl.LOCK_SH, path)
    except BaseException as error:
        os.close(opened)
        if isinstance(error, OSError) and not to_write:
            return None
        raise
    return opened


def _lock_file(path: Path) -> int:
    # A file beside the database, as the database itself is renamed while others hold its lock.
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(_beside(path), os.O_RDWR | os.O_CREAT | _SAFELY, OWNER_ONLY)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _wait(opened: int, kind: int, path: Path) -> None:
    # Polled, not waited for in the kernel: a blocking flock would know no end.
    end = time.monotonic() + _LONGEST_S
    while not _taken(opened, kind):
        if time.monotonic() > end:
            raise StoreFault(f"{path} is in use by another process; try again when that is done")
        time.sleep(_POLL_S)


def _taken(opened: int, kind: int) -> bool:
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    return True
