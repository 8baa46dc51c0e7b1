"""The pictures below a comparison: typed answers -> charts and bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnbench.facts.units import DAY_S, Dimension, show, significant
from trnbench.tui.chart_data import ChartAxis, ChartData, ChartSeries, log_axis, number
from trnbench.tui.compare_questions import ClusterPoint
from trnbench.tui.widgets.bars import Bar, BarsData, letters_for

if TYPE_CHECKING:
    from trnbench.answers.quote import Quote
    from trnbench.answers.train import TrainAnswer
    from trnbench.report.quote_text import TimeUnit


WORTH_DRAWING = 4.0
"""Multiple of the asked duration beyond which clusters are not drawn."""


def cost_chart(
    quotes: Sequence[Quote],
    points: Sequence[ClusterPoint],
    here: Quote | None,
    *,
    winner: Quote | None = None,
    deadline_s: float | None = None,
) -> ChartData:
    """Cost over time: the quotes with their intervals, and other sizes of their clusters.

    `winner` is named beside its mark. Lines end soon after what was asked for, and after the
    slowest quote.
    """
    ends = [deadline_s or 0.0, *(one.elapsed_s.value for one in quotes if one.elapsed_s)]
    last = WORTH_DRAWING * max(ends) / DAY_S
    unit = table_unit(quotes)
    series = []
    for hue, quote in enumerate(quotes):
        mine = sorted(
            (point.days * DAY_S / unit.seconds, point.cost_usd)
            for point in points
            if point.instance == quote.instance
            and point.cost_usd is not None
            and point.days <= last
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
                    points=((time_s.value / unit.seconds, cost.value),),
                    whiskers=((cost.low, cost.high),),
                    strong=quote is here,
                    hue=hue,
                    tag=f"cheapest: {cluster_label(quote)}" if quote is winner else "",
                )
            )
    costs = [y for one in series for _, y in one.points]
    return ChartData(
        title="cost over time, with 80 % intervals; a line joins the cluster sizes of a type",
        series=tuple(series),
        x=ChartAxis(title=unit.word, text=number, log=True),
        y=log_axis("cost", Dimension.USD, costs),
        missing=_missing(quotes),
    )


def _missing(quotes: Sequence[Quote]) -> str:
    """Quotes that are not drawn, with reasons."""
    kinds = (
        ("no price", [one for one in quotes if one.elapsed_s is not None and one.cost_usd is None]),
        ("cannot run", [one for one in quotes if one.elapsed_s is None]),
    )
    told = [f"{why}: {', '.join(one.instance for one in those)}" for why, those in kinds if those]
    return f"not drawn: {'; '.join(told)}" if told else ""


def speed_chart(
    quotes: Sequence[Quote], points: Sequence[ClusterPoint], here: Quote | None
) -> ChartData:
    """Tokens per second over nodes."""
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
        title="tokens per second over nodes, in the fastest layout that fits",
        series=tuple(series),
        x=ChartAxis(title="nodes", text=number, log=True, binary=True),
        y=log_axis("tokens/s", Dimension.COUNT, [y for one in series for _, y in one.points]),
        missing="" if points else "looking at every cluster ...",
    )


def time_interval_chart(quotes: Sequence[Quote], here: Quote | None) -> ChartData:
    """The time of every quote with the ends of its interval."""
    series = []
    unit = table_unit(quotes)
    for place, quote in enumerate(quotes):
        if quote.elapsed_s is not None:
            time = quote.elapsed_s.scaled(1 / unit.seconds)
            series.append(
                ChartSeries(
                    label=cluster_label(quote),
                    points=((float(place + 1), time.value),),
                    whiskers=((time.low, time.high),),
                    strong=quote is here,
                    hue=place,
                )
            )
    return ChartData(
        title=f"{unit.word} to train, with 80 % intervals",
        series=tuple(series),
        x=ChartAxis(title="row", text=number, low=0.5, high=len(quotes) + 0.5),
        y=ChartAxis(title=unit.word, text=number, low=0.0),
    )


def table_unit(quotes: Sequence[Quote]) -> TimeUnit:
    """Unit of time of a table of these quotes, and of the chart next to the table."""
    from trnbench.report.quote_text import time_unit

    return time_unit(one.elapsed_s.value for one in quotes if one.elapsed_s is not None)


def cluster_label(found: Quote | TrainAnswer) -> str:
    """The cluster of an answer, such as trn1.32xlarge:32."""
    return f"{found.instance}:{found.nodes}"


def seconds_text(value: float) -> str:
    """A step time as tables write it."""
    return f"{significant(value, 4)} s"


def time_bars(
    answers: Sequence[TrainAnswer],
    here: TrainAnswer | None,
    labels: Sequence[str] = (),
    *,
    besides: str = "",
) -> BarsData:
    """The step times by category, a bar each; without labels a bar has its cluster's.

    Letters `besides` are taken by another drawing.
    """
    bars = tuple(
        Bar(label=label, parts=answer.step.exposed_s, strong=answer is here)
        for answer, label in zip(answers, labels or map(cluster_label, answers), strict=True)
        if answer.step is not None
    )
    return BarsData(
        title="step time by part, not counting overlap; percentages: marked row",
        bars=bars,
        text=seconds_text,
        letters=letters_for(list(bars[0].parts) if bars else [], besides=besides),
        note="" if bars else "no row has a step time",
    )


def memory_bars(
    answers: Sequence[TrainAnswer], here: TrainAnswer | None, labels: Sequence[str] = ()
) -> BarsData:
    """The memory of a rank of the worst stage by category, and its limit."""
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
        title="memory per rank of the worst stage; | is what it may use",
        bars=bars,
        text=lambda value: show(value, Dimension.BYTES, digits=3),
        letters=letters_for(list(bars[0].parts) if bars else []),
        note="" if bars else "no row has a layout",
    )
