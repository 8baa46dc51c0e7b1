"""An answer held against a kept one: found, compared, and as people and machines read it."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.errors import InputError
from trnbench.facts.records import replace
from trnbench.show.figures import figure_of
from trnbench.show.report import Report, cell_text
from trnbench.show.row import cells
from trnbench.store.difference import MEAN_ERROR, Against, held_against
from trnbench.verbs.runs.keeping import kept_answer
from trnbench.verbs.runs.run import answered_run


def compared_with(report: Report, name: str, allowed: float | None) -> tuple[Report, bool]:
    """Return a report beside the kept answer of a name, and whether it got worse than allowed."""
    base = answered_run(name)
    if base.run.verb != report.verb:
        raise InputError(f"--against: {name} is of {base.run.verb}, and this is {report.verb}")
    against = held_against(base.answer, base.run, kept_answer(report), allowed)
    return with_comparison(report, against), against.regressed


def with_comparison(report: Report, against: Against) -> Report:
    """Return the report with what it was held against, in every format but rows alone."""
    lines = _lines(against)
    people = report.people
    assert people is not None
    return replace(
        report,
        people=lambda _, style: f"{people(report, style)}\n\n{style.lines(lines)}",
        notes=(*report.notes, *lines),
        summary={**report.summary, "against": _plain(against)},
    )


def _lines(against: Against) -> list[str]:
    run = against.run
    when = f" of {run.started_at[:10]}" if run.started_at else ""
    lines = [f"against {run.tag or run.id}{when} (trnbench {run.version}):"]
    for one in against.figures:
        points = one.key == MEAN_ERROR
        title = MEAN_ERROR if points else figure_of(one.key).title
        was, now = (
            f"{100 * value:.3g} %" if points else cell_text(value, figure_of(one.key))
            for value in (one.before, one.after)
        )
        unit = "points" if points else "%"
        mark = ": worse than allowed" if one in against.failed else ""
        lines.append(f"{one.label}: {title} {was} -> {now} ({100 * one.by:+.3g} {unit}){mark}")
    lines += [f"{label}: no longer feasible" for label in against.lost]
    if against.allowed is not None:
        allowed = f"--fail-over {100 * against.allowed:g}%"
        lines.append(f"{'fails' if against.regressed else 'within'} {allowed}")
    return lines


def _plain(against: Against) -> Mapping[str, object]:
    return {
        **cells(against, "run=run.id tag=run.tag version=run.version fail_over=allowed regressed"),
        "lost": list(against.lost),
        "figures": [
            cells(one, "row=label figure=key before after change=by") for one in against.figures
        ],
    }
