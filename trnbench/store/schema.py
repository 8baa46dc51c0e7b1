"""What the file of kept runs holds, by version; each migration brings it one version on.

The tables are open to other readers of SQLite. `answer.inputs` and `answer.content`, and the
contents of `blob`, are zlib-compressed; the first two hold JSON in UTF-8:

    json.loads(zlib.decompress(content))    {"rows": [...], "summary": {...}, "columns": [...]}
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

APPLICATION = 0x74726E62
"""Says in the file's header whose it is: "trnb"."""

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

MIGRATIONS: tuple[str, ...] = (_RUNS, _STUDIES)
"""The statements that bring the file from version N to N + 1; what was released is never edited."""


def version_of(connection: sqlite3.Connection) -> int:
    """Return how many migrations the file has seen."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block writes, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the newest version, in one transaction: wholly, or not at all."""
    with transaction(connection):
        # Another process may have done it while this one waited.
        for script in MIGRATIONS[version_of(connection) :]:
            for statement in script.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
