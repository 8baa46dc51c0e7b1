"""The data files that an answer rests on, kept by content: the same again costs nothing.

A snapshot is named by what all winning files of a catalogue say, so two runs with one name rest on
the same chips, prices, calibrations and workloads, on whatever machine they were asked.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trnbench.catalog.search import SECTIONS, Catalog, Entry, Folder
from trnbench.records import Record

KEPT = "kept"
"""The origin of a data file that comes from a snapshot."""
FAST = 1
"""How hard to compress: what is kept is small, and the user waits."""
_SHORT = 16


class KeptFile(Record):
    """A data file of a snapshot."""

    section: str
    name: str
    sha256: str


def packed(value: object) -> bytes:
    """Return what JSON can hold, compressed."""
    return zlib.compress(json.dumps(value, ensure_ascii=False).encode(), FAST)


def unpacked(content: bytes) -> Any:  # noqa: ANN401 - plain data of any shape
    """Return what was packed."""
    return json.loads(zlib.decompress(content))


def digest(data: bytes) -> str:
    """Return the name of a content."""
    return hashlib.sha256(data).hexdigest()


def put_blob(connection: sqlite3.Connection, data: bytes) -> str:
    """Keep a content, once, and return its name."""
    name = digest(data)
    known = connection.execute("SELECT 1 FROM blob WHERE sha256 = ?", (name,)).fetchone()
    if known is None:
        connection.execute("INSERT INTO blob VALUES (?, ?)", (name, zlib.compress(data, FAST)))
    return name


def blob(connection: sqlite3.Connection, name: str) -> bytes | None:
    """Return a content that was kept, or None."""
    row = connection.execute("SELECT content FROM blob WHERE sha256 = ?", (name,)).fetchone()
    return None if row is None else zlib.decompress(row[0])


def take(connection: sqlite3.Connection, catalog: Catalog) -> str:
    """Keep the winning data files of a catalogue, and return the name of the snapshot."""
    entries = [entry for section in SECTIONS for entry in catalog.entries(section)]
    stamp = _stamp(entries)
    row = connection.execute(
        "SELECT snapshot FROM snapshot_seen WHERE stamp = ?", (stamp,)
    ).fetchone()
    if row is not None:
        return str(row[0])
    files = [
        KeptFile(section=e.section, name=e.name, sha256=put_blob(connection, e.path.read_bytes()))
        for e in entries
    ]
    text = "\n".join(f"{file.section}/{file.name} {file.sha256}" for file in files)
    name = digest(text.encode())[:_SHORT]
    connection.executemany(
        "INSERT OR IGNORE INTO snapshot_file VALUES (?, ?, ?, ?)",
        [(name, file.section, file.name, file.sha256) for file in files],
    )
    connection.execute("INSERT OR IGNORE INTO snapshot_seen VALUES (?, ?)", (stamp, name))
    return name


def files_of(connection: sqlite3.Connection, snapshot: str) -> tuple[KeptFile, ...]:
    """Return the data files of a snapshot, by section and name."""
    found = connection.execute(
        "SELECT section, name, sha256 FROM snapshot_file WHERE snapshot = ? ORDER BY 1, 2",
        (snapshot,),
    )
    return tuple(KeptFile(section=s, name=n, sha256=h) for s, n, h in found)


def mixed(
    first: tuple[KeptFile, ...], second: tuple[KeptFile, ...], taken: Callable[[str], bool]
) -> tuple[KeptFile, ...]:
    """Return the files of the first snapshot, and of the second those of the sections `taken`."""
    return (
        *(file for file in first if not taken(file.section)),
        *(file for file in second if taken(file.section)),
    )


def restore(
    connection: sqlite3.Connection, files: tuple[KeptFile, ...], folder: Path
) -> Catalog | None:
    """Write data files into a folder; return the catalogue of them alone, None if one is lost."""
    for file in files:
        content = blob(connection, file.sha256)
        # A file of runs may come from elsewhere: its names must stay names.
        if content is None or file.section not in SECTIONS or Path(file.name).name != file.name:
            return None
        place = folder / file.section
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{file.name}.toml").write_bytes(content)
    return Catalog((Folder(folder, KEPT),))


def changed(
    first: tuple[KeptFile, ...], second: tuple[KeptFile, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Return, by section, the names of the files that two snapshots do not have alike."""
    found: dict[str, set[str]] = {}
    for file in {*first} ^ {*second}:
        found.setdefault(file.section, set()).add(file.name)
    return {section: tuple(sorted(found[section])) for section in SECTIONS if section in found}


def _stamp(entries: list[Entry]) -> str:
    told = hashlib.sha256()
    for entry in entries:
        stat = entry.path.stat()
        told.update(
            f"{entry.section}\0{entry.path}\0{stat.st_mtime_ns}\0{stat.st_size}\0{stat.st_ino}\n".encode()
        )
    return told.hexdigest()
