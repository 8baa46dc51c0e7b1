"""Check of a file of kept runs, and recovery: readable rows brought into a sound file.

First every row that SQLite can still read goes into a new file with sound indexes and schema. Then
its sound runs and cells go into the file of kept runs.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from trnbench.facts.records import Record
from trnbench.store.database import ASIDE, ENDINGS, connected, known_version
from trnbench.store.place import FAILURES, Damaged, StoreFault, fault_of, own_file
from trnbench.store.runs import KeptRun, answer_of, each_run, inputs_of
from trnbench.store.schema import CELL_SEAL, add_functions, migrate, transaction
from trnbench.store.snapshot import files_of, sound_blob
from trnbench.store.studies import cell_content

CELL_DAMAGE = "it is not what was kept"
_RUN_DAMAGE = "what is known of it was changed"


class RunFault(Record, kw_only=False):
    """A damaged run, cell of a study, or whole `file`, with the evidence."""

    kind: str
    name: str
    reason: str


def findings(connection: sqlite3.Connection) -> Iterator[RunFault]:
    """Yield all damage; every row is compared with its digest, size and shape."""
    snapshots: dict[str, str] = {}
    for name, run in each_run(connection):
        if run is None:
            yield RunFault("run", name, _RUN_DAMAGE)
            continue
        try:
            answer_of(connection, run)
            inputs_of(connection, run)
        except Damaged as damage:
            yield RunFault("run", name, damage.message)
            continue
        # Many runs share a snapshot: its files are hashed once, not once for each run.
        if run.snapshot not in snapshots:
            snapshots[run.snapshot] = snapshot_damage(connection, run.snapshot)
        if snapshots[run.snapshot]:
            yield RunFault("run", name, snapshots[run.snapshot])
    for study, key, sound in _cells(connection):
        if not sound:
            yield RunFault("cell", f"{study}/{key}", CELL_DAMAGE)


def _cells(connection: sqlite3.Connection) -> Iterator[tuple[str, str, bool]]:
    """Yield the study and key of every cell, and whether it is what was kept."""
    asked = f"SELECT seal = {CELL_SEAL}, study, key, content, bytes FROM cell"
    for sealed, study, key, *content in connection.execute(asked).fetchall():
        yield study, key, bool(sealed) and cell_content(*content) is not None


def snapshot_damage(connection: sqlite3.Connection, snapshot: str) -> str:
    """Damage to the data files of a snapshot; empty where all are sound."""
    try:
        files = files_of(connection, snapshot)
    except Damaged as damage:
        return damage.message
    bad = [file for file in files if not sound_blob(connection, file.sha256)]
    return f"its data file {bad[0].section}/{bad[0].name} is damaged or lost" if bad else ""


_TABLES = {
    **dict.fromkeys(("run", "answer", "blob", "cell"), "rowid"),
    "snapshot_file": "snapshot, section, name",
    "input_file": "run, path",
}
"""Tables brought over, each with the key by which its rows are stored."""
_MOST_GAP = 50_000
"""Most row numbers between two readable rows that are tried one by one."""


class Recovered(Record):
    """Counts of a recovery, and the losses."""

    runs: int
    cells: int
    known: int
    """Runs that were in the target already."""
    lost: tuple[RunFault, ...]


def put_aside(path: Path) -> list[Path]:
    """Damaged files that were put aside from a path, newest last."""
    return sorted(path.parent.glob(f"{path.name}{ASIDE}*[0-9]"))


@contextmanager
def salvaged(path: Path) -> Iterator[tuple[sqlite3.Connection, list[str]]]:
    """Give the readable rows of a file as a sound copy, and the ids of all its runs."""
    if not own_file(path):
        raise StoreFault(f"{path} is not there")
    with tempfile.TemporaryDirectory(prefix="trnbench-") as folder:
        copy = Path(folder) / "copy"
        for ending in ENDINGS:
            if (companion := path.with_name(path.name + ending)).is_file() and ending != "-shm":
                # SQLite rebuilds the shared-memory index from the log.
                shutil.copyfile(companion, copy.with_name(copy.name + ending))
        clean = sqlite3.connect(Path(folder) / "clean", isolation_level=None)
        try:
            with closing(clean), closing(connected(copy)) as raw:
                # The clean file is temporary: a power failure may lose it, so no write waits.
                clean.execute("PRAGMA synchronous = OFF")
                add_functions(clean)
                # Rows are brought over in their own version of the schema, then migrated as one.
                migrate(clean, known_version(raw, copy, path))
                with transaction(clean):
                    for table, key in _TABLES.items():
                        _insert(clean, table, _rows(raw, table, key))
                names = [str(row[0]) for row in _readable(raw, "SELECT id FROM run ORDER BY id")]
                raw.close()
                migrate(clean)
                yield clean, names
        except FAILURES as error:
            raise fault_of(path, error) from error


def recover(
    source: sqlite3.Connection, names: Sequence[str], target: sqlite3.Connection
) -> Recovered:
    """Bring the sound runs and cells of a file into another, in one transaction."""
    # Every run is lost until its row is seen: a row whose page is gone appears in no query.
    lost: dict[str, str] = dict.fromkeys(names, "its row cannot be read")
    runs = known = cells = 0
    cells_lost = []
    with transaction(target):
        for name, run in each_run(source):
            lost.pop(name, None)
            if target.execute("SELECT 1 FROM run WHERE id = ?", (name,)).fetchone():
                known += 1
            elif run is None:
                lost[name] = _RUN_DAMAGE
            else:
                try:
                    answer_of(source, run)
                except Damaged as damage:
                    lost[name] = damage.message
                else:
                    _bring(source, target, run)
                    runs += 1
        for study, key, sound in _cells(source):
            if sound:
                asked = "SELECT * FROM cell WHERE (study, key) = (?, ?)"
                cells += _insert(target, "cell", source.execute(asked, (study, key)))
            else:
                cells_lost.append(RunFault("cell", f"{study}/{key}", CELL_DAMAGE))
    runs_lost = (RunFault("run", name, why) for name, why in lost.items())
    return Recovered(runs=runs, cells=cells, known=known, lost=(*runs_lost, *cells_lost))


def _bring(source: sqlite3.Connection, target: sqlite3.Connection, run: KeptRun) -> None:
    """Copy the rows of a sound run; its data files only where all of them are sound."""

    def copy(table: str, column: str, value: str) -> None:
        rows = source.execute(f"SELECT * FROM {table} WHERE {column} = ?", (value,))
        _insert(target, table, rows)

    for table, column in (("run", "id"), ("answer", "run"), ("input_file", "run")):
        copy(table, column, run.id)
    blobs = source.execute("SELECT kept FROM input_file WHERE run = ?", (run.id,)).fetchall()
    if not snapshot_damage(source, run.snapshot):
        blobs += [(file.sha256,) for file in files_of(source, run.snapshot)]
        # Rows of a snapshot refer to their contents, which have to be there first.
        for (name,) in blobs:
            copy("blob", "sha256", name)
        copy("snapshot_file", "snapshot", run.snapshot)
        return
    for (name,) in blobs:
        if name and sound_blob(source, name):
            copy("blob", "sha256", name)


def _insert(target: sqlite3.Connection, table: str, rows: Iterable[Sequence[object]]) -> int:
    """Insert new rows that the table accepts; the result is their number."""
    # A damaged row may break a constraint: such a row is left out, and the others still come over.
    count = 0
    for row in rows:
        marks = ", ".join("?" * len(row))
        with suppress(sqlite3.IntegrityError, sqlite3.InterfaceError):
            asked = f"INSERT OR IGNORE INTO {table} VALUES ({marks})"
            count += target.execute(asked, tuple(row)).rowcount
    return count


def _rows(connection: sqlite3.Connection, table: str, key: str) -> Iterator[Sequence[object]]:
    """Yield the rows of a table from both ends up to damage, then those found in between."""
    # Rows behind the damage can often be read backwards from the other end.
    down = ", ".join(f"{name} DESC" for name in key.split(", "))
    columns = "rowid, *" if key == "rowid" else "0, *"
    ends = [0, 0]
    for place, order in enumerate((key, down)):
        for row in _readable(connection, f"SELECT {columns} FROM {table} ORDER BY {order}"):
            ends[place] = row[0]
            yield row[1:]
    # Between the ends lies the damage, but pages in it may be sound: each row is looked up by its
    # number, up to a bound, as row numbers of a damaged index can be any 64-bit integer.
    first, last = ends
    for rowid in range(first + 1, min(last, first + _MOST_GAP)):
        yield from _readable(connection, f"SELECT * FROM {table} WHERE rowid = {rowid}")


def _readable(connection: sqlite3.Connection, asked: str) -> Iterator[Sequence[Any]]:
    try:
        yield from connection.execute(asked)
    except FAILURES as error:
        if not isinstance(fault_of(Path(), error), Damaged):
            raise
