"""Scaling curves: one layout family on more and more nodes, as rows and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.units import counted
from trnbench.show.charts.record import PointChart
from trnbench.show.charts.text import first_chart
from trnbench.show.report import Column, Report, columns, draw_rows
from trnbench.show.text_table import Style
from trnbench.verbs.compare.scaling_answer import ScalingAnswer, ScalingCurve
from trnbench.verbs.quotes.charts import speed_chart
from trnbench.verbs.quotes.text import layout_text, run_text


def scaling_report(
    answer: ScalingAnswer, inputs: Mapping[str, object], *, plot: bool = False
) -> Report:
    """Return the report of scaling curves, a row for each point."""
    return Report(
        verb="compare",
        inputs=inputs,
        rows=answer.rows(),
        columns=_columns(answer),
        summary={
            "scaling": answer.scaling,
            "families": {
                curve.instance: curve.family.plain if curve.family else None
                for curve in answer.curves
            },
            "complete": answer.complete,
            "conventions": {
                "efficiency": "throughput of a node over that of a node of the smallest cluster "
                "that runs",
                "scaling": "strong: the batch is that of the comparison on every cluster; weak: it "
                "grows with the nodes",
            },
        },
        people=lambda report, style: _draw(report, answer, plot, style),
        charts=(chart,) if (chart := _chart(answer.curves)).drawn else (),
    )


def _columns(answer: ScalingAnswer) -> tuple[Column, ...]:
    weak = ("global_batch",) if answer.scaling == "weak" else ()
    return (
        *columns("instance", "nodes", "dp", *weak),
        *columns("step_time_s", "tokens_per_s", "mfu", spare=True),
        *columns("efficiency"),
        *columns("days", interval=True),
        *columns("cost_usd"),
        *columns("purchase", spare=True),
        *columns("feasible"),
    )


def _draw(report: Report, answer: ScalingAnswer, plot: bool, style: Style) -> str:
    first = next((quote for curve in answer.curves for quote in curve.points), None)
    named = run_text(answer.model, first) if first else answer.model
    how = {
        "strong": "strong scaling: the same batch on every cluster",
        "weak": "weak scaling: the batch grows with the nodes",
    }[answer.scaling]
    heading = [style.strong(named), how]
    heading += [
        f"{curve.instance}: {layout_text(curve.family)} on {counted(curve.nodes, 'node')}, "
        "replicas vary"
        for curve in answer.curves
        if curve.family is not None
    ]
    blocks = ["\n".join(heading)]
    if report.rows:
        blocks.append(draw_rows(report, style))
    if plot:
        blocks.append(first_chart(report, style))
    reasons = dict.fromkeys(
        f"{quote.instance} on {quote.nodes:,}: {reason}"
        for curve in answer.curves
        for quote in curve.points
        for reason in quote.reasons
    )
    blocks.append(style.lines(reasons))
    if not answer.complete:
        blocks.append("interrupted: not everything was looked at")
    return "\n\n".join(block for block in blocks if block)


def _chart(curves: Sequence[ScalingCurve]) -> PointChart:
    """Samples per second over nodes, and how they would grow if nodes were equally fast."""
    points = (
        (one.instance, [(float(q.nodes), q.samples_per_s or 0.0) for q in one.running])
        for one in curves
    )
    return speed_chart(points, "speed by nodes", "samples/s", ideal=True)
