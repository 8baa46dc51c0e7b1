"""What the Evidence view asks; answered in a process of its own, nothing here knows textual."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trnbench.report.report import Report, columns

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.evidence.comparison import Comparison
    from trnbench.tui.work_process import WorkHooks

COLUMNS = columns(
    *("id", "set", "measured_s", "predicted_s", "low_s", "high_s", "error", "fitted", "model"),
    *("nodes", "size_bytes", "calibration", "reason"),
)
CLAIM_COLUMNS = columns("verdict", "claim", "says", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetErrors:
    """Statistics of the rows of one set: how many, and mean, median and largest error."""

    name: str
    rows: int
    mean: float
    median: float
    largest: float
    bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFound:
    """Measurements beside predictions, and their statistics."""

    report: Report
    comparisons: tuple[Comparison, ...]
    errors: tuple[SetErrors, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsFound:
    """Claims with verdicts."""

    report: Report


def evidence_rows(catalog: Catalog, sets: tuple[str, ...], hooks: WorkHooks) -> EvidenceFound:
    """Return the shipped measurements beside what the models say."""
    from trnbench import app
    from trnbench.report.validation import validation_report

    sections = app.validate(set=sets, catalog=catalog, progress=hooks.progress)
    report = validation_report(sections, {"sets": sets})
    errors = [
        SetErrors(
            name=f"{section.name}, {name}",
            rows=one.rows,
            mean=one.mape,
            median=one.median,
            largest=one.largest,
            bias=one.bias,
        )
        for section in sections
        for name, one in section.summary.errors.items()
    ]
    return EvidenceFound(
        report=replace(report, columns=COLUMNS, people=None),
        comparisons=tuple(row for section in sections for row in section.rows),
        errors=tuple(errors),
    )


def claim_rows(catalog: Catalog, price_date: datetime.date, hooks: WorkHooks) -> ClaimsFound:
    """Return what vendors claim, with verdicts."""
    from trnbench import app
    from trnbench.report.claims import claims_report

    claims = app.claims(price_date=price_date, catalog=catalog, progress=hooks.progress)
    report = claims_report(claims, {"price_date": price_date.isoformat()})
    return ClaimsFound(report=replace(report, columns=CLAIM_COLUMNS, people=None))
