"""Scaling curves: one layout family on more and more nodes, as rows and as a plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trnbench.answers.quote import Quote
from trnbench.answers.scaling import ScalingAnswer, ScalingCurve
from trnbench.facts.units import DAY_S, Dimension, counted, scale_for, show
from trnbench.report.quote_text import layout_text, run_text
from trnbench.show.plot import PlotAxis, PlotSeries, log_plot
from trnbench.show.report import Column, Report, columns, draw_rows
from trnbench.show.text_table import Style


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
        blocks.append(_plot(answer.curves, style))
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


def _plot(curves: Sequence[ScalingCurve], style: Style) -> str:
    series: list[PlotSeries] = []
    for curve in curves:
        points = [(float(quote.nodes), quote.samples_per_s or 0.0) for quote in curve.running]
        series.append(PlotSeries(label=curve.instance, points=tuple(points)))
    for curve in curves:
        if len(curve.running) > 1:
            first, last = curve.running[0], curve.running[-1]
            rate = first.samples_per_s or 0.0
            ideal = (float(last.nodes), rate * last.nodes / first.nodes)
            line = ((float(first.nodes), rate), ideal)
            series.append(PlotSeries(label=f"{curve.instance}, ideal", points=line, joined=True))
    return log_plot(
        series,
        PlotAxis(title="nodes", text=lambda nodes: f"{nodes:,.0f}"),
        PlotAxis(title="samples/s", text=lambda rate: show(rate, Dimension.COUNT, digits=3)),
        width=style.width,
    )


def cost_plot(quotes: Sequence[Quote], style: Style) -> str:
    """Return a plot of money over days, a mark for each instance type."""
    names = dict.fromkeys(quote.instance for quote in quotes)
    series = [
        PlotSeries(
            label=name,
            points=tuple(
                (quote.elapsed_s.value / DAY_S, quote.cost_usd.value)
                for quote in quotes
                if quote.instance == name
                and quote.elapsed_s
                and math.isfinite(quote.elapsed_s.value)
                and quote.cost_usd
            ),
        )
        for name in names
    ]
    dearest = max((quote.cost_usd.value for quote in quotes if quote.cost_usd), default=1.0)
    scale = scale_for(dearest, Dimension.USD)
    return log_plot(
        series,
        PlotAxis(title="days", text=lambda days: f"{days:.3g}"),
        PlotAxis(title=scale.unit, text=lambda usd: f"{usd / scale.factor:.3g}"),
        width=style.width,
    )
