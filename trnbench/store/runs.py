"""Kept runs: written once, found by id, tag or question, and forgotten when old or asked to be."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from trnbench.errors import InputError, UnknownNameError
from trnbench.records import Record
from trnbench.store.schema import transaction
from trnbench.store.snapshot import blob, digest, packed, put_blob, unpacked

MOST_RUNS = 10_000
OLDEST_DAYS = 400
"""Runs without a tag beyond these are forgotten."""
LAST = "last"
"""Stands for the newest run."""
LARGEST_INPUT = 2 << 20
"""Bytes of a file that was read to answer; of a larger one only the digest is kept."""
_SLACK = 100
"""So many too many are forgotten at once, and not one at every run."""
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
    """A file that was read to answer; `content` is None where it was too large to keep."""

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


def new_id(connection: sqlite3.Connection) -> str:
    """Return an id that no run has."""
    while True:
        name = os.urandom(_ID_BYTES).hex()
        if connection.execute("SELECT 1 FROM run WHERE id = ?", (name,)).fetchone() is None:
            return name


def add(
    connection: sqlite3.Connection, run: KeptRun, answer: KeptAnswer, inputs: Sequence[Path]
) -> None:
    """Keep a run with its answer and the files it read; the caller holds the transaction."""
    values = [getattr(run, name) for name in _NAMES]
    connection.execute(
        f"INSERT INTO run ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})",
        [_json(one) if isinstance(one, tuple | Mapping) else one for one in values],
    )
    content = {"rows": answer.rows, "summary": answer.summary, "columns": answer.columns}
    connection.execute(
        "INSERT INTO answer VALUES (?, ?, ?)", (run.id, packed(answer.inputs), packed(content))
    )
    for path in inputs:
        if path.is_file():
            data = path.read_bytes()
            small = len(data) <= LARGEST_INPUT
            name = put_blob(connection, data) if small else digest(data)
            connection.execute(
                "INSERT OR IGNORE INTO input_file VALUES (?, ?, ?, ?)",
                (run.id, str(path), len(data), name),
            )


def listed(
    connection: sqlite3.Connection, wanted: RunFilter, limit: int | None = None
) -> list[KeptRun]:
    """Return the runs that are looked for, newest first."""
    tests = {
        "verb = ?": wanted.verb,
        "EXISTS (SELECT 1 FROM json_each(models) WHERE value = ?)": wanted.model,
        "EXISTS (SELECT 1 FROM json_each(instances) WHERE value = ?)": wanted.instance,
        "tag = ?": wanted.tag,
        "started_at >= ?": wanted.since,
        "started_at < ?": wanted.until,
    }
    asked = {test: value for test, value in tests.items() if value is not None}
    where = f" WHERE {' AND '.join(asked)}" if asked else ""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM run{where} ORDER BY started_at DESC, rowid DESC LIMIT ?",
        (*asked.values(), -1 if limit is None else limit),
    )
    return [_run(row) for row in rows]


def found(connection: sqlite3.Connection, name: str) -> KeptRun:
    """Return the run of an id, the newest of a tag, that of the beginning of an id, or the last."""
    if name == LAST:
        newest = listed(connection, RunFilter(), 1)
        if not newest:
            raise InputError("no run is kept yet")
        return newest[0]
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM run WHERE id >= ? AND id < ? ORDER BY id LIMIT 2",
        (name, name + "~"),
    ).fetchall()
    tagged = listed(connection, RunFilter(tag=name), 1)
    if tagged and (not rows or rows[0][0] != name):
        return tagged[0]
    if len(rows) == 1 or (rows and rows[0][0] == name):
        return _run(rows[0])
    if rows:
        raise InputError(f"{name!r} begins the ids of several runs; give more of it")
    known = connection.execute("SELECT DISTINCT tag FROM run WHERE tag IS NOT NULL")
    raise UnknownNameError("run", name, [str(row[0]) for row in known])


def answer_of(connection: sqlite3.Connection, run: KeptRun) -> KeptAnswer:
    """Return what a run answered."""
    row = connection.execute(
        "SELECT inputs, content FROM answer WHERE run = ?", (run.id,)
    ).fetchone()
    inputs, content = map(unpacked, row)
    return KeptAnswer(
        inputs=inputs,
        rows=tuple(content["rows"]),
        summary=content["summary"],
        columns=tuple(content["columns"]),
    )


def inputs_of(connection: sqlite3.Connection, run: KeptRun) -> tuple[KeptInput, ...]:
    """Return the files that a run read."""
    rows = connection.execute(
        "SELECT path, sha256 FROM input_file WHERE run = ? ORDER BY path", (run.id,)
    ).fetchall()
    return tuple(
        KeptInput(path=path, sha256=sha256, content=blob(connection, sha256))
        for path, sha256 in rows
    )


def remove_one(connection: sqlite3.Connection, name: str) -> None:
    """Forget the run of an id, if there is one; the caller holds the transaction."""
    connection.execute("DELETE FROM run WHERE id = ?", (name,))


def remove(connection: sqlite3.Connection, runs: Sequence[KeptRun]) -> None:
    """Forget runs, and the data files that no other rests on."""
    with transaction(connection):
        connection.executemany("DELETE FROM run WHERE id = ?", [(run.id,) for run in runs])
        _sweep(connection)


def prune(connection: sqlite3.Connection, oldest: str) -> None:
    """Forget runs without a tag that began before a time, or are too many."""
    rows = connection.execute(
        "SELECT id FROM run WHERE tag IS NULL AND started_at < ?", (oldest,)
    ).fetchall()
    count = connection.execute("SELECT count(*) FROM run").fetchone()[0] - len(rows)
    if count > MOST_RUNS + _SLACK:
        rows += connection.execute(
            "SELECT id FROM run WHERE tag IS NULL AND started_at >= ? ORDER BY started_at LIMIT ?",
            (oldest, count - MOST_RUNS),
        ).fetchall()
    if rows:
        connection.executemany("DELETE FROM run WHERE id = ?", rows)
        _sweep(connection)


def counted(connection: sqlite3.Connection) -> int:
    """Return how many runs are kept."""
    return int(connection.execute("SELECT count(*) FROM run").fetchone()[0])


def _sweep(connection: sqlite3.Connection) -> None:
    unused = "NOT IN (SELECT DISTINCT snapshot FROM run)"
    for table in ("snapshot_file", "snapshot_seen"):
        connection.execute(f"DELETE FROM {table} WHERE snapshot {unused}")
    connection.execute(
        "DELETE FROM blob WHERE sha256 NOT IN (SELECT sha256 FROM snapshot_file) "
        "AND sha256 NOT IN (SELECT sha256 FROM input_file)"
    )


def _run(row: tuple[Any, ...]) -> KeptRun:
    given = dict(zip(_NAMES, row, strict=True))
    given["options"] = json.loads(given["options"])
    given["models"] = _names(given["models"])
    given["instances"] = _names(given["instances"])
    return KeptRun(**given)


@lru_cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
