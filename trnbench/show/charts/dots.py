"""Estimates as dots on their intervals, a row each, over one axis that need not begin at zero."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trnbench.show.charts.record import Bar, BarChart
from trnbench.show.charts.text import Segment
from trnbench.show.charts.ticks import tick_lines

DOT, ACROSS, LOW, HIGH, LIMIT = "\u25cf", "\u2500", "\u251c", "\u2524", "\u250a"
LEAST = 16
"""Columns of the intervals, however narrow the place is."""
MARGIN = 0.04


def dot_lines(chart: BarChart, width: int) -> list[list[Segment]]:
    """Lines of the rows, the axis below them, and the name of the limit."""
    left = max((len(bar.label) for bar in chart.bars), default=0) + 3
    told = [chart.text_of(bar) for bar in chart.bars]
    if width - left - max(map(len, told), default=0) - 1 < LEAST:
        told = [text.partition(" (")[0] for text in told]
    room = max(width - left - max(map(len, told), default=0) - 1, LEAST)
    ends = [end for bar in chart.bars for end in _ends(bar)] or [0.0, 1.0]
    margin = MARGIN * ((max(ends) - min(ends)) or 1.0)
    low, high = min(ends) - margin, max(ends) + margin

    def column(value: float) -> int:
        return min(max(round((value - low) / (high - low) * (room - 1)), 0), room - 1)

    lines = []
    for bar, number in zip(chart.bars, told, strict=True):
        head = Segment(f"{'*' if bar.strong else ' '} {bar.label:<{left - 2}}", strong=bar.strong)
        cells = [" "] * room
        if bar.limit is not None:
            cells[column(bar.limit)] = LIMIT
        if bar.estimate is not None:
            first, last = column(bar.estimate.low), column(bar.estimate.high)
            cells[first : last + 1] = ACROSS * (last + 1 - first)
            cells[first], cells[last] = LOW, HIGH
            cells[column(bar.estimate.value)] = DOT
        text = Segment(f" {number}", strong=bar.strong)
        lines.append([head, Segment("".join(cells), bar.hue), text])
    pad = " " * left
    rule, below = tick_lines(chart.axis, low, high, column, room)
    lines += [[Segment(f"{pad}{rule}")], [Segment(f"{pad}{below}")]]
    if chart.limit and any(bar.limit is not None for bar in chart.bars):
        lines.append([Segment(f"{pad}{LIMIT} {chart.limit}")])
    return lines


def _ends(bar: Bar) -> Iterator[float]:
    if bar.estimate is not None:
        yield from (bar.estimate.low, bar.estimate.value, bar.estimate.high)
    if bar.limit is not None and math.isfinite(bar.limit):
        yield bar.limit
