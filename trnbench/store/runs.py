"""Kept runs: written once, found by id, tag or question, and deleted when old or on request."""

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
from trnbench.facts.records import Record, shaped
from trnbench.store import content
from trnbench.store.place import CHECKS, Damaged
from trnbench.store.schema import ANSWER_SEAL, RUN_SEAL, transaction
from trnbench.store.snapshot import blob, put_blob

MOST_RUNS = 10_000
OLDEST_DAYS = 400
"""Runs without a tag beyond these limits are deleted."""
LAST = "last"
"""Name of the newest run."""
LARGEST_INPUT = 2 << 20
"""Largest bytes of an input file whose text is kept; of a larger one only the digest is."""
UTC_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_END_OF_TIME = "9999-12-31T23:59:59Z"
_SLACK = 100
"""Surplus runs at which deletion starts, so that not every run deletes one."""
_MOST_AT_ONCE = 0.03
"""Largest share of all runs, or cells, deleted at once."""
_ID_BYTES = 5
_ROWS = "id, verb, started_at, seconds, version, machine, tag, headline, models, instances"
_COLUMNS = f"{_ROWS}, exit_code, options, command, snapshot"
_NEWEST = "ORDER BY started_at DESC, rowid DESC"
_NAMES = tuple(_COLUMNS.split(", "))


class KeptRun(Record):
    """A run without its answer."""

    id: str
    verb: str
    started_at: str
    """UTC, as `UTC_FORMAT`."""
    seconds: float
    """Wall time of the answer."""
    version: str
    machine: str
    tag: str | None
    headline: str
    models: tuple[str, ...]
    instances: tuple[str, ...]
    exit_code: int
    options: Mapping[str, Any]
    """Given options by name, as they were written."""
    command: str
    snapshot: str
    """Name of the data files."""


class KeptAnswer(Record):
    """Answer of a run: the inputs as understood, rows by key, a summary."""

    inputs: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]
    columns: tuple[str, ...]
    """Keys of the columns that people see."""


def utc_now() -> str:
    """Current time in the format of runs; the last representable one for a clock beyond it."""
    try:
        return datetime.fromtimestamp(time.time(), tz=UTC).strftime(UTC_FORMAT)
    except (ValueError, OverflowError, OSError):
        return _END_OF_TIME


