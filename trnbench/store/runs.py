"""Kept runs: written once, found by id, tag or question, and forgotten when old or asked to be."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Never

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.records import Record
from trnbench.store.content import WrongContent, digest, json_text, packed, plain, unpacked
from trnbench.store.faults import CHECKS, Damaged
from trnbench.store.masking import is_data, masked
from trnbench.store.schema import ANSWER_SEAL, RUN_SEAL, transaction
from trnbench.store.snapshot import blob, put_blob

MOST_RUNS = 10_000
OLDEST_DAYS = 400
"""Runs without a tag beyond these are forgotten."""
LAST = "last"
"""Stands for the newest run."""
LARGEST_INPUT = 2 << 20
"""Bytes of a file that was read to answer; of a larger one only the digest is kept."""
UTC_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_END_OF_TIME = "9999-12-31T23:59:59Z"
_SLACK = 100
"""So many too many are forgotten at once, and not one at every run."""
_MOST_AT_ONCE = 0.03
"""The share of all runs, or cells, that is forgotten at once at most."""
_ID_BYTES = 5
_ROWS = "id, verb, started_at, seconds, version, machine, tag, headline, models, instances"
_COLUMNS = f"{_ROWS}, exit_code, options, command, snapshot"
_NAMES = tuple(_COLUMNS.split(", "))


class KeptRun(Record):
    """What is known of a run without its answer.

    `options` are those that were given, by name and as they were written. `snapshot` names the data
    files, `version` the program.
    """

    id: str
    verb: str
    started_at: str
    seconds: float
    version: str
    machine: str
    tag: str | None
    headline: str
    models: tuple[str, ...]
    instances: tuple[str, ...]
    exit_code: int
    options: Mapping[str, Any]
    command: str
    snapshot: str


class KeptAnswer(Record):
    """What was answered: the inputs as understood, rows by key, and the columns people see."""

    inputs: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]
    columns: tuple[str, ...]


class KeptInput(Record):
    """A file that was read to answer; `content` is None where no text of it is kept."""

    path: str
    sha256: str
    content: bytes | None


class RunFilter(Record):
    """Which runs are looked for; what is None does not matter."""

    verb: str | None = None
    model: str | None = None
    instance: str | None = None
    tag: str | None = None
    since: str | None = None
    until: str | None = None


def utc_now() -> str:
    """Return the time as runs have it; the last there is where the clock is beyond."""
    try:
        return datetime.fromtimestamp(time.time(), tz=UTC).strftime(UTC_FORMAT)
    except (ValueError, OverflowError, OSError):
        return _END_OF_TIME


def new_id(connection: sqlite3.Connection) -> str:
    """Return an id that no run has."""
    while True:
        name = os.urandom(_ID_BYTES).hex()
        if connection.execute("SELECT 1 FROM run WHERE id = ?", (name,)).fetchone() is None:
            return name


def add(
    connection: sqlite3.Connection,
    run: KeptRun,
    answer: KeptAnswer,
    inputs: Sequence[Path],
    digested: Sequence[Path] = (),
) -> None:
    """Keep a run with its answer and the files it read; the caller holds the transaction.

    Of data files their text is kept, without secrets; of `digested` and others their digest alone.
    """
    values = [getattr(run, name) for name in _NAMES]
    connection.execute(
        f"INSERT INTO run ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})",
        [_cell(one) for one in values],
    )
    content = {"rows": answer.rows, "summary": answer.summary, "columns": answer.columns}
    connection.execute(
        "INSERT INTO answer (run, inputs, inputs_bytes, content, content_bytes) "
        "VALUES (?, ?, ?, ?, ?)",
        (run.id, *packed(answer.inputs), *packed(content)),
    )
    for path in dict.fromkeys((*inputs, *digested)):
        if path.is_file():
            data = path.read_bytes()
            has_text = len(data) <= LARGEST_INPUT and is_data(path) and path not in digested
            kept = put_blob(connection, masked(data)) if has_text else ""
            connection.execute(
                "INSERT OR IGNORE INTO input_file VALUES (?, ?, ?, ?, ?)",
                (run.id, plain(str(path)), len(data), digest(data), kept),
            )
    seal(connection, run.id)


def seal(connection: sqlite3.Connection, name: str) -> None:
    """Seal the rows of a run as they are."""
    connection.execute(f"UPDATE run SET seal = {RUN_SEAL} WHERE id = ?", (name,))
    connection.execute(f"UPDATE answer SET seal = {ANSWER_SEAL} WHERE run = ?", (name,))


def listed(
    connection: sqlite3.Connection, wanted: RunFilter, limit: int | None = None
) -> list[KeptRun]:
    """Return the runs that are looked for, newest first; a damaged one is left out."""
    tests = {
        "verb = ?": wanted.verb,
        "EXISTS (SELECT 1 FROM json_each(models) WHERE value = ?)": wanted.model,
        "EXISTS (SELECT 1 FROM json_each(instances) WHERE value = ?)": wanted.instance,
        "tag = ?": wanted.tag and plain(wanted.tag),
        "started_at >= ?": wanted.since,
        "started_at < ?": wanted.until,
    }
    asked = {test: value for test, value in tests.items() if value is not None}
    rows = connection.execute(
        # Tests are made of sound rows alone: JSON of a damaged one is an error.
        f"SELECT {_COLUMNS} FROM run WHERE CASE WHEN seal = {RUN_SEAL} "
        f"THEN {' AND '.join(asked) or '1'} END ORDER BY started_at DESC, rowid DESC LIMIT ?",
        (*asked.values(), -1 if limit is None else limit),
    )
    return [_run(row) for row in rows]


def each_run(connection: sqlite3.Connection) -> Iterator[tuple[str, KeptRun | None]]:
    """Yield the id of every run, with what is known of it; None where that is damaged."""
    rows = connection.execute(f"SELECT seal = {RUN_SEAL}, {_COLUMNS} FROM run").fetchall()
    for sound, *row in rows:
        yield str(row[0]), _run(row) if sound else None


def damaged_runs(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of runs that are not what was kept, their answers left aside."""
    rows = connection.execute(f"SELECT id FROM run WHERE seal <> {RUN_SEAL}")
    return [str(row[0]) for row in rows]


