"""Two kept answers beside each other, as people and machines read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError
from trnbench.facts.records import replace
from trnbench.facts.units import Dimension
from trnbench.show.charts.record import Bar, BarChart, ChartAxis, parts_of
from trnbench.show.figures import figure_of
from trnbench.show.report import Report, cell_text, columns, figure_or_key
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style
from trnbench.store.difference import MEAN_ERROR, PARTS, Against, MovedFigure, held_against
from trnbench.store.runs import KeptRun
from trnbench.verbs.runs.keeping import kept_answer
from trnbench.verbs.runs.run import answered_run
from trnbench.verbs.runs.text import run_row

if TYPE_CHECKING:
    from trnbench.store.difference import RunDiff

FROM: Mapping[str, str] = {
    "prices": "prices, own prices, discount and price date",
    "calibration": "calibrations of chips, stacks and collectives",
    "specs": "chips, instances, models and other data files",
    "question": "what was asked",
    "code": "the program: what is left when today's asks both again",
}
_MOST, _MOST_BARS = 40, 12


def diff_report(diff: RunDiff) -> Report:
    """Return the report of what moved between two runs, a row a figure."""
    return Report(
        verb="runs-diff",
        inputs={"first": diff.first.id, "second": diff.second.id},
        rows=tuple(map(_row, diff.moved)),
        columns=columns("row", "figure", "before", "after", "change", "by"),
        summary={
            "verdict": diff_verdict(diff),
            "first": run_row(diff.first),
            "second": run_row(diff.second),
            "options": [
                {"option": name, "before": before, "after": two}
                for name, before, two in diff.options
            ],
            "files": diff.files,
            "only_first": diff.only_first,
            "only_second": diff.only_second,
            "unexplained": diff.unexplained or None,
            "conventions": {f"from_{part}": text for part, text in FROM.items()},
        },
        notes=tuple(_notes(diff)),
        people=lambda report, style: _draw(report, diff, style),
        charts=(moved,) if (moved := _moved_chart(diff)).bars else (),
    )


def _moved_chart(diff: RunDiff) -> BarChart:
    """The largest changes of figures, in parts of what they were."""
    changed = [(figure, figure.change) for figure in diff.moved if figure.change is not None]
    largest = sorted(changed, key=lambda pair: -abs(pair[1]))[:_MOST_BARS]
    return BarChart(
        title="change of figures",
        caption="in parts of what they were in the first answer, the largest changes first",
        axis=ChartAxis(title="change", dimension=Dimension.RATIO),
        bars=tuple(
            Bar(
                label=f"{figure.label}: {_title(figure)}",
                start=min(change, 0.0),
                parts={"change": abs(change)},
            )
            for figure, change in largest
        ),
        parts=parts_of(["change"]),
        missing=f"{len(changed) - len(largest)} smaller" if len(changed) > len(largest) else "",
    )


def diff_verdict(diff: RunDiff) -> str:
    """Return in a sentence what moved most, and from what."""
    if not diff.moved:
        gone = bool(diff.only_first or diff.only_second)
        return "the rows that both have are the same" if gone else "the same answer"
    most = max(diff.moved, key=lambda figure: (_weight(figure), figure.change is not None))
    change = most.change
    if change is None:
        text = f"{most.label}: {_title(most)} {_value(most.before, most)} -> "
        text += _value(most.after, most)
    else:
        text = f"{most.label}: {_title(most)} {_percent(change)}"
    return f"{text}{_because(most)}; {len(diff.moved):,} figures differ"


def _weight(figure: MovedFigure) -> tuple[int, float]:
    # Money and time are what is asked first.
    first = ("cost_usd", "days", "step_time_s", "time_s", "error", "final_loss")
    return (figure.key in first, abs(figure.change or 0.0))


def _because(figure: MovedFigure) -> str:
    if figure.parts and figure.before:
        reasons = [
            f"{part} {_percent(add / abs(figure.before))}" for part, add in figure.parts.items()
        ]
        return f" ({', '.join(reasons)})"
    return f" ({', '.join(figure.by)})" if figure.by else ""


def _row(figure: MovedFigure) -> Row:
    return {
        **cells(figure, "row=label figure=key before after change"),
        "by": list(figure.by),
        **{f"from_{part}": figure.parts.get(part) for part in PARTS},
    }


def _notes(diff: RunDiff) -> list[str]:
    lines = [
        f"--{name.replace('_', '-')}: {_plain(before)} -> {_plain(two)}"
        for name, before, two in diff.options
    ]
    lines += [f"{section}: {', '.join(names)} differ" for section, names in diff.files.items()]
    if diff.first.version != diff.second.version:
        lines.append(f"trnbench: {diff.first.version} -> {diff.second.version}")
    for names, run in ((diff.only_first, diff.first), (diff.only_second, diff.second)):
        if names:
            lines.append(f"only in {run.tag or run.id}: {', '.join(names)}")
    if diff.unexplained:
        lines.append(f"what each part added is not known: {diff.unexplained}")
    return lines


def _draw(report: Report, diff: RunDiff, style: Style) -> str:
    runs = f"- {_told(diff.first)}\n+ {_told(diff.second)}"
    blocks = [f"{style.strong(style.wrap(diff_verdict(diff)))}\n{runs}"]
    if notes := _notes(diff):
        blocks.append(style.lines(notes))
    if diff.moved:
        shown = sorted(diff.moved, key=_weight, reverse=True)[:_MOST]
        shown = [figure for figure in diff.moved if figure in shown]
        blocks.append(_table(shown, style))
        if len(diff.moved) > len(shown):
            left = len(diff.moved) - len(shown)
            blocks.append(style.faint(f"{left:,} more (--format csv has all)"))
    parts = dict.fromkeys(part for figure in diff.moved for part in figure.by)
    if parts:
        sources = "; ".join(f"{part}: {FROM[part]}" for part in parts)
        order = ", ".join(PARTS)
        blocks.append(style.faint(style.wrap(f"{sources}; exchanged in the order {order}")))
    return "\n\n".join(blocks)


def _table(shown: Sequence[MovedFigure], style: Style) -> str:
    parts = [part for part in PARTS if any(part in figure.by for figure in shown)]
    rows = (
        (
            *(
                figure.label,
                _title(figure),
                _value(figure.before, figure),
                _value(figure.after, figure),
            ),
            "" if figure.change is None else _percent(figure.change),
            *(_part(figure, part) for part in parts),
        )
        for figure in shown
    )
    figures = (">before", ">after", ">change", *(f">{part}" for part in parts))
    return style.table(("row", "figure", *figures), rows)


def _part(figure: MovedFigure, part: str) -> str:
    if part in figure.parts and figure.before:
        return _percent(figure.parts[part] / abs(figure.before))
    return "changed" if part in figure.by else ""


def _percent(share: float) -> str:
    return f"{100 * share:+.3g} %"


def _title(figure: MovedFigure) -> str:
    return figure_or_key(figure.key).title or figure.key


def _value(value: Any, figure: MovedFigure) -> str:  # noqa: ANN401 - a cell
    return cell_text(value, figure_or_key(figure.key))


def _plain(value: Any) -> str:  # noqa: ANN401 - an option
    if value is None:
        return "not given"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _told(run: KeptRun) -> str:
    when = run.started_at.replace("T", " ").removesuffix("Z")
    tag = f" ({run.tag})" if run.tag else ""
    return f"{run.id}{tag}  {when}  trnbench {run.version}  {run.command}"


def compared_with(report: Report, name: str, allowed: float | None) -> tuple[Report, bool]:
    """Return a report beside the kept answer of a name, and whether it got worse than allowed."""
    base = answered_run(name)
    if base.run.verb != report.verb:
        raise InputError(f"--against: {name} is of {base.run.verb}, and this is {report.verb}")
    against = held_against(base.answer, base.run, kept_answer(report), allowed)
    return with_comparison(report, against), against.regressed


def with_comparison(report: Report, against: Against) -> Report:
    """Return the report with what it was held against, in every format but rows alone."""
    lines = _against_lines(against)
    people = report.people
    assert people is not None
    return replace(
        report,
        people=lambda _, style: f"{people(report, style)}\n\n{style.lines(lines)}",
        notes=(*report.notes, *lines),
        summary={**report.summary, "against": _against_cells(against)},
    )


def _against_lines(against: Against) -> list[str]:
    run = against.run
    when = f" of {run.started_at[:10]}" if run.started_at else ""
    lines = [f"against {run.tag or run.id}{when} (trnbench {run.version}):"]
    for figure in against.figures:
        points = figure.key == MEAN_ERROR
        title = MEAN_ERROR if points else figure_of(figure.key).title
        was, now = (
            f"{100 * value:.3g} %" if points else cell_text(value, figure_of(figure.key))
            for value in (figure.before, figure.after)
        )
        unit = "points" if points else "%"
        mark = ": worse than allowed" if figure in against.failed else ""
        lines.append(
            f"{figure.label}: {title} {was} -> {now} ({100 * figure.by:+.3g} {unit}){mark}"
        )
    lines += [f"{label}: no longer feasible" for label in against.lost]
    if against.allowed is not None:
        allowed = f"--fail-over {100 * against.allowed:g}%"
        lines.append(f"{'fails' if against.regressed else 'within'} {allowed}")
    return lines


def _against_cells(against: Against) -> Mapping[str, object]:
    return {
        **cells(against, "run=run.id tag=run.tag version=run.version fail_over=allowed regressed"),
        "lost": list(against.lost),
        "figures": [
            cells(figure, "row=label figure=key before after change=by")
            for figure in against.figures
        ],
    }
