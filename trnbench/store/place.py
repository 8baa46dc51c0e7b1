"""Place of the file of kept runs: its path, its owner, and how to write on its file system."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trnbench.store.faults import StoreFault

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
        found, null = path.lstat(), os.stat(os.devnull)
        return stat.S_ISCHR(found.st_mode) and found.st_rdev == null.st_rdev
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