def found(connection: sqlite3.Connection, name: str) -> KeptRun:
    """Return the run of an id, the newest of a tag, that of the beginning of an id, or the last."""
    name = plain(name)
    if name == LAST:
        # A clock that was wrong once does not decide for years which run is the last.
        order = "1 ORDER BY started_at > ?, started_at DESC, rowid DESC"
        newest = _first(connection, order, utc_now())
        if not newest:
            raise InputError("no run is kept yet")
        return newest[0]
    begun = _first(connection, "id >= ? AND id < ? ORDER BY id", name, name + "~")
    if begun and begun[0].id == name:
        return begun[0]
    tagged = _first(connection, "tag = ? ORDER BY started_at DESC, rowid DESC", name)
    if tagged:
        return tagged[0]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise InputError(f"{name!r} begins the ids of several runs; give more of it")
    known = connection.execute("SELECT DISTINCT tag FROM run WHERE tag IS NOT NULL")
    raise UnknownNameError("run", name, [str(row[0]) for row in known])


def _first(connection: sqlite3.Connection, where: str, *values: str) -> list[KeptRun]:
    """Return the first two runs of a condition and order."""
    rows = connection.execute(
        f"SELECT seal = {RUN_SEAL}, {_COLUMNS} FROM run WHERE {where} LIMIT 2", values
    ).fetchall()
    for sound, name, *_ in rows[:1]:
        if not sound:
            _refuse(str(name), "what is known of it was changed")
    return [_run(row) for sound, *row in rows if sound]


def _refuse(name: str, why: str) -> Never:
    raise Damaged(f"run {name} is damaged: {why}", hint=CHECKS)


def answer_of(connection: sqlite3.Connection, run: KeptRun) -> KeptAnswer:
    """Return what a run answered, checked against its seal, sizes and shape."""
    row = connection.execute(
        f"SELECT seal = {ANSWER_SEAL}, inputs, inputs_bytes, content, content_bytes "
        "FROM answer WHERE run = ?",
        (run.id,),
    ).fetchone()
    if row is None:
        _refuse(run.id, "its answer is not there")
    sound, *sized = row
    if not sound:
        _refuse(run.id, "its answer was changed")
    try:
        inputs, content = unpacked(*sized[:2]), unpacked(*sized[2:])
        return _shaped(inputs, content)
    except WrongContent as error:
        _refuse(run.id, f"of its answer, {error}")


