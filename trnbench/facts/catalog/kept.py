"""What was worked out before, as JSON in the user's cache folder, one file for each thing.

A file is named after everything that it follows from. It is replaced whole, so that whoever reads
it meanwhile has the old or the new one; it begins with the hash of the rest, and one that does not
agree counts as absent. Nothing is lost with a file but the time to work it out anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from stat import S_ISREG, S_IWGRP, S_IWOTH

FILES_KEPT = 512
"""Of each kind, the latest."""
MAX_BYTES = 16 << 20
_HEAD_BYTES = 65
_LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Opens a pipe without waiting for its other end, so that it can be looked at."""


def digest_of(content: str) -> str:
    """Return the name for what follows from a text."""
    return hashlib.sha256(content.encode()).hexdigest()


def kept(kind: str, digest: str) -> object:
    """Return what is kept under a name; None if nothing is, or the file is damaged."""
    try:
        with os.fdopen(os.open(_path(kind, digest), _LOOK), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            head, _, body = file.read().partition(b"\n")
        if head.decode("ascii", "replace") != hashlib.sha256(body).hexdigest():
            return None
        found: object = json.loads(body)
    except (OSError, ValueError, RecursionError):
        return None
    return found


def _is_ours(found: os.stat_result) -> bool:
    """Return whether nobody else can have written a file, which is no pipe and not too large.

    What is kept changes answers, and its digest says that it is whole, not whose it is.
    """
    mine = found.st_uid in (os.geteuid(), 0) and not found.st_mode & (S_IWGRP | S_IWOTH)
    return S_ISREG(found.st_mode) and mine and found.st_size <= MAX_BYTES + _HEAD_BYTES


def keep(kind: str, digest: str, content: object) -> None:
    """Keep what JSON can hold under a name; where that cannot be done nothing is lost."""
    body = json.dumps(content, separators=(",", ":")).encode()
    path = Path(_path(kind, digest))
    if len(body) > MAX_BYTES:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
    """Remove all but the latest files, and what a writer that was killed left of them."""
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
