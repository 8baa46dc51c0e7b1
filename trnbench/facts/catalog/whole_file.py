"""Atomic file writing, where a file appears whole or not at all, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from types import FrameType
from typing import Any, BinaryIO

from trnbench.errors import EnvironmentFault

BESIDE = ".trnbench-"
"""Prefix of unfinished files, which name their owner: `.trnbench-HOST-PID-RANDOM`."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def make_folder(path: Path) -> None:
    """Make a folder and its parents where missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot make the folder {path}: {error.strerror}") from error


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; a link's target is replaced."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or device: nothing there to keep
            return
        put_whole(path, lambda file: file.write(data))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise EnvironmentFault(f"cannot write {path}: {why}") from error


def put_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file, which replaces the target once it is on the disk.

    Links planted at the temporary name are not followed, and signals that would end the process
    wait until the temporary file is gone. Leftovers of killed processes are removed.
    """
    # A link of the user's stays a link: its target is replaced.
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(errno.ELOOP, "its links lead round in a circle; remove one")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    temporary = path.parent / f"{_ours()}{os.getpid()}-{os.urandom(8).hex()}"
    with signals_wait():
        _sweep(path.parent)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(temporary, flags, 0o600), "w+b") as file:
                write(file)
                file.flush()
                with suppress(OSError):  # of file systems without modes
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            # A rename within one folder is atomic; the fsync before makes sure that no empty file
            # wins.
            temporary.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def signals_wait() -> Iterator[None]:
    """Delay signals that would end the process until the block is left."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted
        return
    came: list[int] = []

    def noted(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before: dict[int, Any] = {}
    try:
        for number in _ENDING:
            handler = signal.getsignal(number)
            if handler not in (None, signal.SIG_IGN):
                before[number] = handler
                signal.signal(number, noted)
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for first in came[:1]:
            signal.raise_signal(first)


def _sync_folder(folder: Path) -> None:
    """Flush the folder's entry to the disk, where the file system can."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _sweep(folder: Path) -> None:
    """Remove unfinished files of dead processes of this machine."""
    with suppress(OSError):
        for path in folder.glob(f"{_ours()}*"):
            owner = path.name.removeprefix(_ours()).partition("-")[0]
            if owner.isdecimal() and _is_gone(int(owner)):
                path.unlink(missing_ok=True)


def _ours() -> str:
    return f"{BESIDE}{re.sub(r'[^A-Za-z0-9]', '_', os.uname().nodename)}-"


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


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
