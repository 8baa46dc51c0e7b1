"""Cells of studies, each kept when it is done, so that a stopped study can continue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from trnbench.facts.records import Record
from trnbench.facts.units import counted
from trnbench.store.content import WrongContent, packed, plain, unpacked
from trnbench.store.database import Say, opened
from trnbench.store.place import StoreFault, store_path
from trnbench.store.schema import CELL_SEAL, transaction

DONE, FAILED = "done", "failed"


class KeptCell(Record):
    """Result of a cell: rows, or the reason why there are none."""

    key: str
    rows: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None
    seconds: float = 0.0
    malformed: bool = False
    """True where the question is invalid with any data; not kept in the file."""

    @property
    def state(self) -> str:
        return DONE if self.reason is None else FAILED


KeptCells = Sequence[KeptCell]


def keep_cells(
    connection: sqlite3.Connection, study: str, cells: Sequence[KeptCell], at: str
) -> None:
    """Keep cells in one transaction; failed or damaged ones are replaced, others stay."""
    with transaction(connection):
        connection.executemany(
            "INSERT INTO cell (study, key, state, content, bytes, reason, seconds, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (study, key) DO UPDATE SET "
            "state = excluded.state, content = excluded.content, bytes = excluded.bytes, "
            "reason = excluded.reason, seconds = excluded.seconds, at = excluded.at, seal = '' "
            f"WHERE cell.state = '{FAILED}' OR seal <> {CELL_SEAL}",
            [
                (study, c.key, c.state, *packed(c.rows), reason, c.seconds, at)
                for c in cells
                for reason in (c.reason and plain(c.reason),)
            ],
        )
        connection.executemany(
            f"UPDATE cell SET seal = {CELL_SEAL} WHERE study = ? AND key = ? AND seal = ''",
            # A sound cell kept its seal and is passed over; an empty seal marks new content.
            [(study, cell.key) for cell in cells],
        )


@contextmanager
def cells_keeper(study: str, *, keep: bool, say: Say) -> Iterator[Callable[[KeptCells, str], None]]:
    """Open the file for cells of a study, and give a function that keeps some of them.

    If cells cannot be written, a line says so, and they are tried again with later ones.
    """
    if not keep:
        yield lambda cells, at: None
        return
    waiting: list[KeptCell] = []
    warned = False

    def put(connection: sqlite3.Connection, cells: KeptCells, at: str) -> None:
        nonlocal warned
        # Cells that a full disk or a lock refused wait here and are written with the next ones.
        waiting.extend(cells)
        try:
            keep_cells(connection, study, waiting, at)
            waiting.clear()
        except sqlite3.Error as error:
            if not warned:
                say(f"trnbench: cells are not kept for now: {store_path()}: {error}")
            warned = True

    with ExitStack() as held:
        try:
            connection = held.enter_context(opened(store_path(), say=say, thorough=True))
        except StoreFault as error:
            say(f"trnbench: cells are not kept: {error}")
            yield lambda cells, at: None
            return
        yield partial(put, connection)


def cells_kept(connection: sqlite3.Connection, study: str, *, say: Say) -> dict[str, KeptCell]:
    """Kept cells of a study, by key; damaged ones are left out and reported."""
    rows = connection.execute(
        f"SELECT seal = {CELL_SEAL}, key, content, bytes, reason, seconds FROM cell "
        "WHERE study = ?",
        (study,),
    )
    kept: dict[str, KeptCell] = {}
    damaged = 0
    for sound, key, content, size_bytes, reason, seconds in rows:
        cell_rows = cell_content(content, size_bytes) if sound else None
        if cell_rows is None:
            damaged += 1
        else:
            kept[key] = KeptCell(key=key, rows=cell_rows, reason=reason, seconds=seconds)
    if damaged:
        say(f"trnbench: {counted(damaged, 'kept cell')} of this study: damaged, and open again")
    return kept


def cell_content(content: bytes, size_bytes: int) -> tuple[Mapping[str, Any], ...] | None:
    """Rows of a cell, or None where they are damaged."""
    try:
        rows = unpacked(content, size_bytes)
    except WrongContent:
        return None
    sound = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    return tuple(rows) if sound else None
