"""What can be read of a damaged file of kept runs, brought into a sound one."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from trnbench.records import dataclass
from trnbench.store.check import Finding, snapshot_damage
from trnbench.store.database import ASIDE, ENDINGS, connected, known_version
from trnbench.store.faults import Damaged, StoreFault, fault_of
from trnbench.store.place import own_file
from trnbench.store.runs import KeptRun, answer_of, run_at
from trnbench.store.schema import CELL_SEAL, RUN_SEAL, migrate, transaction
from trnbench.store.snapshot import sound_blob
from trnbench.store.studies import cell_content

_MOST_GAP = 1_000_000
"""So many row numbers between two readable ones are tried one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """How many runs and cells were brought over, how many were there already, and what is lost."""

    runs: int
    cells: int
    known: int
    lost: tuple[Finding, ...]


def put_aside(path: Path) -> list[Path]:
    """Return the damaged files that were put aside from a path, newest last."""
    return sorted(path.parent.glob(f"{path.name}{ASIDE}*[0-9]"))


@contextmanager
def salvaged(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a file that may be damaged; the file itself is not touched."""
    if not own_file(path):
        raise StoreFault(f"{path} is not there")
    with tempfile.TemporaryDirectory(prefix="trnbench-") as folder:
        copy = Path(folder) / "copy"
        for ending in ENDINGS:
            if (beside := path.with_name(path.name + ending)).is_file() and ending != "-shm":
                shutil.copyfile(beside, copy.with_name(copy.name + ending))
        try:
            with closing(connected(copy)) as connection:
                known_version(connection, copy, path)
                migrate(connection)
                yield connection
        except sqlite3.Error as error:
            raise fault_of(path, error) from error


def recover(source: sqlite3.Connection, target: sqlite3.Connection) -> Recovered:
    """Bring the sound runs and cells of a file into another, in one transaction."""
    lost: dict[str, str] = {}
    runs = known = 0
    with transaction(target):
        for rowid, sound, name in _rows(source, "run", f"seal = {RUN_SEAL}, id"):
            if target.execute("SELECT 1 FROM run WHERE id = ?", (name,)).fetchone():
                known += 1
            elif not sound:
                lost[str(name)] = "what is known of it was changed"
            else:
                try:
                    _bring(source, target, run_at(source, int(str(rowid))))
                    runs += 1
                except Damaged as damage:
                    lost[str(name)] = damage.message
        for name in _names(source):
            if not target.execute("SELECT 1 FROM run WHERE id = ?", (name,)).fetchone():
                lost.setdefault(name, "its row cannot be read")
        cells, cells_lost = _bring_cells(source, target)
    return Recovered(
        runs=runs,
        cells=cells,
        known=known,
        lost=(
            *(Finding(kind="run", name=name, why=why) for name, why in lost.items()),
            *(
                Finding(kind="cell", name=name, why="it is not what was kept")
                for name in cells_lost
            ),
        ),
    )


def _bring(source: sqlite3.Connection, target: sqlite3.Connection, run: KeptRun) -> None:
    """Copy a run's rows as they are, once its answer is found sound."""
    with _faults():
        answer_of(source, run)
        inputs = _copied(source, "input_file", "run", run.id)
        for table, column in (("run", "id"), ("answer", "run")):
            _insert(target, table, _copied(source, table, column, run.id))
        _insert(target, "input_file", inputs)
        kept = source.execute("SELECT kept FROM input_file WHERE run = ?", (run.id,)).fetchall()
        _bring_blobs(source, target, [row[0] for row in kept if row[0]])
        try:
            whole = not snapshot_damage(source, run.snapshot)
        except sqlite3.DatabaseError:
            whole = False
        if whole:  # a run whose data files are lost is shown, and not asked again
            files = _copied(source, "snapshot_file", "snapshot", run.snapshot)
            _bring_blobs(source, target, [str(row[-1]) for row in files])
            _insert(target, "snapshot_file", files)


def _bring_blobs(source: sqlite3.Connection, target: sqlite3.Connection, names: list[str]) -> None:
    for name in names:
        if sound_blob(source, name) and not sound_blob(target, name):
            _insert(target, "blob", _copied(source, "blob", "sha256", name))


def _bring_cells(source: sqlite3.Connection, target: sqlite3.Connection) -> tuple[int, list[str]]:
    count, lost = 0, []
    columns = f"seal = {CELL_SEAL}, study, key, content, bytes"
    for rowid, sound, study, key, content, size_bytes in _rows(source, "cell", columns):
        if sound and cell_content(content, size_bytes) is not None:  # type: ignore[arg-type]
            _insert(target, "cell", _copied(source, "cell", "rowid", rowid))
            count += 1
        else:
            lost.append(f"{study}/{key}")
    return count, lost


def _rows(connection: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a table from both ends up to damage, and what lies between one by one."""
    seen: set[int] = set()
    ends = [0, 0]
    for place, order in enumerate(("ASC", "DESC")):
        asked = f"SELECT rowid, {columns} FROM {table} ORDER BY rowid {order}"
        try:
            for row in connection.execute(asked):
                ends[place] = int(row[0])
                if row[0] in seen:
                    return
                seen.add(row[0])
                yield row
        except sqlite3.DatabaseError as error:
            _raise_unless_damage(error)
        else:
            return
    first, last = ends
    for rowid in range(first + 1, min(last, first + _MOST_GAP)):
        asked = f"SELECT rowid, {columns} FROM {table} WHERE rowid = ?"
        try:
            found = connection.execute(asked, (rowid,)).fetchall()
        except sqlite3.DatabaseError as error:
            _raise_unless_damage(error)
        else:
            yield from found


def _names(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of all runs as their index has them: of lost rows it knows still."""
    try:
        return [str(row[0]) for row in connection.execute("SELECT id FROM run ORDER BY id")]
    except sqlite3.DatabaseError as error:
        _raise_unless_damage(error)
        return []


def _copied(
    connection: sqlite3.Connection, table: str, column: str, value: object
) -> list[tuple[object, ...]]:
    return connection.execute(f"SELECT * FROM {table} WHERE {column} = ?", (value,)).fetchall()


def _insert(target: sqlite3.Connection, table: str, rows: list[tuple[object, ...]]) -> None:
    for row in rows:
        marks = ", ".join("?" * len(row))
        target.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        _raise_unless_damage(error)
        raise Damaged(f"it cannot be read: {error}") from None


def _raise_unless_damage(error: sqlite3.DatabaseError) -> None:
    if not isinstance(fault_of(Path(), error), Damaged):
        raise error
