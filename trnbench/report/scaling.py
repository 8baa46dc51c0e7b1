"""Scaling curves: one layout family on more and more nodes, as rows and as a plot."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trnbench.report.plot import Axis, Series, log_plot
from trnbench.report.quote import DAY_S, Quote, row_of_quote
from trnbench.report.quote_text import layout_text, span_text, tokens_text
from trnbench.report.report import Column, Report, Row, draw_rows
from trnbench.report.text_table import Style, wrap
from trnbench.report.train_answer import Setting
from trnbench.units import Dimension, scale_for, show

Scaling = Literal["strong", "weak"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One instance type: a layout family, whose replicas grow with the nodes, on each of them.

    `family` is the layout that the comparison takes, on `nodes`; None where the model never runs.
    """

    instance: str
    nodes: int
    family: Setting | None
    points: tuple[Quote, ...]

    @property
    def running(self) -> tuple[Quote, ...]:
        """The points at which it runs."""
        return tuple(quote for quote in self.points if quote.step.step is not None)

    def efficiency(self, quote: Quote) -> float | None:
        """Return the throughput of a node over that of a node of the smallest cluster."""
        mine = _rate(quote)
        if mine is None:
            return None
        first = self.running[0]
        return mine / quote.nodes / ((_rate(first) or mine) / first.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingAnswer:
    """Scaling of a model on some instance types; the batch grows with the nodes if it is weak."""

    model: str
    scaling: Scaling
    curves: tuple[Curve, ...]
    complete: bool

    @property
    def positive(self) -> bool:
        """Whether every instance type runs the model on some of its clusters."""
        return bool(self.curves) and all(curve.running for curve in self.curves)


def scaling_report(
    answer: ScalingAnswer, inputs: Mapping[str, object], *, plot: bool = False
) -> Report:
    """Return the report of scaling curves, a row for each point."""
    report = Report(
        verb="compare",
        inputs=inputs,
        rows=tuple(_row(answer, curve, quote) for curve in answer.curves for quote in curve.points),
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
    )
    return replace(report, people=functools.partial(_draw, report, answer, plot))


def _rate(quote: Quote) -> float | None:
    step = quote.step
    return None if step.step is None else step.per_s(step.step.step_time_s)


def _row(answer: ScalingAnswer, curve: Curve, quote: Quote) -> Row:
    return {
        **row_of_quote(quote),
        "scaling": answer.scaling,
        "efficiency": curve.efficiency(quote),
    }


def _columns(answer: ScalingAnswer) -> tuple[Column, ...]:
    weak = (Column(key="global_batch", title="batch"),) if answer.scaling == "weak" else ()
    return (
        Column(key="instance", title="instance"),
        Column(key="nodes", title="nodes"),
        Column(key="dp", title="dp"),
        *weak,
        Column(key="step_time_s", title="step (s)", spare=True),
        Column(key="tokens_per_s", title="tokens/s", spare=True),
        Column(key="mfu", title="MFU", dimension=Dimension.RATIO, digits=3, spare=True),
        Column(key="efficiency", title="efficiency", dimension=Dimension.RATIO, digits=3),
        Column(key="days", title="days"),
        Column(key="cost_usd", title="cost", dimension=Dimension.USD),
        Column(key="purchase", title="purchase", spare=True),
        Column(key="feasible", title="runs"),
    )


def _draw(report: Report, answer: ScalingAnswer, plot: bool, style: Style) -> str:
    first = next((quote for curve in answer.curves for quote in curve.points), None)
    length = f", {tokens_text(first)}" if first else ""
    how = {
        "strong": "strong scaling: the same batch on every cluster",
        "weak": "weak scaling: the batch grows with the nodes",
    }[answer.scaling]
    heading = [style.strong(f"{answer.model}{length}"), how]
    heading += [
        f"{curve.instance}: {layout_text(curve.family)} on {curve.nodes:,} nodes, replicas vary"
        for curve in answer.curves
        if curve.family is not None
    ]
    blocks = ["\n".join(heading)]
    shown = []
    for row, quote in zip(
        report.rows, (quote for curve in answer.curves for quote in curve.points), strict=True
    ):
        elapsed = quote.elapsed_s
        days = span_text(elapsed.scaled(1 / DAY_S) if elapsed else None)
        shown.append({**row, "days": days})
    if shown:
        blocks.append(draw_rows(replace(report, rows=tuple(shown)), style))
    if plot:
        blocks.append(_plot(answer.curves, style))
    reasons = dict.fromkeys(
        f"{quote.instance} on {quote.nodes:,}: {reason}"
        for curve in answer.curves
        for quote in curve.points
        for reason in quote.reasons
    )
    blocks.append("\n".join(wrap(reason, style.width, "") for reason in reasons))
    if not answer.complete:
        blocks.append("interrupted: not everything was looked at")
    return "\n\n".join(block for block in blocks if block)


def _plot(curves: Sequence[Curve], style: Style) -> str:
    series: list[Series] = []
    for curve in curves:
        points = [(float(quote.nodes), _rate(quote) or 0.0) for quote in curve.running]
        series.append(Series(label=curve.instance, points=tuple(points)))
    for curve in curves:
        if len(curve.running) > 1:
            first, last = curve.running[0], curve.running[-1]
            rate = _rate(first) or 0.0
            ideal = (float(last.nodes), rate * last.nodes / first.nodes)
            line = ((float(first.nodes), rate), ideal)
            series.append(Series(label=f"{curve.instance}, ideal", points=line, joined=True))
    return log_plot(
        series,
        Axis(title="nodes", text=lambda nodes: f"{nodes:,.0f}"),
        Axis(title="samples/s", text=lambda rate: show(rate, Dimension.COUNT, digits=3)),
        width=style.width,
    )


def cost_plot(quotes: Sequence[Quote], style: Style) -> str:
    """Return a plot of money over days, a mark for each instance type."""
    names = dict.fromkeys(quote.instance for quote in quotes)
    series = [
        Series(
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
        Axis(title="days", text=lambda days: f"{days:.3g}"),
        Axis(title=scale.unit, text=lambda usd: f"{usd / scale.factor:.3g}"),
        width=style.width,
    )
