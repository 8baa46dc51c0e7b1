"""The scaling use case: the layout that a comparison takes, with more and fewer replicas.

Everything but the replicas stays: their number is what the nodes leave. Strong scaling keeps the
global batch, weak scaling the batch of a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.units import counted
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.objective import Candidate
from trnbench.show.charts.record import PointChart
from trnbench.show.charts.text import first_chart
from trnbench.show.report import Column, Report, columns, draw_rows
from trnbench.show.row import Row
from trnbench.show.text_table import Style
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import row_of_market
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.charts import speed_chart
from trnbench.verbs.quotes.markets import Explored, explore_all
from trnbench.verbs.quotes.run import quote
from trnbench.verbs.quotes.text import layout_text, run_text

Scaling = Literal["strong", "weak"]


class ScalingCurve(Record):
    """One instance type: a layout family, whose replicas grow with the nodes, on each of them.

    `family` is the layout that the comparison takes, on `nodes`; None where the model never runs.
    """

    instance: str
    nodes: int
    family: PartialLayout | None
    points: tuple[Quote, ...]

    @property
    def running(self) -> tuple[Quote, ...]:
        return tuple(quote for quote in self.points if quote.step.step is not None)

    def efficiency(self, quote: Quote) -> float | None:
        """Return the throughput of a node over that of a node of the smallest cluster."""
        mine = quote.samples_per_s
        if mine is None:
            return None
        first = self.running[0]
        return mine / quote.nodes / ((first.samples_per_s or mine) / first.nodes)


class ScalingAnswer(Record):
    """Scaling of a model on some instance types; the batch grows with the nodes if it is weak."""

    model: str
    scaling: Scaling
    curves: tuple[ScalingCurve, ...]
    complete: bool

    @property
    def positive(self) -> bool:
        return bool(self.curves) and all(curve.running for curve in self.curves)

    def rows(self) -> tuple[Row, ...]:
        """Return the row of each point of each curve."""
        return tuple(
            {**quote.row(), "scaling": self.scaling, "efficiency": curve.efficiency(quote)}
            for curve in self.curves
            for quote in curve.points
        )


def scale_run(
    catalog: Catalog, request: CompareQuestion, scaling: Scaling, *, watch: Watch | None = None
) -> ScalingAnswer:
    """Return a curve for every instance type, over the numbers of nodes of the request."""
    if len(request.run.parts) > 1:
        raise InputError("a scaling curve is of one part of a run; give --tokens or --samples")
    if request.equal_cost:
        raise InputError("a scaling curve is over nodes, whatever they cost")
    explored = explore_all(catalog, request.run, watch=watch)
    return ScalingAnswer(
        model=request.run.model,
        scaling=scaling,
        curves=tuple(_curve(request, one, scaling) for one in explored),
        complete=len(explored) == len(request.run.instances)
        and all(one.complete for one in explored),
    )


def _curve(request: CompareQuestion, explored: Explored, scaling: Scaling) -> ScalingCurve:
    # With numbers of nodes as the footing, the largest cluster says which family it is.
    counts = request.run.counts_of(explored.name)
    nodes = counts[-1] if request.by_nodes else None
    start, _ = row_of_market(request, explored, nodes)
    if start.step.step is None:
        return ScalingCurve(instance=explored.name, nodes=start.nodes, family=None, points=(start,))
    family = start.step.layout
    points = tuple(_point(explored, start, count, scaling) for count in counts)
    return ScalingCurve(instance=explored.name, nodes=start.nodes, family=family, points=points)


def _point(explored: Explored, start: Quote, nodes: int, scaling: Scaling) -> Quote:
    family = start.step.layout
    ranks = nodes * start.step.ranks // start.nodes
    others = family.replica_ranks
    batch = family.degree("global_batch")
    reasons = []
    if nodes in explored.refused:
        reasons.append(explored.refused[nodes])
    if ranks % others:
        reasons.append(f"{ranks:,} ranks do not divide into replicas of {others:,} ranks")
    if scaling == "weak":
        if batch * nodes % start.nodes:
            reasons.append(
                f"a batch of {batch:,} on {start.nodes:,} nodes leaves none for {nodes:,}"
            )
        batch = batch * nodes // start.nodes
    if reasons:
        none = family.changed(dp=None, global_batch=None)
        empty = replace(start.step, nodes=nodes, ranks=ranks, layout=none, step=None, memory=None)
        return replace(
            start, nodes=nodes, steps=(empty,), elapsed_s=None, wall=None, cost_usd=None, bill=None
        ).refused(tuple(reasons))
    layouts: tuple[PartialLayout, ...] = (family.changed(dp=ranks // others, global_batch=batch),)
    way = Candidate(instance=explored.name, nodes=nodes, option=None, elapsed_s=0.0, cost_usd=None)
    return quote(explored, way, layouts=layouts)


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
