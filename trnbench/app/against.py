"""Use case of a regression check: an answer beside a kept one."""

from __future__ import annotations

from trnbench.app.keeping import kept_answer
from trnbench.app.runs import answered_run
from trnbench.errors import InputError
from trnbench.report.against import with_comparison
from trnbench.show.report import Report
from trnbench.store.against import held_against


def compared_with(report: Report, name: str, allowed: float | None) -> tuple[Report, bool]:
    """Return a report beside the kept answer of a name, and whether it got worse than allowed."""
    base = answered_run(name)
    if base.run.verb != report.verb:
        raise InputError(f"--against: {name} is of {base.run.verb}, and this is {report.verb}")
    against = held_against(base.answer, base.run, kept_answer(report), allowed)
    return with_comparison(report, against), against.regressed
