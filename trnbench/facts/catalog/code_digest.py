"""Version of the code, as a digest of its modules that does not depend on their folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trnbench.facts.catalog.kept import digest_of, keep, kept

_KIND = "code"


def modules_digest(package: Path, folders: Sequence[str] = ("",)) -> str:
    """Digest of all modules in folders of a package, recomputed only after a change."""
    files = sorted(one for folder in folders for one in _modules(os.path.join(package, folder)))
    stamp = digest_of(repr((str(package), files)))
    known = kept(_KIND, stamp)
    if isinstance(known, str):
        return known
    told = hashlib.sha256()
    for path, *_ in files:
        content = Path(path).read_bytes()
        told.update(f"{os.path.relpath(path, package)} {len(content)}\n".encode() + content)
    keep(_KIND, stamp, told.hexdigest())
    return told.hexdigest()


def _modules(folder: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the modules of a folder, with the file attributes that change on a write."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                stat = entry.stat()
                yield entry.path, stat.st_mtime_ns, stat.st_size, stat.st_ino
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _modules(entry.path)
