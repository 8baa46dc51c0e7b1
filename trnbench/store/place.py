"""The file of kept runs: its path, owner, file system and lock, and its faults.

SQLite knows the files beside a database by name: if a database is renamed while it is open, later
writes are lost. So a lock beside the file is shared while it is open, exclusive to replace it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trnbench.errors import EnvironmentFault

RECOVERS = "`trnbench runs recover` brings what can be read into a sound file"
CHECKS = "`trnbench runs check` reads every run and names the damaged ones"
FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""Errors that SQLite raises; the second where it quotes damage that is not text."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PAGE_NOT_READ = re.compile(r"failed to get page|error code[= ]*(\d+)")


class StoreFault(EnvironmentFault):
    """The file of kept runs cannot be read or written here."""


class Damaged(StoreFault):
    """The file of kept runs, or a run in it, differs from what was written."""


def primary(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def fault_of(path: Path, error: sqlite3.Error | UnicodeDecodeError | OSError) -> StoreFault:
    """Fault for an error of SQLite or of the system; a failed read is not damage."""
    if isinstance(error, OSError):
        return StoreFault(f"{path}: {error.strerror or error}")
    if isinstance(error, UnicodeDecodeError):
        return Damaged(f"{path} is damaged: it has no text where one belongs", hint=RECOVERS)
    kind = primary(error)
    if kind in _DAMAGED or (kind == sqlite3.SQLITE_ERROR and str(error).startswith("no such")):
        return Damaged(f"{path} is damaged: {error}", hint=RECOVERS)
    if kind == sqlite3.SQLITE_IOERR:
        return StoreFault(f"{path} cannot be read or written now: {error}")
    return StoreFault(f"{path}: {error}")


def fault_found(path: Path, problems: Sequence[str]) -> StoreFault | None:
    """Fault for the findings of SQLite's check of a whole file; None where there are none."""
    if list(problems) == ["ok"]:
        return None
    for text in problems:
        failed = _PAGE_NOT_READ.search(text)
        # The check reports a page that could not be read as if its content were wrong.
        if failed and (failed[1] is None or int(failed[1]) & 0xFF not in _DAMAGED):
            return StoreFault(f"{path} cannot be read now: {_line(text)}")
    return Damaged(f"{path} is damaged: {_line(problems[0])}", hint=RECOVERS)


def _line(text: str) -> str:
    return " ".join(text.split())


FILE_VARIABLE = "TRNBENCH_RUNS"
"""Environment variable with the path of the file; the null device keeps nothing."""
KEEP_VARIABLE = "TRNBENCH_KEEP"
REMEDY = f"{FILE_VARIABLE} names the file in which trnbench keeps runs"
OWNER_ONLY = 0o600
MOUNTS = Path("/proc/self/mountinfo")
_SHARED = frozenset(
    (
        *("nfs", "nfs4", "lustre", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "gpfs", "beegfs"),
        *("fuseblk", "gfs2", "ocfs2", "orangefs", "panfs", "wekafs", "vboxsf", "virtiofs"),
    )
)
"""File systems that hosts may share, or that map no memory between processes."""
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


def store_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Path of the file of kept runs."""
    named = environment.get(FILE_VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_data_path

    return user_data_path("trnbench") / "runs" / "runs.db"


def keeps(environment: Mapping[str, str] = os.environ) -> bool:
    if environment.get(KEEP_VARIABLE, "1").strip().lower() in ("0", "false", "no", "off"):
        return False
    return not is_null(Path(environment.get(FILE_VARIABLE) or "runs.db"))


def is_null(path: Path) -> bool:
    """True for the null device, the path for keeping nothing."""
    if str(path) == os.devnull:
        return True
    with suppress(OSError):
        status, null = path.lstat(), os.stat(os.devnull)
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == null.st_rdev
    return False


def own_file(path: Path) -> bool:
    """True where the user's own file is there; anything else at the path is refused."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreFault(f"{path}: {error.strerror}", hint=REMEDY) from None
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            to = " (name what it leads to)" if stat.S_ISLNK(status.st_mode) else ""
            raise StoreFault(f"{path} is {name}, not a file of kept runs{to}", hint=REMEDY)
    if status.st_uid != os.geteuid():
        raise StoreFault(f"{path} belongs to another user (number {status.st_uid})", hint=REMEDY)
    return True


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at a path; None where there is no file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def make_private(path: Path) -> None:
    """Remove other users' access to a file of the user's; links are not followed."""
    if stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0:
        return
    # Changed through a descriptor, so that the checked file is the changed one.
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            with suppress(OSError):  # of file systems without modes
                os.fchmod(opened, OWNER_ONLY)
    finally:
        os.close(opened)


def make_file(path: Path) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, OWNER_ONLY))


def shared_file_system(path: Path) -> str | None:
    """Kind of file system of a path, if hosts may share it; None for a local one."""
    try:
        device = path.parent.stat().st_dev
        mounts = MOUNTS.read_text(errors="replace")
    except OSError:
        return None  # no Linux: nothing says what is shared
    # The list of mounts is read by device number: paths in it may be hidden by later mounts.
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        if mount.split()[2:3] == [number]:
            kind = rest.split()[0] if rest.split() else ""
            return kind if kind in _SHARED or kind.startswith("fuse") else None
    return None


def journal_mode(path: Path) -> str:
    return "WAL" if shared_file_system(path) is None else "DELETE"


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


def shared(path: Path) -> int | None:
    """Descriptor of a shared lock; None where a reader cannot have one."""
    try:
        opened = os.open(_beside(path), os.O_RDONLY | _SAFELY)
    except OSError:
        return None
    try:
        _wait(opened, fcntl.LOCK_SH, path)
    except BaseException as error:
        os.close(opened)
        if isinstance(error, OSError):
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
