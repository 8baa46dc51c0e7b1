"""Cache of derived results as JSON in the user's cache folder, one file each.

A file's name is the hash of all inputs. Files are replaced whole, so readers see the old or the new
one; the first line is the hash of the rest, and a file that fails the check counts as absent. The
cache is disposable: a lost file costs only the time to recompute. Results that depend on code have
its digest among their inputs (`modules_digest`).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from stat import S_ISREG, S_IWGRP, S_IWOTH

from trnbench.facts.records import DecodeError, read_json

FILES_KEPT = 512
"""Number of files of each kind before a sweep; the latest half stays."""
MAX_BYTES = 16 << 20
_HEAD_BYTES = 65
_LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags that open even a pipe without blocking, to look at the file's type."""


def digest_of(content: str) -> str:
    """Name of the results that depend on a text."""
    return hashlib.sha256(content.encode()).hexdigest()


def kept(kind: str, digest: str) -> object:
    """Cached content under a name; None if absent or damaged."""
    try:
        with os.fdopen(os.open(_path(kind, digest), _LOOK), "rb") as file:
            # Check the opened file, not its name: the name may be replaced in between.
            if not _is_ours(os.fstat(file.fileno())):
                return None
            head, _, body = file.read().partition(b"\n")
        if head.decode("ascii", "replace") != hashlib.sha256(body).hexdigest():
            return None
        content: object = _read(body)
    except (OSError, ValueError, RecursionError):
        return None
    return content


def _read(body: bytes) -> object:
    try:
        return read_json(body)  # four times as fast as `json`, to the same bits
    except DecodeError:
        return json.loads(body)  # an infinity, which is no JSON, or damage


def _is_ours(status: os.stat_result) -> bool:
    # A cached answer is trusted, and its hash proves integrity, not authorship.
    mine = status.st_uid in (os.geteuid(), 0) and not status.st_mode & (S_IWGRP | S_IWOTH)
    return S_ISREG(status.st_mode) and mine and status.st_size <= MAX_BYTES + _HEAD_BYTES


def keep(kind: str, digest: str, content: object) -> None:
    """Cache JSON content under a name; silently skipped where the disk refuses."""
    body = json.dumps(content, separators=(",", ":")).encode()
    path = Path(_path(kind, digest))
    if len(body) > MAX_BYTES:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # No fsync: a file cut by a power failure fails its check and counts as absent.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        _sweep(path.parent)
    except OSError:
        return


def _sweep(folder: Path) -> None:
    """Remove all but the latest files, and leftovers of killed writers."""
    if len(os.listdir(folder)) <= FILES_KEPT:
        return
    age: Callable[[Path], float] = lambda path: path.stat().st_mtime  # noqa: E731
    for pattern in ("*.json", ".*.part"):
        for path in sorted(folder.glob(pattern), key=age, reverse=True)[FILES_KEPT // 2 :]:
            path.unlink(missing_ok=True)


def _path(kind: str, digest: str) -> str:
    return f"{_folder(os.environ.get('XDG_CACHE_HOME'))}/{kind}/{digest}.json"


@cache
def _folder(moved_to: str | None) -> str:
    from platformdirs import user_cache_dir

    return user_cache_dir("trnbench")


_KIND = "code"


def modules_digest(package: Path, folders: Sequence[str] = ("",)) -> str:
    """Digest of all modules in folders of a package, recomputed only after a change."""
    files = sorted(file for folder in folders for file in _modules(os.path.join(package, folder)))
    # Reading the sources takes longer than the attributes of their files: a write changes those.
    stamp = digest_of(repr((str(package), files)))
    earlier = kept(_KIND, stamp)
    if isinstance(earlier, str):
        return earlier
    digest = hashlib.sha256()
    for path, *_ in files:
        content = Path(path).read_bytes()
        # The length keeps content of one file from passing as the name of the next.
        digest.update(f"{os.path.relpath(path, package)} {len(content)}\n".encode() + content)
    keep(_KIND, stamp, digest.hexdigest())
    return digest.hexdigest()


def _modules(folder: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the modules of a folder, with the file attributes that change on a write."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                stat = entry.stat()
                yield entry.path, stat.st_mtime_ns, stat.st_size, stat.st_ino
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _modules(entry.path)