def _shaped(inputs: Any, content: Any) -> KeptAnswer:  # noqa: ANN401 - plain data of any shape
    """Return an answer from plain data that has its shape."""
    parts = content if isinstance(content, dict) else {}
    rows, columns = parts.get("rows"), parts.get("columns")
    if not (
        isinstance(inputs, dict)
        and isinstance(parts.get("summary"), dict)
        and isinstance(rows, list)
        and isinstance(columns, list)
        and all(isinstance(one, dict) for one in rows)
        and all(isinstance(one, str) for one in columns)
    ):
        raise WrongContent("it has not the form of an answer")
    return KeptAnswer(
        inputs=inputs, rows=tuple(rows), summary=parts["summary"], columns=tuple(columns)
    )


def inputs_of(connection: sqlite3.Connection, run: KeptRun) -> tuple[KeptInput, ...]:
    """Return the files that a run read; a text that is not what was kept is refused."""
    rows = connection.execute(
        "SELECT path, sha256, kept FROM input_file WHERE run = ? ORDER BY path", (run.id,)
    ).fetchall()
    try:
        return tuple(
            KeptInput(path=path, sha256=sha256, content=blob(connection, kept) if kept else None)
            for path, sha256, kept in rows
        )
    except WrongContent as error:
        _refuse(run.id, f"of a file that it read, {error}")


def remove_one(connection: sqlite3.Connection, name: str) -> None:
    """Forget the run of an id, if there is one; the caller holds the transaction."""
    connection.execute("DELETE FROM run WHERE id = ?", (name,))


def remove(connection: sqlite3.Connection, runs: Sequence[KeptRun]) -> None:
    """Forget runs, and the data files that no other rests on."""
    with transaction(connection):
        connection.executemany("DELETE FROM run WHERE id = ?", [(run.id,) for run in runs])
        _sweep(connection)


def prune(connection: sqlite3.Connection) -> None:
    """Forget runs without a tag, and cells, that are old, and runs that are too many.

    How old is told by what the file holds, not by a clock: one that is wrong once costs nothing.
    """
    newest = [
        row[0]
        for row in connection.execute("SELECT started_at FROM run ORDER BY started_at DESC LIMIT 2")
    ]
    if len(newest) < 2 or newest[0] > utc_now():
        return
    try:
        oldest = datetime.strptime(newest[1], UTC_FORMAT) - timedelta(days=OLDEST_DAYS)
    except (ValueError, OverflowError):
        return
    count = counted(connection)
    surplus = count - MOST_RUNS if count > MOST_RUNS + _SLACK else 0
    gone = connection.execute(
        "DELETE FROM run WHERE rowid IN (SELECT rowid FROM (SELECT rowid, started_at, "
        "row_number() OVER (ORDER BY started_at, rowid) AS place FROM run WHERE tag IS NULL) "
        "WHERE started_at < ? OR place <= ? ORDER BY started_at LIMIT ?)",
        (oldest.strftime(UTC_FORMAT), surplus, int(count * _MOST_AT_ONCE)),
    ).rowcount
    if gone:
        _sweep(connection)
    cells = connection.execute("SELECT count(*) FROM cell").fetchone()[0]
    connection.execute(
        "DELETE FROM cell WHERE rowid IN (SELECT rowid FROM cell WHERE at < ? ORDER BY at LIMIT ?)",
        (oldest.strftime(UTC_FORMAT), int(cells * _MOST_AT_ONCE)),
    )


def counted(connection: sqlite3.Connection) -> int:
    """Return how many runs are kept."""
    return int(connection.execute("SELECT count(*) FROM run").fetchone()[0])


def _sweep(connection: sqlite3.Connection) -> None:
    unused = "NOT IN (SELECT DISTINCT snapshot FROM run)"
    for table in ("snapshot_file", "snapshot_seen"):
        connection.execute(f"DELETE FROM {table} WHERE snapshot {unused}")
    connection.execute(
        "DELETE FROM blob WHERE sha256 NOT IN (SELECT sha256 FROM snapshot_file) "
        "AND sha256 NOT IN (SELECT kept FROM input_file)"
    )


def _run(row: Sequence[Any]) -> KeptRun:
    given = dict(zip(_NAMES, row, strict=True))
    given["options"] = json.loads(given["options"])
    given["models"] = _names(given["models"])
    given["instances"] = _names(given["instances"])
    return KeptRun(**given)


@lru_cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _cell(value: object) -> object:
    """Return a value of a run as its table has it."""
    if isinstance(value, tuple | Mapping):
        return json_text(value)
    return plain(value) if isinstance(value, str) else value
