"""A lock next to files that several processes read, change and write."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG

from trnbench.errors import EnvironmentFault


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this name inside the block; wait for the current holder.

    The empty lock file stays: removing it would let two processes in, each with a file of its own.
    The lock ends with its process, even a killed one.
    """
    # Neither follow a planted link, nor block on a planted pipe.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    try:
        if not S_ISREG(os.fstat(handle).st_mode):
            raise _unusable(path, "it is not a regular file")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise _unusable(path, error.strerror or str(error)) from error
        yield
    finally:
        os.close(handle)


def _unusable(path: Path, why: str | None) -> EnvironmentFault:
    return EnvironmentFault(
        f"cannot lock {path}: {why}", hint="move it away, or look at its folder"
    )