def new_id(connection: sqlite3.Connection) -> str:
    """An unused id."""
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

    The text of data files is kept, without secrets; of `digested` and other files only the digest.
    """
    connection.execute(
        f"INSERT INTO run ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})",
        [_cell(getattr(run, name)) for name in _NAMES],
    )
    shown = {"rows": answer.rows, "summary": answer.summary, "columns": answer.columns}
    connection.execute(
        "INSERT INTO answer (run, inputs, inputs_bytes, content, content_bytes) "
        "VALUES (?, ?, ?, ?, ?)",
        (run.id, *content.packed(answer.inputs), *content.packed(shown)),
    )
    for path in dict.fromkeys((*inputs, *digested)):
        if path.is_file():
            data = path.read_bytes()
            has_text = len(data) <= LARGEST_INPUT and content.is_data(path) and path not in digested
            kept = put_blob(connection, content.masked(data)) if has_text else ""
            connection.execute(
                "INSERT OR IGNORE INTO input_file VALUES (?, ?, ?, ?, ?)",
                (run.id, content.plain(str(path)), len(data), content.digest(data), kept),
            )
    seal(connection, run.id)


def seal(connection: sqlite3.Connection, name: str) -> None:
    """Seal the current rows of a run."""
    # SQLite computes the seal from the stored cells, so that it holds for the types that come back.
    connection.execute(f"UPDATE run SET seal = {RUN_SEAL} WHERE id = ?", (name,))
    connection.execute(f"UPDATE answer SET seal = {ANSWER_SEAL} WHERE run = ?", (name,))


_TESTS = {
    "verb": "verb = ?",
    # JSON functions fail on a damaged text.
    "model": "json_valid(models) AND EXISTS (SELECT 1 FROM json_each(models) WHERE value = ?)",
    "instance": "json_valid(instances) "
    "AND EXISTS (SELECT 1 FROM json_each(instances) WHERE value = ?)",
    "tag": "tag = ?",
    "since": "started_at >= ?",
    "until": "started_at < ?",
}
"""Key of a filter of runs -> its condition."""


def listed(
    connection: sqlite3.Connection, wanted: Mapping[str, str | None], limit: int | None = None
) -> tuple[list[KeptRun], list[str]]:
    """Runs that match a filter, newest first, and ids of the damaged ones that were met.

    None matches any value. A damaged run may have matched before, so it is met with any filter.
    """
    asked = {
        test: content.plain(value)
        for key, test in _TESTS.items()
        if (value := wanted.get(key)) is not None
    }
    runs: list[KeptRun] = []
    damaged: list[str] = []
    # A seal is computed once a row, here or there; a limit reads no row behind the last one.
    tests = f"{' AND '.join(asked)} OR seal <> {RUN_SEAL}" if asked else "1"
    rows = connection.execute(
        f"SELECT seal = {RUN_SEAL}, {_COLUMNS} FROM run WHERE {tests} {_NEWEST}",
        [*asked.values()],
    )
    for sound, *row in rows:
        if len(runs) == limit:
            break
        if sound:
            runs.append(_run(row))
        else:
            damaged.append(str(row[0]))
    return runs, damaged


def each_run(connection: sqlite3.Connection) -> Iterator[tuple[str, KeptRun | None]]:
    """Yield the id of every run with its record; None where that is damaged."""
    rows = connection.execute(f"SELECT seal = {RUN_SEAL}, {_COLUMNS} FROM run").fetchall()
    for sound, *row in rows:
        yield str(row[0]), _run(row) if sound else None


def found(connection: sqlite3.Connection, name: str) -> KeptRun:
    """Run with this id, newest with this tag, run whose id begins so, or the last run."""
    name = content.plain(name)
    if name == LAST:
        # Runs dated in the future come last, so a clock that was wrong once does no lasting harm.
        newest = _first(connection, f"started_at <= ? {_NEWEST}", utc_now())
        newest = newest or _first(connection, f"1 {_NEWEST}")
        if not newest:
            raise InputError("no run is kept yet")
        return newest[0]
    # Ids are hexadecimal, so "~" lies behind every continuation; a range uses the index of ids.
    begun = _first(connection, "id >= ? AND id < ? ORDER BY id", name, name + "~")
    if begun and begun[0].id == name:
        return begun[0]
    tagged = _first(connection, f"tag = ? {_NEWEST}", name)
    if tagged:
        return tagged[0]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise InputError(f"{name!r} begins the ids of several runs; give more of it")
    tags = connection.execute("SELECT DISTINCT tag FROM run WHERE tag IS NOT NULL")
    lists = "trnbench runs list"
    raise UnknownNameError("run", name, [str(row[0]) for row in tags], lists=lists)


def _first(connection: sqlite3.Connection, where: str, *values: str) -> list[KeptRun]:
    rows = connection.execute(
        f"SELECT seal = {RUN_SEAL}, {_COLUMNS} FROM run WHERE {where} LIMIT 2", values
    ).fetchall()
    # Only damage of the first row matters: the second just shows that a name is ambiguous.
    for sound, name, *_ in rows[:1]:
        if not sound:
            _refuse(str(name), "what is known of it was changed")
    return [_run(row) for sound, *row in rows if sound]


def _refuse(name: str, why: str) -> Never:
    raise Damaged(f"run {name} is damaged: {why}", hint=CHECKS)


def answer_of(connection: sqlite3.Connection, run: KeptRun) -> KeptAnswer:
    """Answer of a run, checked against its seal, sizes and shape."""
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
        return _shaped(content.unpacked(*sized[:2]), content.unpacked(*sized[2:]))
    except content.WrongContent as error:
        _refuse(run.id, f"of its answer, {error}")


def _shaped(inputs: Any, shown: Any) -> KeptAnswer:  # noqa: ANN401 - plain data of any shape
    try:
        return shaped({**shown, "inputs": inputs}, KeptAnswer)
    except (TypeError, ValueError):
        raise content.WrongContent("it has not the form of an answer") from None


def inputs_of(
    connection: sqlite3.Connection, run: KeptRun
) -> tuple[tuple[str, str, bytes | None], ...]:
    """Path, SHA-256 and kept text, if any, of files that a run read; damage is refused."""
    rows = connection.execute(
        "SELECT path, sha256, kept FROM input_file WHERE run = ? ORDER BY path", (run.id,)
    ).fetchall()
    try:
        return tuple(
            (path, sha256, blob(connection, kept) if kept else None) for path, sha256, kept in rows
        )
    except content.WrongContent as error:
        _refuse(run.id, f"of a file that it read, {error}")


def remove_one(connection: sqlite3.Connection, name: str) -> None:
    """Delete the run of an id, if there is one; the caller holds the transaction."""
    connection.execute("DELETE FROM run WHERE id = ?", (name,))


def remove(connection: sqlite3.Connection, runs: Sequence[KeptRun]) -> None:
    """Delete runs, and the data files that no other run uses."""
    with transaction(connection):
        connection.executemany("DELETE FROM run WHERE id = ?", [(run.id,) for run in runs])
        _sweep(connection)


def prune(connection: sqlite3.Connection) -> None:
    """Delete old runs without a tag, old cells, and surplus runs.

    Age counts from the second newest run in the file, not from the clock: a clock that is wrong
    once deletes nothing.
    """
    # Two runs, as a clock that is far ahead for a single run must not date all others.
    newest = [
        row[0]
        for row in connection.execute("SELECT started_at FROM run ORDER BY started_at DESC LIMIT 2")
    ]
    if len(newest) < 2 or newest[0] > utc_now():
        return
    try:
        # Of the same text `strptime` makes the same, with imports that take longer than the rest.
        oldest = datetime.fromisoformat(newest[1]) - timedelta(days=OLDEST_DAYS)
    except (ValueError, OverflowError):
        return
    count = counted(connection)
    # Runs with a tag stay, and push out no others. Few files have so many that others are counted.
    surplus = 0
    if count > MOST_RUNS + _SLACK:
        others = counted(connection, "tag IS NULL")
        surplus = others - MOST_RUNS if others > MOST_RUNS + _SLACK else 0
    aged = counted(connection, "tag IS NULL AND started_at < ?", oldest.strftime(UTC_FORMAT))
    # The age limit and the surplus share a bound of 3 % of all runs, so that no single fault of
    # clock or count can empty the file.
    if gone := min(max(surplus, aged), int(count * _MOST_AT_ONCE)):
        connection.execute(
            "DELETE FROM run WHERE rowid IN "
            "(SELECT rowid FROM run WHERE tag IS NULL ORDER BY started_at, rowid LIMIT ?)",
            (gone,),
        )
        _sweep(connection)
    cells = connection.execute("SELECT count(*) FROM cell").fetchone()[0]
    connection.execute(
        "DELETE FROM cell WHERE rowid IN (SELECT rowid FROM cell WHERE at < ? ORDER BY at LIMIT ?)",
        (oldest.strftime(UTC_FORMAT), int(cells * _MOST_AT_ONCE)),
    )


def counted(connection: sqlite3.Connection, where: str = "1", *values: str) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM run WHERE {where}", values).fetchone()
    return int(count)


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
    if isinstance(value, tuple | Mapping):
        return content.json_text(value)
    return content.plain(value) if isinstance(value, str) else value
