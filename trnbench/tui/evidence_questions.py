"""The questions of the Evidence view, answered in a process of their own; without textual."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from trnbench.facts.records import replace
from trnbench.show.report import columns
from trnbench.tui.found import TableFound

if TYPE_CHECKING:
    from trnbench.evidence.statistics import Errors
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks

COLUMNS = columns(
    *("id", "error", "measured_s", "predicted_s", "low_s", "high_s", "set", "fitted", "model"),
    *("nodes", "size_bytes", "calibration", "reason"),
)
CLAIM_COLUMNS = columns("verdict", "claim", "says", "text")


class EvidenceFound(TableFound):
    """Measurements and their predictions; `errors`: statistics by set and kind of row."""

    errors: dict[str, Errors]


def evidence_rows(catalog: Catalog, sets: tuple[str, ...], hooks: WorkHooks) -> EvidenceFound:
    """The shipped measurements, each with its prediction."""
    from trnbench.verbs.asking.command_lines import CommandQuestion
    from trnbench.verbs.validate.run import validate
    from trnbench.verbs.validate.text import validation_report

    sections = validate(set=sets, catalog=catalog, progress=hooks.progress)
    report = validation_report(sections, {"sets": sets})
    hooks.keep(catalog, CommandQuestion(verb="validate", options={"set": sets}), report, good=True)
    answers = [row for section in sections for row in section.rows]
    # What could not be predicted stands last: there is nothing to see in it but the reason.
    order = sorted(range(len(answers)), key=lambda number: answers[number].error is None)
    return EvidenceFound(
        report=replace(
            report,
            rows=tuple(report.rows[number] for number in order),
            columns=COLUMNS,
            people=None,
        ),
        answers=tuple(answers[number] for number in order),
        errors={
            f"{section.name}, {name}": errors
            for section in sections
            for name, errors in section.summary.errors.items()
        },
    )


def claim_rows(catalog: Catalog, price_date: datetime.date, hooks: WorkHooks) -> TableFound:
    """The claims of vendors, with verdicts."""
    from trnbench.verbs.claims.question import ClaimsQuestion
    from trnbench.verbs.claims.run import run
    from trnbench.verbs.claims.text import claims_report

    question = ClaimsQuestion(price_date=price_date).settled(catalog)
    report = claims_report(run(catalog, question, progress=hooks.progress), question.inputs())
    return TableFound(report=replace(report, columns=CLAIM_COLUMNS, people=None))
