"""What the Evidence view asks; answered in a process of its own, nothing here knows textual."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trnbench.report.report import Column, Report
from trnbench.units import Dimension

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.tui.work_process import Hooks

COLUMNS = (
    Column(key="id", title="id"),
    Column(key="set", title="set"),
    Column(key="measured_s", title="measured", dimension=Dimension.SECONDS, own_prefix=True),
    Column(key="predicted_s", title="predicted", dimension=Dimension.SECONDS, own_prefix=True),
    Column(key="error", title="error", dimension=Dimension.RATIO, digits=3),
    Column(key="fitted", title="fitted"),
    Column(key="low_s", title="low", dimension=Dimension.SECONDS, own_prefix=True),
    Column(key="high_s", title="high", dimension=Dimension.SECONDS, own_prefix=True),
    Column(key="model", title="model"),
    Column(key="nodes", title="nodes"),
    Column(key="size_bytes", title="size", dimension=Dimension.BYTES, own_prefix=True),
    Column(key="calibration", title="calibration"),
    Column(key="reason", title="reason"),
)
CLAIM_COLUMNS = (
    Column(key="verdict", title="verdict"),
    Column(key="claim", title="claim"),
    Column(key="says", title="what specs, prices or model say"),
    Column(key="text", title="what is claimed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
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
    errors: tuple[Errors, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsFound:
    """Claims with verdicts."""

    report: Report


def evidence_rows(catalog: Catalog, sets: tuple[str, ...], hooks: Hooks) -> EvidenceFound:
    """Return the shipped measurements beside what the models say."""
    from trnbench import app
    from trnbench.report.validation import validation_report

    sections = app.validate_evidence(catalog, sets=sets, progress=hooks.progress)
    report = validation_report(sections, {"sets": sets})
    errors = [
        Errors(
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
    return EvidenceFound(report=replace(report, columns=COLUMNS, people=None), errors=tuple(errors))


def claim_rows(catalog: Catalog, price_date: datetime.date, hooks: Hooks) -> ClaimsFound:
    """Return what vendors claim, with verdicts."""
    from trnbench import app
    from trnbench.report.claims import claims_report

    claims = app.examine_claims(catalog, price_date=price_date, progress=hooks.progress)
    report = claims_report(claims, {"price_date": price_date.isoformat()})
    return ClaimsFound(report=replace(report, columns=CLAIM_COLUMNS, people=None))
