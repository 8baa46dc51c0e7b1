"""Check of a whole file of kept runs: damaged runs and cells."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from trnbench.facts.records import Record
from trnbench.store.faults import Damaged
from trnbench.store.runs import answer_of, each_run, inputs_of
from trnbench.store.schema import CELL_SEAL
from trnbench.store.snapshot import files_of, sound_blob
from trnbench.store.studies import cell_content

CELL_DAMAGE = "it is not what was kept"


class RunFault(Record):
    """A damaged run, cell of a study, or whole `file`, with the evidence."""

    kind: str
    name: str
    reason: str


def findings(connection: sqlite3.Connection) -> Iterator[RunFault]:
    """Yield all damage; every row is compared with its digest, size and shape."""
    snapshots: dict[str, str] = {}
    for name, run in each_run(connection):
        if run is None:
            yield RunFault(kind="run", name=name, reason="what is known of it was changed")
            continue
        try:
            answer_of(connection, run)
            inputs_of(connection, run)
        except Damaged as damage:
            yield RunFault(kind="run", name=name, reason=damage.message)
            continue
        if run.snapshot not in snapshots:
            snapshots[run.snapshot] = snapshot_damage(connection, run.snapshot)
        if snapshots[run.snapshot]:
            yield RunFault(kind="run", name=name, reason=snapshots[run.snapshot])
    rows = connection.execute(f"SELECT seal = {CELL_SEAL}, study, key, content, bytes FROM cell")
    for sound, study, key, *content in rows:
        if not sound or cell_content(*content) is None:
            yield RunFault(kind="cell", name=f"{study}/{key}", reason=CELL_DAMAGE)


def snapshot_damage(connection: sqlite3.Connection, snapshot: str) -> str:
    """Damage to the data files of a snapshot; empty where all are sound."""
    try:
        files = files_of(connection, snapshot)
    except Damaged as damage:
        return damage.message
    bad = [file for file in files if not sound_blob(connection, file.sha256)]
    return f"its data file {bad[0].section}/{bad[0].name} is damaged or lost" if bad else ""
