"""The pictures beside a comparison: rows of a report -> charts and bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trnbench.answers.row import Row
from trnbench.tui.chart_data import ChartAxis, ChartData, ChartSeries, in_unit, number
from trnbench.tui.compare_questions import Point
from trnbench.tui.widgets.bars import Bar, BarsData, letters_for
from trnbench.units import Dimension, show

EXPOSED, SUFFIX = "exposed_", "_s"
MEMORY = "memory_"
NOT_PARTS = ("memory_bytes", "memory_capacity_bytes", "memory_available_bytes")


def cost_chart(rows: Sequence[Row], points: Sequence[Point], here: Row | None) -> ChartData:
    """Return cost against time: what is chosen with its interval, and every other cluster."""
    series = []
    for hue, row in enumerate(rows):
        name, strong = str(row["instance"]), row is here
        mine = sorted(
            (point.days, point.cost_usd)
            for point in points
            if point.instance == name and point.cost_usd is not None
        )
        if mine:
            series.append(
                ChartSeries(label="", points=tuple(mine), joined=True, marked=False, hue=hue)
            )
        days, cost = _number(row, "days"), _number(row, "cost_usd")
        if days is not None and cost is not None:
            series.append(
                ChartSeries(
                    label=cluster_label(row),
                    points=((days, cost),),
                    whiskers=(_ends(row, "cost_usd"),),
                    strong=strong,
                    hue=hue,
                )
            )
    unpriced = [str(row["instance"]) for row in rows if _number(row, "cost_usd") is None]
    return ChartData(
        title="cost against time; a line joins the cluster sizes of one instance type",
        series=tuple(series),
        x=ChartAxis(title="days", text=number, log=True),
        y=ChartAxis(title="USD", text=in_unit(Dimension.USD), log=True),
        missing=f"no price or no plan: {', '.join(unpriced)}" if unpriced else "",
    )


def speed_chart(rows: Sequence[Row], points: Sequence[Point], here: Row | None) -> ChartData:
    """Return tokens per second against nodes."""
    series = []
    for hue, row in enumerate(rows):
        name = str(row["instance"])
        mine = sorted((float(p.nodes), p.tokens_per_s) for p in points if p.instance == name)
        if mine:
            series.append(
                ChartSeries(
                    label=name, points=tuple(mine), joined=True, strong=row is here, hue=hue
                )
            )
    return ChartData(
        title="throughput against nodes, the fastest layout that fits",
        series=tuple(series),
        x=ChartAxis(title="nodes", text=number, log=True),
        y=ChartAxis(title="tokens/s", text=in_unit(Dimension.COUNT), log=True),
        missing="" if points else "looking at every cluster ...",
    )


def time_interval_chart(rows: Sequence[Row], here: Row | None) -> ChartData:
    """Return the days of every row with the ends of its interval."""
    series = []
    for place, row in enumerate(rows):
        days = _number(row, "days")
        if days is not None:
            series.append(
                ChartSeries(
                    label=cluster_label(row),
                    points=((float(place + 1), days),),
                    whiskers=(_ends(row, "days"),),
                    strong=row is here,
                    hue=place,
                )
            )
    return ChartData(
        title="days to train, with 80 % intervals",
        series=tuple(series),
        x=ChartAxis(title="row", text=number, low=0.5, high=len(rows) + 0.5),
        y=ChartAxis(title="days", text=number, low=0.0),
    )


def cluster_label(row: Row) -> str:
    """Return the cluster of a row, such as trn1.32xlarge:32."""
    return f"{row['instance']}:{row['nodes']}"


def time_bars(
    rows: Sequence[Row], here: Row | None, *, label: Callable[[Row], str] = cluster_label
) -> BarsData:
    """Return the step times by what takes them, beside each other."""
    names = [
        key.removeprefix(EXPOSED).removesuffix(SUFFIX)
        for key in (rows[0] if rows else {})
        if key.startswith(EXPOSED)
    ]
    bars = tuple(
        Bar(
            label=label(row),
            parts={name: _number(row, f"{EXPOSED}{name}{SUFFIX}") or 0.0 for name in names},
            strong=row is here,
        )
        for row in rows
        if _number(row, "step_time_s") is not None
    )
    return BarsData(
        title="where the time of a step goes (exposed; shares of the marked row below)",
        bars=bars,
        text=lambda value: show(value, Dimension.SECONDS, digits=3),
        letters=letters_for(names),
        note="" if bars else "no row has a step time",
    )


def memory_bars(
    rows: Sequence[Row], here: Row | None, *, label: Callable[[Row], str] = cluster_label
) -> BarsData:
    """Return what a rank of the worst stage holds, against what it has."""
    names = [
        key.removeprefix(MEMORY).removesuffix("_bytes")
        for key in (rows[0] if rows else {})
        if key.startswith(MEMORY) and key not in NOT_PARTS
    ]
    bars = tuple(
        Bar(
            label=label(row),
            parts={name: _number(row, f"{MEMORY}{name}_bytes") or 0.0 for name in names},
            limit=_number(row, "memory_available_bytes"),
            strong=row is here,
        )
        for row in rows
        if _number(row, "memory_bytes") is not None
    )
    return BarsData(
        title="memory of a rank of the worst stage; | is what it may use",
        bars=bars,
        text=lambda value: show(value, Dimension.BYTES, digits=3),
        letters=letters_for(names),
        note="" if bars else "no row has a layout",
    )


def _number(row: Mapping[str, object], key: str) -> float | None:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) else None


def _ends(row: Row, key: str) -> tuple[float, float] | None:
    low, high = _number(row, f"low_{key}"), _number(row, f"high_{key}")
    return None if low is None or high is None else (low, high)
