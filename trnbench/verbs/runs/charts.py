"""Figures of a kept answer, from its rows: bills, days, parts of steps, memory, sensitivity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnbench.facts.records import shaped
from trnbench.facts.units import DAY_S, Dimension
from trnbench.show.charts.record import PART_MARKS, Bar, BarChart, ChartAxis, axis_of
from trnbench.show.row import Interval, Row
from trnbench.store.runs import KeptAnswer
from trnbench.verbs.quotes.charts import MOST_BARS, coloured, part_bars
from trnbench.verbs.quotes.text import time_unit
from trnbench.verbs.quotes.tipping import Tipping, tipping_chart

WINNER = "recommended"


def kept_charts(answer: KeptAnswer) -> tuple[BarChart, ...]:
    """Charts of rows on clusters; none of answers that have no such rows."""
    best = [answer.summary.get(key) for key in ("recommended", "recommended_nodes")]
    rows = [row for row in answer.rows if "instance" in row and "nodes" in row]

    def bar(row: Row, **more: Any) -> Bar:  # noqa: ANN401 - fields of a bar
        label = f"{row['instance']}:{row['nodes']}"
        return Bar(label=label, strong=[row["instance"], row["nodes"]] == best, **more)

    bills = [(one, row) for row in rows if (one := _interval(row, "cost_usd"))]
    bills.sort(key=lambda pair: pair[0].value)
    costs = tuple(bar(row, estimate=one) for one, row in bills)
    axis = axis_of("cost", Dimension.USD, [one.value for one, _ in bills], kind="linear")
    ranked = [row for _, row in bills] + [row for row in rows if not _interval(row, "cost_usd")]
    spans = [(one, row) for row in ranked if (one := _interval(row, "days"))]
    unit = time_unit(one.value * DAY_S for one, _ in spans)
    longest, limit = DAY_S / unit.seconds, answer.inputs.get("deadline_s")
    late = limit / unit.seconds if isinstance(limit, int | float) else None
    times = tuple(bar(row, estimate=one.scaled(longest), limit=late) for one, row in spans)
    told = "with 80 % intervals"
    steps = [bar(row, parts=made) for row in rows if (made := _parts(row, "exposed_", "_s"))]
    held = [
        bar(row, parts=made, limit=row.get("memory_available_bytes"))
        for row in rows
        if (made := _parts(row, "memory_", "_bytes"))
    ]
    charts = [
        coloured(BarChart(title="cost to train", caption=told, axis=axis, bars=costs), WINNER),
        coloured(
            BarChart(
                title=f"{unit.word} to train",
                caption=told,
                axis=ChartAxis(title=unit.word),
                bars=times,
                limit="deadline",
            ),
            WINNER,
        ),
        _tornado(answer.summary.get("sensitivity")),
        part_bars(
            ChartAxis(title="step time by part", dimension=Dimension.SECONDS),
            "not counting overlap",
            steps[:MOST_BARS],
        ),
        part_bars(
            ChartAxis(title="memory per rank", dimension=Dimension.BYTES),
            "of the worst stage",
            held[:MOST_BARS],
        ),
    ]
    return tuple(one for one in charts if one is not None and one.bars)


def _interval(row: Row, key: str) -> Interval | None:
    found = [row.get(name) for name in (key, f"low_{key}", f"high_{key}")]
    numbers = [one for one in found if isinstance(one, int | float)]
    return Interval(value=numbers[0], low=numbers[1], high=numbers[2]) if numbers[2:] else None


def _parts(row: Row, before: str, behind: str) -> dict[str, float]:
    """Parts of a step or of memory by category, from the keys between two texts."""
    named = {
        key.removeprefix(before).removesuffix(behind).replace("_", "-"): size
        for key, size in row.items()
        if key.startswith(before) and key.endswith(behind)
    }
    return {
        name: float(size)
        for name, size in named.items()
        if name in PART_MARKS and isinstance(size, int | float)
    }


def _tornado(moves: object) -> BarChart | None:
    several = moves if isinstance(moves, list | tuple) else ()
    if not several or not isinstance(several[0], Mapping) or "down_to" not in several[0]:
        return None
    return tipping_chart([shaped(one, Tipping) for one in several])
