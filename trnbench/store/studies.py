"""Cells of studies: each is kept when it is done, so that a study goes on where it was stopped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from trnbench.records import Record
from trnbench.store.database import Say, StoreFault, opened, store_path
from trnbench.store.schema import transaction
from trnbench.store.snapshot import packed, unpacked

DONE, FAILED = "done", "failed"


class KeptCell(Record):
    """What came of a cell: rows, or the reason why there are none.

    `malformed`: it asks what cannot be asked, however the data are; known only as it is answered.
    """

    key: str
    rows: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None
    seconds: float = 0.0
    malformed: bool = False

    @property
    def state(self) -> str:
        """Whether it was answered."""
        return DONE if self.reason is None else FAILED


KeptCells = Sequence[KeptCell]


def keep_cells(
    connection: sqlite3.Connection, study: str, cells: Sequence[KeptCell], at: str
) -> None:
    """Keep cells in one transaction; one that failed before is replaced, one that is done stays."""
    with transaction(connection):
        connection.executemany(
            "INSERT INTO cell VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (study, key) DO UPDATE SET "
            "state = excluded.state, content = excluded.content, reason = excluded.reason, "
            f"seconds = excluded.seconds, at = excluded.at WHERE cell.state = '{FAILED}'",
            [(study, c.key, c.state, packed(c.rows), c.reason, c.seconds, at) for c in cells],
        )


@contextmanager
def cells_keeper(study: str, *, keep: bool, say: Say) -> Iterator[Callable[[KeptCells, str], None]]:
    """Open the file for cells of a study, and give what keeps some of them.

    Where they cannot be written, a line says so, and later ones are tried again with them.
    """
    if not keep:
        yield lambda cells, at: None
        return
    waiting: list[KeptCell] = []
    told = False

    def put(connection: sqlite3.Connection, cells: KeptCells, at: str) -> None:
        nonlocal told
        waiting.extend(cells)
        try:
            keep_cells(connection, study, waiting, at)
            waiting.clear()
        except sqlite3.Error as error:
            if not told:
                say(f"trnbench: cells are not kept for now: {store_path()}: {error}")
            told = True

    with ExitStack() as held:
        try:
            connection = held.enter_context(opened(store_path(), say=say))
        except StoreFault as error:
            say(f"trnbench: cells are not kept: {error}")
            yield lambda cells, at: None
            return
        yield partial(put, connection)


def cells_kept(connection: sqlite3.Connection, study: str) -> dict[str, KeptCell]:
    """Return the cells of a study that are kept, by key."""
    rows = connection.execute(
        "SELECT key, content, reason, seconds FROM cell WHERE study = ?", (study,)
    )
    return {
        key: KeptCell(
            key=key,
            rows=tuple(unpacked(content)),
            reason=reason,
            seconds=seconds,
        )
        for key, content, reason, seconds in rows
    }


def prune_cells(connection: sqlite3.Connection, oldest: str) -> None:
    """Forget cells that were kept before a time."""
    connection.execute("DELETE FROM cell WHERE at < ?", (oldest,))
