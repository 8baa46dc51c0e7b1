"""The pictures below a comparison: typed answers -> charts and bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnbench.tui.chart_data import ChartAxis, ChartData, ChartSeries, in_unit, number
from trnbench.tui.compare_questions import ClusterPoint
from trnbench.tui.widgets.bars import Bar, BarsData, letters_for
from trnbench.units import DAY_S, Dimension, show

if TYPE_CHECKING:
    from trnbench.answers.quote import Quote
    from trnbench.answers.train import TrainAnswer


def cost_chart(
    quotes: Sequence[Quote], points: Sequence[ClusterPoint], here: Quote | None
) -> ChartData:
    """Return cost over time: the quotes with their intervals, and every other cluster."""
    series = []
    for hue, quote in enumerate(quotes):
        mine = sorted(
            (point.days, point.cost_usd)
            for point in points
            if point.instance == quote.instance and point.cost_usd is not None
        )
        if mine:
            series.append(
                ChartSeries(label="", points=tuple(mine), joined=True, marked=False, hue=hue)
            )
        time_s, cost = quote.elapsed_s, quote.cost_usd
        if time_s is not None and cost is not None:
            series.append(
                ChartSeries(
                    label=cluster_label(quote),
                    points=((time_s.value / DAY_S, cost.value),),
                    whiskers=((cost.low, cost.high),),
                    strong=quote is here,
                    hue=hue,
                )
            )
    unpriced = [quote.instance for quote in quotes if quote.cost_usd is None]
    return ChartData(
        title="cost against time; a line joins the cluster sizes of one instance type",
        series=tuple(series),
        x=ChartAxis(title="days", text=number, log=True),
        y=ChartAxis(title="USD", text=in_unit(Dimension.USD), log=True),
        missing=f"no price or no plan: {', '.join(unpriced)}" if unpriced else "",
    )


def speed_chart(
    quotes: Sequence[Quote], points: Sequence[ClusterPoint], here: Quote | None
) -> ChartData:
    """Return tokens per second over nodes."""
    series = []
    for hue, quote in enumerate(quotes):
        name = quote.instance
        mine = sorted((float(p.nodes), p.tokens_per_s) for p in points if p.instance == name)
        if mine:
            series.append(
                ChartSeries(
                    label=name, points=tuple(mine), joined=True, strong=quote is here, hue=hue
                )
            )
    return ChartData(
        title="throughput against nodes, the fastest layout that fits",
        series=tuple(series),
        x=ChartAxis(title="nodes", text=number, log=True),
        y=ChartAxis(title="tokens/s", text=in_unit(Dimension.COUNT), log=True),
        missing="" if points else "looking at every cluster ...",
    )


def time_interval_chart(quotes: Sequence[Quote], here: Quote | None) -> ChartData:
    """Return the days of every quote with the ends of its interval."""
    series = []
    for place, quote in enumerate(quotes):
        if quote.elapsed_s is not None:
            days = quote.elapsed_s.scaled(1 / DAY_S)
            series.append(
                ChartSeries(
                    label=cluster_label(quote),
                    points=((float(place + 1), days.value),),
                    whiskers=((days.low, days.high),),
                    strong=quote is here,
                    hue=place,
                )
            )
    return ChartData(
        title="days to train, with 80 % intervals",
        series=tuple(series),
        x=ChartAxis(title="row", text=number, low=0.5, high=len(quotes) + 0.5),
        y=ChartAxis(title="days", text=number, low=0.0),
    )


def cluster_label(found: Quote | TrainAnswer) -> str:
    """Return the cluster of an answer, such as trn1.32xlarge:32."""
    return f"{found.instance}:{found.nodes}"


def time_bars(
    answers: Sequence[TrainAnswer], here: TrainAnswer | None, labels: Sequence[str] = ()
) -> BarsData:
    """Return the step times by category, a bar each; without labels a bar has its cluster's."""
    bars = tuple(
        Bar(
            label=label,
            parts=answer.step.exposed_s,
            strong=answer is here,
        )
        for answer, label in zip(answers, labels or map(cluster_label, answers), strict=True)
        if answer.step is not None
    )
    return BarsData(
        title="where the time of a step goes (exposed; shares of the marked row below)",
        bars=bars,
        text=lambda value: show(value, Dimension.SECONDS, digits=3),
        letters=letters_for(list(bars[0].parts) if bars else []),
        note="" if bars else "no row has a step time",
    )


def memory_bars(
    answers: Sequence[TrainAnswer], here: TrainAnswer | None, labels: Sequence[str] = ()
) -> BarsData:
    """Return the memory of a rank of the worst stage by category, and its limit."""
    bars = tuple(
        Bar(
            label=label,
            parts={str(name): size for name, size in answer.memory.by_category.items()},
            limit=answer.memory.available_bytes,
            strong=answer is here,
        )
        for answer, label in zip(answers, labels or map(cluster_label, answers), strict=True)
        if answer.memory is not None
    )
    return BarsData(
        title="memory of a rank of the worst stage; | is what it may use",
        bars=bars,
        text=lambda value: show(value, Dimension.BYTES, digits=3),
        letters=letters_for(list(bars[0].parts) if bars else []),
        note="" if bars else "no row has a layout",
    )
