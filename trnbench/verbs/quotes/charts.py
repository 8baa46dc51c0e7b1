"""Figures of whole runs and of training steps: cost over time, time, speed, parts, memory.

`compare`, `plan` and `train` describe them here for terminals, SVG, pages and the TUI alike. What
computes is imported when a figure is asked for: the TUI paints before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S, Dimension, significant
from trnbench.show.charts.record import (
    GREY,
    AnyChart,
    Bar,
    BarChart,
    ChartAxis,
    Ends,
    Guide,
    PointChart,
    Series,
    axis_of,
    parts_of,
    without_small,
)
from trnbench.show.row import Interval

if TYPE_CHECKING:
    from trnbench.engines.analytic.step.memory_timeline import MemoryInstant
    from trnbench.verbs.quotes.answer import Quote
    from trnbench.verbs.quotes.text import TimeUnit
    from trnbench.verbs.train.answer import TrainAnswer

WORTH_DRAWING = 4.0
"""Clusters that take longer than this many times the slowest answer are not drawn."""
MOST_BARS = 12
LAYOUTS = "each cluster in its fastest layout that fits"


class ClusterPoint(Record):
    """A cluster, bought in one way: how long the run takes, what it costs, how fast it is."""

    instance: str
    nodes: int
    days: float
    cost_usd: float | None
    tokens_per_s: float


class Picked(Record):
    """Marks of a figure: the quote under a cursor, the winner by a word, a deadline."""

    here: Quote | None = None
    winner: Quote | None = None
    word: str = "cheapest"
    deadline_s: float | None = None

    def strong(self, quote: Quote) -> bool:
        return quote is (self.winner if self.here is None else self.here)


def cost_chart(
    quotes: Sequence[Quote], picked: Picked, points: Sequence[ClusterPoint] = ()
) -> PointChart:
    """Cost over time: quotes with both intervals, and other sizes of their clusters.

    Lines of clusters end soon after what was asked for, and after the slowest quote.
    """
    unit = table_unit(quotes)
    ends = [picked.deadline_s or 0.0, *(one.elapsed_s.value for one in quotes if one.elapsed_s)]
    last = WORTH_DRAWING * max(ends) / DAY_S
    series = []
    for hue, quote in enumerate(quotes):
        mine = sorted(
            (point.days * DAY_S / unit.seconds, point.cost_usd)
            for point in points
            if point.instance == quote.instance and point.cost_usd is not None
            if point.days <= last
        )
        if mine:
            series.append(_line(mine, hue))
        series += _quote_series(quote, cluster_label(quote), unit, picked, hue)
    caption = "with 80 % intervals" + ("; curves: other cluster sizes" if points else "")
    title = f"cost over {unit.word} to train"
    return _over_time((title, caption, _missing(quotes)), series, unit, picked)


def front_chart(quotes: Sequence[Quote], picked: Picked) -> PointChart:
    """The purchases that no other beats in both time and money, joined, with both intervals."""
    priced = [one for one in quotes if one.elapsed_s is not None and one.cost_usd is not None]
    unit = table_unit(quotes)
    clusters = [cluster_label(one) for one in priced]
    series: list[Series] = []
    for hue, one in enumerate(priced):
        # How it is bought tells only those of one cluster apart.
        bought = one.bill.tariff.option if one.bill and clusters.count(clusters[hue]) > 1 else ""
        series += _quote_series(one, f"{clusters[hue]} {bought}".strip(), unit, picked, hue)
    if series:
        series.insert(0, _line(_front(point for one in series for point in one.points), GREY))
    caption = "line: plans that no other beats in both; with 80 % intervals"
    missing = "" if priced else "no plan has a price"
    return _over_time(("cost/time trade-off", caption, missing), series, unit, picked)


def _front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that no other beats in both numbers, by the first."""
    front: list[tuple[float, float]] = []
    for point in sorted(points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _line(points: Sequence[tuple[float, float]], hue: int) -> Series:
    return Series(label="", points=tuple(points), joined=True, marked=False, hue=hue)


def _over_time(
    words: tuple[str, str, str], series: Sequence[Series], unit: TimeUnit, picked: Picked
) -> PointChart:
    """Money over time, with the deadline; `words` are title, caption, and what is not drawn."""
    guides = []
    if picked.deadline_s is not None:
        time = picked.deadline_s / unit.seconds
        label = f"deadline: {significant(time, 3)} {unit.word}"
        guides = [Guide(label=label, x=time)]
    return PointChart(
        title=words[0],
        caption=words[1],
        x=ChartAxis(title=unit.word, kind="log"),
        y=axis_of("cost", Dimension.USD, [y for one in series for _, y in one.points]),
        series=tuple(series),
        guides=tuple(guides),
        missing=words[2],
    )


def _quote_series(
    quote: Quote, label: str, unit: TimeUnit, picked: Picked, hue: int
) -> list[Series]:
    time_s, cost = quote.elapsed_s, quote.cost_usd
    if time_s is None or cost is None:
        return []
    time = time_s.scaled(1 / unit.seconds)
    return [
        Series(
            label=label,
            points=((time.value, cost.value),),
            across=(_ends(time),),
            upright=(_ends(cost),),
            strong=picked.strong(quote),
            hue=hue,
            tag=f"{picked.word}: {cluster_label(quote)}" if quote is picked.winner else "",
        )
    ]


def _ends(interval: Interval) -> Ends | None:
    ends = (interval.low, interval.high)
    return None if ends[0] == ends[1] else ends


def _missing(quotes: Sequence[Quote]) -> str:
    """Quotes that are not drawn, and why."""
    kinds = (
        ("no price", [one for one in quotes if one.elapsed_s is not None and one.cost_usd is None]),
        ("cannot run", [one for one in quotes if one.elapsed_s is None]),
    )
    told = [f"{why}: {', '.join(one.instance for one in those)}" for why, those in kinds if those]
    return f"not drawn: {'; '.join(told)}" if told else ""


def time_chart(quotes: Sequence[Quote], picked: Picked) -> BarChart:
    """The time of every quote with its interval, and the deadline."""
    unit = table_unit(quotes)
    limit = None if picked.deadline_s is None else picked.deadline_s / unit.seconds
    bars = tuple(
        Bar(
            label=cluster_label(quote),
            estimate=quote.elapsed_s.scaled(1 / unit.seconds),
            limit=limit,
            strong=picked.strong(quote),
            hue=hue % GREY,
        )
        for hue, quote in enumerate(quotes)
        if quote.elapsed_s is not None and math.isfinite(quote.elapsed_s.high)
    )
    return BarChart(
        title=f"{unit.word} to train",
        caption="with 80 % intervals",
        axis=ChartAxis(title=unit.word),
        bars=bars,
        limit="deadline",
        missing="" if bars else "no row has a time",
    )


def speed_chart(
    curves: Iterable[tuple[str, Sequence[tuple[float, float]]]],
    title: str,
    speed: str,
    *,
    here: str | None = None,
    ideal: bool = False,
) -> PointChart:
    """Speed over nodes by instance type; `ideal` adds the line of equally fast nodes."""
    series = []
    for hue, (name, points) in enumerate(curves):
        strong = here is not None and name == here
        made = Series(label=name, points=tuple(points), joined=True, strong=strong, hue=hue)
        series.append(made)
        if ideal and len(points) > 1:
            (first, rate), (last, _) = points[0], points[-1]
            line = ((first, rate), (last, rate * last / first))
            label = f"{name}, ideal"
            series.append(Series(label=label, points=line, joined=True, marked=False, hue=hue))
    return PointChart(
        title=title,
        caption="ideal: every node as fast as in the smallest cluster" if ideal else LAYOUTS,
        x=ChartAxis(title="nodes", kind="binary"),
        y=axis_of(speed, Dimension.COUNT, [y for one in series for _, y in one.points]),
        series=tuple(series),
    )


def table_unit(quotes: Sequence[Quote]) -> TimeUnit:
    """The unit of time of a table of these quotes: a chart beside it has the same."""
    from trnbench.verbs.quotes.text import time_unit

    return time_unit(one.elapsed_s.value for one in quotes if one.elapsed_s is not None)


def cluster_label(answer: Quote | TrainAnswer) -> str:
    """The cluster of an answer, such as trn1.32xlarge:32."""
    return f"{answer.instance}:{answer.nodes}"


def step_bars(
    answers: Sequence[TrainAnswer], here: TrainAnswer | None = None, labels: Sequence[str] = ()
) -> BarChart:
    """Step times by category, a bar each; without labels a bar has its cluster's."""
    bars = [
        Bar(label=label, parts=answer.step.exposed_s, strong=answer is here)
        for answer, label in _labelled(answers, labels)
        if answer.step is not None
    ]
    axis = ChartAxis(title="step time by part", dimension=Dimension.SECONDS)
    return part_bars(axis, "not counting overlap", bars, here)


def memory_bars(
    answers: Sequence[TrainAnswer], here: TrainAnswer | None = None, labels: Sequence[str] = ()
) -> BarChart:
    """Memory of a rank of the worst stage by category, and its limit."""
    bars = [
        Bar(
            label=label,
            parts={str(name): size for name, size in answer.memory.by_category.items()},
            limit=answer.memory.available_bytes,
            strong=answer is here,
        )
        for answer, label in _labelled(answers, labels)
        if answer.memory is not None
    ]
    axis = ChartAxis(title="memory per rank", dimension=Dimension.BYTES)
    return part_bars(axis, "of the worst stage", bars, here)


def block_bars(instant: MemoryInstant, title: str) -> BarChart:
    """Bytes of each block at an instant, by category, the largest first."""
    blocks: dict[str, dict[str, float]] = {}
    for (block, category), size in instant.held.items():
        if size:
            parts = blocks.setdefault(block or "no block", {})
            parts[str(category)] = parts.get(str(category), 0.0) + size
    order = sorted(blocks, key=lambda name: -math.fsum(blocks[name].values()))
    names = dict.fromkeys(name for block in order for name in blocks[block])
    return BarChart(
        title=title,
        caption="the largest first",
        axis=ChartAxis(title="memory", dimension=Dimension.BYTES),
        bars=tuple(Bar(label=name, parts=blocks[name]) for name in order),
        parts=parts_of(names),
    )


def _labelled(
    answers: Sequence[TrainAnswer], labels: Sequence[str]
) -> Iterable[tuple[TrainAnswer, str]]:
    named = labels or [one.label or cluster_label(one) for one in answers]
    return list(zip(answers, named, strict=True))[:MOST_BARS]


def part_bars(
    axis: ChartAxis, caption: str, bars: Sequence[Bar], here: TrainAnswer | None = None
) -> BarChart:
    """Bars of parts on one scale, each up to what is available."""
    bars = without_small(bars)
    return BarChart(
        title=axis.title,
        caption=caption + ("; percentages: marked row" if here else ""),
        axis=axis,
        bars=bars,
        parts=parts_of(dict.fromkeys(name for bar in bars for name in bar.parts)),
        shares=here is not None or len(bars) == 1,
        limit="available",
        missing="" if bars else "no row has a layout",
    )


def run_charts(quotes: Sequence[Quote], cost: PointChart, picked: Picked) -> tuple[AnyChart, ...]:
    steps = [quote.step for quote in quotes if quote.step.step is not None]
    # Both in the order of cost, so that rows of one cluster stand side by side.
    ranked = sorted(quotes, key=lambda one: one.cost_usd.value if one.cost_usd else math.inf)
    bars = (cost_bars(ranked, picked), coloured(time_chart(ranked, picked), picked.word))
    charts = (cost, *bars, step_bars(steps), memory_bars(steps))
    return tuple(one for one in charts if not one.empty)


def cost_bars(quotes: Sequence[Quote], picked: Picked) -> BarChart:
    """The cost of every quote with its interval, the winner in colour."""
    priced = [(quote, quote.cost_usd) for quote in quotes if quote.cost_usd is not None]
    axis = axis_of("cost", Dimension.USD, [cost.value for _, cost in priced], kind="linear")
    bars = tuple(
        Bar(label=cluster_label(quote), estimate=cost, strong=picked.strong(quote))
        for quote, cost in priced
        if math.isfinite(cost.high)
    )
    chart = BarChart(title="cost to train", caption="with 80 % intervals", axis=axis, bars=bars)
    return coloured(chart, picked.word)


def coloured(chart: BarChart, word: str) -> BarChart:
    """The bars with the winner, which has this word, alone in colour."""
    if not any(bar.strong for bar in chart.bars):
        return chart
    bars = tuple(replace(bar, hue=0 if bar.strong else GREY) for bar in chart.bars)
    caption = f"{chart.caption}; in colour: {word}"
    return replace(chart, bars=bars, caption=caption)
