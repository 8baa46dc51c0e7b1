"""Data files behind an answer, kept by content: a repeated file takes no space.

A snapshot is named by the contents of all winning files of a catalogue. Two runs with one snapshot
rest on the same chips, prices, calibrations and workloads, on any machine.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from pathlib import Path

from trnbench.facts.catalog.search import SECTIONS, Catalog, Entry, Folder
from trnbench.facts.records import Record
from trnbench.store.content import WrongContent, digest, inflated, squeezed
from trnbench.store.place import CHECKS, Damaged

KEPT = "kept"
"""Origin of a data file that comes from a snapshot."""
_SHORT = 16
_PLACES = {section: place for place, section in enumerate(SECTIONS)}


class KeptFile(Record, kw_only=False):
    """A data file of a snapshot."""

    section: str
    name: str
    sha256: str


def put_blob(connection: sqlite3.Connection, data: bytes) -> str:
    """Keep a content once; the result is its name."""
    name = digest(data)
    stored = connection.execute("SELECT 1 FROM blob WHERE sha256 = ?", (name,)).fetchone()
    if stored is None:
        connection.execute(
            "INSERT INTO blob (sha256, content, bytes) VALUES (?, ?, ?)", (name, *squeezed(data))
        )
    return name


def blob(connection: sqlite3.Connection, name: str) -> bytes | None:
    """A kept content, or None; a content that does not fit its name is refused."""
    row = connection.execute("SELECT content, bytes FROM blob WHERE sha256 = ?", (name,)).fetchone()
    if row is None:
        return None
    data = inflated(*row)
    if digest(data) != name:
        raise WrongContent("it is not what its digest says")
    return data


def sound_blob(connection: sqlite3.Connection, name: str) -> bool:
    """True where a content is kept and fits its name."""
    try:
        return blob(connection, name) is not None
    except WrongContent:
        return False


def take(connection: sqlite3.Connection, catalog: Catalog) -> str:
    """Keep the winning data files of a catalogue; the result is the name of the snapshot."""
    entries = [entry for section in SECTIONS for entry in catalog.entries(section)]
    # Unchanged times and sizes of all files mean a known snapshot: no file is read.
    # The join makes sure that the files of the snapshot are still there.
    stamp = _stamp(entries)
    row = connection.execute(
        "SELECT snapshot FROM snapshot_seen JOIN snapshot_file USING (snapshot) WHERE stamp = ?",
        (stamp,),
    ).fetchone()
    if row is not None:
        return str(row[0])
    files = [
        KeptFile(e.section, e.name, put_blob(connection, e.path.read_bytes())) for e in entries
    ]
    name = snapshot_name(files)
    connection.executemany(
        "INSERT OR IGNORE INTO snapshot_file VALUES (?, ?, ?, ?)",
        [(name, file.section, file.name, file.sha256) for file in files],
    )
    connection.execute("INSERT OR REPLACE INTO snapshot_seen VALUES (?, ?)", (stamp, name))
    return name


def snapshot_name(files: Sequence[KeptFile]) -> str:
    # In a fixed order, so that equal files have the same name however they were listed.
    ordered = sorted(files, key=lambda file: (_PLACES.get(file.section, len(_PLACES)), file.name))
    text = "\n".join(f"{file.section}/{file.name} {file.sha256}" for file in ordered)
    return digest(text.encode())[:_SHORT]


def files_of(connection: sqlite3.Connection, snapshot: str) -> tuple[KeptFile, ...]:
    """Data files of a snapshot, by section and name; empty where they are not kept."""
    stored = connection.execute(
        "SELECT section, name, sha256 FROM snapshot_file WHERE snapshot = ? ORDER BY 1, 2",
        (snapshot,),
    )
    files = tuple(starmap(KeptFile, stored))
    if files and snapshot_name(files) != snapshot:
        raise Damaged(f"the list of data files {snapshot} is damaged", hint=CHECKS)
    return files


def mixed(
    first: tuple[KeptFile, ...], second: tuple[KeptFile, ...], taken: Callable[[str], bool]
) -> tuple[KeptFile, ...]:
    """Files of the first snapshot, except the sections `taken` from the second."""
    return (
        *(file for file in first if not taken(file.section)),
        *(file for file in second if taken(file.section)),
    )


def restore(
    connection: sqlite3.Connection, files: tuple[KeptFile, ...], folder: Path
) -> Catalog | None:
    """Catalogue of data files written into a folder; None if a file is lost."""
    for file in files:
        try:
            content = blob(connection, file.sha256)
        except WrongContent as error:
            raise Damaged(
                f"the kept data file {file.section}/{file.name} is damaged: {error}", hint=CHECKS
            ) from None
        # A file of runs may come from elsewhere: names in it must not lead out of the folder.
        if content is None or file.section not in SECTIONS or Path(file.name).name != file.name:
            return None
        place = folder / file.section
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{file.name}.toml").write_bytes(content)
    return Catalog((Folder(folder, KEPT),))


def changed(
    first: tuple[KeptFile, ...], second: tuple[KeptFile, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Section -> names of the files that differ between two snapshots."""
    names: dict[str, set[str]] = {}
    for file in {*first} ^ {*second}:
        names.setdefault(file.section, set()).add(file.name)
    return {section: tuple(sorted(names[section])) for section in SECTIONS if section in names}


def _stamp(entries: list[Entry]) -> str:
    checksum = hashlib.sha256()
    for entry in entries:
        stat = entry.path.stat()
        checksum.update(
            f"{entry.section}\0{entry.path}\0{stat.st_mtime_ns}\0{stat.st_size}\0{stat.st_ino}\n".encode()
        )
    return checksum.hexdigest()
