"""Files with measured rows of several kinds, split for the readers of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trnbench.errors import InputError
from trnbench.evidence.measured_columns import KERNEL_KINDS, KINDS, MeasuredKind
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet
from trnbench.facts.records import replace

_SETS: Mapping[MeasuredKind, EvidenceSet] = {
    **dict.fromkeys(KERNEL_KINDS, "measured_kernels"),
    "collective": "trainium_collectives",
    "train": "steps",
}


def parts_of(file: EvidenceFile) -> tuple[EvidenceFile, ...]:
    """The file by kinds, each part as a file of its set; a file of another set is its only part.

    A row of an unknown kind gets a fault, and counts as a kernel.
    """
    if file.set != "measured":
        return (file,)
    rows: dict[EvidenceSet, list[EvidenceRow]] = {}
    for row in file.rows:
        kind = row.text("kind")
        found = next((name for name in KINDS if name == kind), None)
        if found is None:
            fault = f"kind: {kind[:40]!r} is none of {', '.join(KINDS)}"
            row = replace(row, fault=row.fault or fault)
        rows.setdefault(_SETS[found or "matrix"], []).append(row)
    return tuple(
        EvidenceFile(name=file.name, set=of, rows=tuple(members)) for of, members in rows.items()
    )


def steps_of(files: Iterable[EvidenceFile], use: str) -> list[EvidenceFile]:
    """Files reduced to training steps; `use` names the purpose in an error.

    The other kinds describe their machine.
    """
    found = []
    for file in files:
        if file.set != "measured":
            found.append(file)
            continue
        steps = [part for part in parts_of(file) if part.set == "steps"]
        if not steps:
            raise InputError(
                f"{file.name}: has no training step to be {use}: measure train, or all"
            )
        found += steps
    return found


def rows_of_kind(rows: Iterable[EvidenceRow], *kinds: MeasuredKind) -> list[EvidenceRow]:
    """The sound rows of some kinds."""
    return [row for row in rows if row.text("kind") in kinds and row.fault is None]
