"""Rows of evidence as measured steps that a calibration can be fitted to, and those that cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trnbench.calibration.training_stack import TrainingStack
from trnbench.catalog.search import Catalog
from trnbench.evidence.calibrate_problem import ASSUMED_SCATTER, ROW_SCATTER, Measured
from trnbench.evidence.predict import Predictor
from trnbench.evidence.rows import EvidenceFile, RowFault
from trnbench.evidence.training_cases import EvidenceCase, Reader

FIT = "fit"
"""What a row's `use` says where a file keeps others for validation."""
_OPEN = ("micro-batch:", "recompute:", "virtual stages:")
"""Beginnings of assumptions on which a row's time depends much."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitRows:
    """Rows to fit, and why others are not: (id, reason)."""

    rows: tuple[Measured, ...]
    unused: tuple[tuple[str, str], ...]


def measured_rows(
    catalog: Catalog, files: Iterable[EvidenceFile], *, stack: TrainingStack | None = None
) -> FitRows:
    """Return the rows to fit, all by `stack` where one is named: its own software's, or untold.

    Where any row of a file says `fit`, only those that do are used.
    """
    reader, predictor = Reader(catalog, stack=stack), Predictor()
    rows: list[Measured] = []
    unused: list[tuple[str, str]] = []
    for file in files:
        marked = any(row.text("use") == FIT for row in file.rows)
        for row, case in zip(file.rows, reader.cases(file), strict=True):
            if marked and row.text("use") != FIT:
                continue
            found = _measured(predictor, case, named=stack is not None)
            if isinstance(found, str):
                unused.append((row.id, found))
            else:
                rows.append(found)
    return FitRows(rows=tuple(rows), unused=tuple(unused))


def _measured(predictor: Predictor, case: EvidenceCase | str, *, named: bool) -> Measured | str:
    if isinstance(case, str):
        return case
    if not case.setup.own_stack and not named:
        return "no training stack is known for its software; name one with --stack"
    try:
        prepared = predictor.prepared(case)
        prepared.times_s(case.setup.efficiency)
    except RowFault as fault:
        return str(fault)
    return Measured(
        id=case.row.id,
        configuration=case.configuration,
        measured_s=case.told.measured_s,
        scatter=ASSUMED_SCATTER if _is_open(case.assumed) else ROW_SCATTER,
        prepared=prepared,
        efficiency=case.setup.efficiency,
    )


def _is_open(assumed: Sequence[str]) -> bool:
    return any(what.startswith(_OPEN) for what in assumed)
