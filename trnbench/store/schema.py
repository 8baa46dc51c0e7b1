"""Tables of the file of kept runs, by version; each migration leads to the next version.

The tables are open to other readers of SQLite. `answer.inputs` and `answer.content`, and the
contents of `blob`, are zlib-compressed; the first two hold JSON in UTF-8:

    json.loads(zlib.decompress(content))    {"rows": [...], "summary": {...}, "columns": [...]}

Rows of runs, answers and cells have a seal that reveals changes. Blobs are named by the digest of
their content, and snapshots by that of their list of files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from trnbench.store.content import inflated_bytes, sealed

APPLICATION = 0x74726E62
"""Owner in the file's header: "trnb"."""

_RUNS = """
CREATE TABLE run (
    id TEXT PRIMARY KEY,
    verb TEXT NOT NULL,
    started_at TEXT NOT NULL,
    seconds REAL NOT NULL,
    version TEXT NOT NULL,
    machine TEXT NOT NULL,
    tag TEXT,
    headline TEXT NOT NULL,
    models TEXT NOT NULL,
    instances TEXT NOT NULL,
    exit_code INTEGER NOT NULL,
    options TEXT NOT NULL,
    command TEXT NOT NULL,
    snapshot TEXT NOT NULL
) STRICT;
CREATE INDEX run_started ON run (started_at);
CREATE TABLE answer (
    run TEXT PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    inputs BLOB NOT NULL,
    content BLOB NOT NULL
) STRICT;
CREATE TABLE blob (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT;
CREATE TABLE snapshot_file (
    snapshot TEXT NOT NULL,
    section TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL REFERENCES blob (sha256),
    PRIMARY KEY (snapshot, section, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE snapshot_seen (stamp TEXT PRIMARY KEY, snapshot TEXT NOT NULL) STRICT;
CREATE TABLE input_file (
    run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;
"""

_STUDIES = """
CREATE TABLE cell (
    study TEXT NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    content BLOB NOT NULL,
    reason TEXT,
    seconds REAL NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (study, key)
) STRICT;
"""


def _seal(texts: str, *others: str) -> str:
    # Texts are sealed as bytes, because a damaged one may not decode.
    return (
        f"sealed({', '.join([*(f'CAST({column} AS BLOB)' for column in texts.split()), *others])})"
    )


RUN_SEAL = _seal(
    "id verb started_at version machine tag headline models instances options command snapshot",
    *("seconds", "exit_code"),
)
ANSWER_SEAL = _seal(
    "run inputs content",
    *("inputs_bytes", "content_bytes"),
    "(SELECT CAST(group_concat(one, char(10)) AS BLOB) FROM (SELECT "
    "path || ' ' || bytes || ' ' || sha256 || ' ' || kept AS one "
    "FROM input_file WHERE input_file.run = answer.run ORDER BY path))",
)
"""Covers the answer and the list of its input files."""
CELL_SEAL = _seal("study key state content reason at", "bytes", "seconds")

_SEALS = f"""
ALTER TABLE run ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE answer ADD COLUMN inputs_bytes INTEGER NOT NULL DEFAULT -1;
ALTER TABLE answer ADD COLUMN content_bytes INTEGER NOT NULL DEFAULT -1;
ALTER TABLE answer ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE blob ADD COLUMN bytes INTEGER NOT NULL DEFAULT -1;
ALTER TABLE input_file ADD COLUMN kept TEXT NOT NULL DEFAULT '';
ALTER TABLE cell ADD COLUMN bytes INTEGER NOT NULL DEFAULT -1;
ALTER TABLE cell ADD COLUMN seal TEXT NOT NULL DEFAULT '';
UPDATE blob SET bytes = inflated_bytes(content);
UPDATE input_file SET kept = sha256 WHERE sha256 IN (SELECT sha256 FROM blob);
UPDATE run SET seal = {RUN_SEAL};
UPDATE answer SET inputs_bytes = inflated_bytes(inputs), content_bytes = inflated_bytes(content);
UPDATE answer SET seal = {ANSWER_SEAL};
UPDATE cell SET bytes = inflated_bytes(content);
UPDATE cell SET seal = {CELL_SEAL}
"""
"""`input_file.kept` names the kept text of a file: empty where there is none."""

MIGRATIONS: tuple[str, ...] = (_RUNS, _STUDIES, _SEALS)
"""Statements from version N to N + 1; released ones are never edited."""


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions of seals to a connection, and decode damaged texts without an error."""
    connection.create_function("sealed", -1, sealed, deterministic=True)
    connection.create_function("inflated_bytes", 1, inflated_bytes, deterministic=True)
    connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all writes of the block, or none."""
    # A writer from the start: a reader that becomes one while another writes fails without a wait.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def one_view(connection: sqlite3.Connection) -> Iterator[None]:
    """See the file as it is at one moment in all reads of the block, or of one around it."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.rollback()


def migrate(connection: sqlite3.Connection, to: int | None = None) -> None:
    """Bring the file to a version, the newest by default: in one transaction, or not at all."""
    with transaction(connection):
        # Another process may have migrated the file while this one waited.
        for script in MIGRATIONS[version_of(connection) : to]:
            for statement in script.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) if to is None else to}")
