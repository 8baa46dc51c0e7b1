"""Why measured steps take other than predicted, as people and machines read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.evidence.explain.experiment import TellingRun
from trnbench.evidence.explain.explanation import Explanation
from trnbench.evidence.explain.observed import RunCompared, StepFigure
from trnbench.facts.records import asdict, replace
from trnbench.facts.units import Dimension, show
from trnbench.show.charts.record import Bar, BarChart, axis_of
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.row import Interval
from trnbench.show.text_table import Style, percent
from trnbench.verbs.explain.answer import (
    cause_row,
    device_row,
    figure_row,
    first_line,
    says,
    step_row,
)
from trnbench.verbs.quotes.notes import assumed_block

CONVENTIONS = {
    "gap": "measured / predicted - 1",
    "probability": "that the cause is at work, alone or with one other, by all rows and the prior "
    "of the table of causes",
    "explained": "the part of the gap that the cause explains, and with the second cause",
    "change": "what fits best of a cause",
    "tied": "the steps do not decide between these causes",
}
_SHOWN = 6
"""Causes that people see, and how likely the last of them is; machines read all."""
_LEAST = 0.001
_DRAWN = 24
"""Steps that the picture shows, the first ones."""


def explain_report(answer: Explanation, inputs: Mapping[str, object]) -> Report:
    """Return the report of an explanation, a row for each cause, the likeliest first."""
    measured = answer.measured
    return Report(
        verb="explain",
        inputs=inputs,
        rows=tuple(cause_row(one, tied=one in answer.tied) for one in answer.suspects),
        columns=(
            *columns("cause", "change", "probability", "explained"),
            *columns("beside", spare=True),
        ),
        summary={
            "conventions": CONVENTIONS,
            "verdict": answer.verdict,
            "says": says(answer),
            "nothing_probability": answer.nothing,
            "steps": [figure_row(figure) for figure in measured.figures],
            "tied": [one.cause.id for one in answer.tied],
            "telling_run": None if answer.telling is None else _plain(answer.telling),
            "devices": [device_row(one, measured.figures) for one in measured.devices],
            "assumed": [one.plain for one in measured.assumed],
            "read": list(measured.remarks),
            "unused": [{"id": name, "reason": reason} for name, reason in measured.unused],
        },
        people=lambda report, style: _draw(report, answer, style),
        charts=(chart,) if not (chart := steps_figure(measured.figures)).empty else (),
    )


def steps_figure(figures: Sequence[StepFigure]) -> BarChart:
    """Bars of predicted step times with their intervals, s, and strokes at the measured ones."""
    steps = [one for one in figures if one.quantity == "step"][:_DRAWN]
    seconds = [end for one in steps for end in (one.low, one.high, one.measured)]
    return BarChart(
        title="measured and predicted steps",
        caption="a bar a row: predicted, with its 80 % interval",
        axis=axis_of("step time", Dimension.SECONDS, seconds, kind="linear"),
        bars=tuple(
            Bar(
                label=one.step.id,
                estimate=Interval(value=one.predicted, low=one.low, high=one.high),
                limit=one.measured,
                strong=not one.inside,
            )
            for one in steps
        ),
        limit="measured",
    )


def _plain(run: TellingRun) -> dict[str, object]:
    return {**asdict(run), "by_cause": dict(run.by_cause)}


def verify_report(answer: RunCompared, inputs: Mapping[str, object], command: str) -> Report:
    """Return the first line of an explanation, a row for each step; `command` asks for the rest."""
    setup = answer.steps[0].step.ran.setup
    return Report(
        verb="verify",
        inputs=inputs,
        rows=tuple(map(step_row, answer.steps)),
        columns=columns(
            "id", "measured_s", "predicted_s", "low_s", "high_s", "difference", "verdict"
        ),
        summary={
            "as_predicted": answer.as_predicted,
            "model": setup.model.name,
            "on": f"{setup.platform.instance.name}:{setup.nodes}",
            "largest_terms": [
                {"term": name, "predicted_s": seconds} for name, seconds in answer.largest
            ],
            "explain": command,
            "remarks": answer.remarks,
        },
        people=lambda _, style: style.strong(style.wrap(first_line(answer))),
    )


def _draw(report: Report, answer: Explanation, style: Style) -> str:
    measured = answer.measured
    blocks = [style.strong(style.wrap(first_line(measured))), _steps(measured.figures, style)]
    doubts = dict.fromkeys((f.step.id, f.step.doubt) for f in measured.figures if f.step.doubt)
    blocks += [style.wrap(f"{name}: {doubt}") for name, doubt in doubts]
    if not measured.as_predicted:
        whole = sum(measured.terms.values())
        largest = ", ".join(
            f"{name} {show(value, Dimension.SECONDS, digits=4)} ({percent(value / whole)})"
            for name, value in measured.largest
        )
        blocks.append(style.wrap(f"Most of a predicted step: {largest}"))
    # A setting that nobody said explains more than a cause that is guessed.
    if measured.assumed:
        blocks.append(assumed_block(measured.assumed, style))
    if measured.unsaid:
        said = f"Say what ran, before any cause is looked for: {', '.join(measured.unsaid)}"
        blocks.append(style.wrap(said))
    blocks.append(style.strong(style.wrap(says(answer))))
    if answer.suspects:
        if answer.verdict == "as predicted":
            blocks.append("If something is wrong anyway, check first:")
        likely = sum(one.probability >= _LEAST for one in answer.suspects[:_SHOWN])
        blocks.append(draw_rows(replace(report, rows=report.rows[: max(likely, 1)]), style))
        if answer.verdict != "as predicted":
            blocks.append(_advice(answer, style))
    if measured.devices:
        blocks += [style.strong("What the devices did"), _devices(measured, style)]
    if answer.telling is not None:
        blocks.append(_telling(answer.telling, style))
    elif answer.verdict == "several fit":
        blocks.append(style.wrap(_NO_RUN))
    if measured.unused:
        blocks += [style.strong("Not used"), style.table(("id", "reason"), measured.unused, "  ")]
    return "\n\n".join(blocks)


_NO_RUN = (
    "No other layout of this cluster would separate them. Rows of other nodes, degrees and "
    "micro-batches would, or device times (device_s_per_microbatch, optimizer_s), or what is "
    "listed to try."
)


def _steps(figures: tuple[StepFigure, ...], style: Style) -> str:
    headings = ("row", "figure", ">measured", ">predicted", ">80 % interval", ">gap", ">inside")
    rows = []
    for figure in figures:
        unit = Dimension.BYTES if figure.quantity == "memory" else Dimension.SECONDS
        measured, predicted, low, high = (
            show(value, unit, digits=4)
            for value in (figure.measured, figure.predicted, figure.low, figure.high)
        )
        gap = percent(figure.measured / figure.predicted - 1, sign="+")
        inside = "yes" if figure.inside else "no"
        ends = f"{low} to {high}"
        rows.append((figure.step.id, figure.quantity, measured, predicted, ends, gap, inside))
    return style.table(headings, rows)


def _devices(answer: RunCompared, style: Style) -> str:
    """Return a line for each monitor or profile: how busy, of which seconds, with how much held."""
    lines = []
    for one in answer.devices:
        row = device_row(one, answer.figures)
        seconds = {
            name: show(value, Dimension.SECONDS, digits=3)
            for name in ("busy_s", "idle_s", "run_s")
            if isinstance(value := row[name], float)
        }
        parts = []
        if one.busy is not None:
            parts.append(f"busy {percent(one.busy)}")
        if "busy_s" in seconds:
            parts.append(f"{seconds['busy_s']} of a step at work, {seconds['idle_s']} waiting")
        if "run_s" in seconds:
            parts.append(f"{seconds['run_s']} for a run of the graph")
        parts += [f"{name} {percent(share)}" for name, share in one.shares]
        if one.memory_peak_bytes is not None:
            held = show(one.memory_peak_bytes, Dimension.BYTES, digits=4)
            parts.append(f"at most {held} in one")
        if one.errors:
            parts.append(f"{one.errors} executions failed")
        lines.append(style.wrap(f"{one.tool} ({one.path.name}): {'; '.join(parts)}", "  "))
    return "\n".join(lines)


def _advice(answer: Explanation, style: Style) -> str:
    """Return the signs of each possible cause, and the change that it calls for."""
    first = answer.suspects[0]
    wanted = answer.tied or (first,)
    names = [one.cause.id for one in wanted]
    if first.beside is not None and first.beside.cause.id not in names:
        wanted = (*wanted, *(s for s in answer.suspects if s.cause.id == first.beside.cause.id))
    lines = []
    for one in wanted:
        lines.append(style.strong(f"{one.cause.id}: {one.cause.title}"))
        lines.append(style.wrap(f"to see it: {one.cause.experiment}", "  "))
        lines.append(style.wrap(f"to change: {one.cause.remedy}", "  "))
    return "\n".join(lines)


def _telling(run: TellingRun, style: Style) -> str:
    times = [
        f"{show(time_s, Dimension.SECONDS, digits=4)} if {name}"
        for name, time_s in sorted(run.by_cause, key=lambda one: one[1])
    ]
    text = (
        f"To tell them apart, repeat {run.of} with {run.change}: {'; '.join(times)}; "
        f"{show(run.predicted_s, Dimension.SECONDS, digits=4)} without any"
    )
    return style.wrap(text)
