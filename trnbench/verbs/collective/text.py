"""Collectives as people and machines read them: sweep table, link loads, plot, trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.units import Dimension, counted, show, significant, unit_scale
from trnbench.show.drawing import loaded_torus
from trnbench.show.plot import PlotAxis, PlotSeries, log_plot
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.text_table import Style
from trnbench.show.trace import trace
from trnbench.verbs.collective.answer import CollectiveAnswer

GIGABYTES_PER_S = unit_scale("GB/s", Dimension.BYTES_PER_S)
BUSIEST = 12
"""Links that the list of the busiest holds."""


def collective_report(
    answers: Sequence[CollectiveAnswer],
    inputs: Mapping[str, object],
    *,
    links: bool = False,
    plot: bool = False,
) -> Report:
    """Return the report of some collectives, a row each."""
    several = len({(a.op, a.instance, a.nodes) for a in answers}) > 1
    together = any(a.together_s for a in answers)
    return Report(
        verb="collective",
        inputs=inputs,
        rows=tuple(answer.row(links=links) for answer in answers),
        columns=(
            *(columns("op", "instance", "nodes") if several else ()),
            *columns("size_bytes"),
            *columns("elements", "dtype", "engine", spare=True),
            *columns("time_s", *(["together_s"] if together else [])),
            *columns("algbw_bytes_per_s", "busbw_bytes_per_s"),
            *columns("of_bound", spare=True),
            *columns("algorithm", *(["check"] if any(a.check for a in answers) else [])),
        ),
        summary={
            "busbw": "algbw x 2(r-1)/r for all-reduce, x (r-1)/r for all-gather, reduce-scatter "
            "and all-to-all, x 1 for the others; r: ranks of the group",
            "feasible": sum(answer.feasible for answer in answers),
            "rows": len(answers),
        },
        people=lambda report, style: _draw(report, answers, links, plot, style),
    )


def collective_trace(answers: Sequence[CollectiveAnswer]) -> bytes:
    """Return the Perfetto trace of what was played."""
    return trace([span for answer in answers for span in answer.spans])


def _draw(
    report: Report,
    answers: Sequence[CollectiveAnswer],
    links: bool,
    plot: bool,
    style: Style,
) -> str:
    several = len({(a.op, a.instance, a.nodes, a.ranks, a.group_size) for a in answers}) > 1
    what = "several collectives" if several else _heading(answers[0])
    heading = f"{what}; GB/s are 1e9 bytes/s"
    blocks = [style.strong(heading), draw_rows(report, style)]
    notes = dict.fromkeys(note for answer in answers for note in _notes(answer))
    if notes:
        blocks.append(style.lines(notes))
    if links:
        largest = {(a.op, a.instance, a.nodes): a for a in answers if a.links}
        blocks += [_link_block(answer, style) for answer in largest.values()]
    if plot:
        blocks.append(_busbw_plot([a for a in answers if a.feasible], style))
    return "\n\n".join(blocks)


def _heading(answer: CollectiveAnswer) -> str:
    where = f"{answer.op} on {counted(answer.nodes, 'node')} of {answer.instance}"
    if not answer.group_size:
        return where
    groups = counted(answer.ranks // answer.group_size, "group")
    return f"{where}: {groups} of {counted(answer.group_size, 'rank')}"


def _notes(answer: CollectiveAnswer) -> list[str]:
    notes = [f"no: {reason}" for reason in answer.reasons]
    notes += [f"warning: {warning}" for warning in answer.warnings]
    notes += [f"{answer.algorithm}, not {other}" for other in answer.passed_over]
    if answer.feasible:
        notes.append(f"{answer.instance}: calibration {answer.stack}, {answer.evidence.word}")
    return notes


def _link_block(answer: CollectiveAnswer, style: Style) -> str:
    size = show(answer.size_bytes, Dimension.BYTES)
    rows = (
        (link.name, link.level, f"{100 * link.busy:.1f}%", show(link.size_bytes, Dimension.BYTES))
        for link in answer.links[:BUSIEST]
    )
    table = style.table(("link", "level", ">busy", ">carried"), rows, "  ")
    heading = f"Busiest of {len(answer.links)} links, {answer.op} of {size} on {answer.instance}"
    drawn = [
        f"{torus.level}: share of the time each link is busy, the busier direction, %\n"
        + "\n".join(f"    {line}" for line in loaded_torus(torus.shape, torus.right, torus.below))
        for torus in answer.tori
    ]
    return "\n\n".join([style.strong(heading), table, *drawn])


def _busbw_plot(answers: Sequence[CollectiveAnswer], style: Style) -> str:
    labels = dict.fromkeys((a.op, a.instance, a.nodes, a.engine) for a in answers)
    series = [
        PlotSeries(
            label=f"{op} {instance}:{nodes}, {engine}",
            points=tuple(
                (a.size_bytes, a.busbw_bytes_per_s)
                for a in answers
                if (a.op, a.instance, a.nodes, a.engine) == (op, instance, nodes, engine)
                and a.busbw_bytes_per_s
            ),
        )
        for op, instance, nodes, engine in labels
    ]
    return log_plot(
        series,
        PlotAxis(title="size", text=lambda v: show(v, Dimension.BYTES, digits=2)),
        PlotAxis(title="busbw, GB/s", text=lambda v: significant(v / GIGABYTES_PER_S.factor, 2)),
        width=min(style.width, 100),
    )
