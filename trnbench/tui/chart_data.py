"""What a chart shows, as plain data: points, whiskers, axes and how their numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, scale_for, show, significant, unit_scale
from trnbench.show.plot import MARKS

DECADES = 1e4
"""Ratio of the ends of an axis beyond which no single prefix of the unit suits all ticks."""


class ChartSeries(Record):
    """Points of a kind."""

    label: str
    points: tuple[tuple[float, float], ...]
    """(x, y) of each point."""
    whiskers: tuple[tuple[float, float] | None, ...] = ()
    """Ends of the interval along y, point by point; None without an interval."""
    joined: bool = False
    """Whether a line joins the points."""
    marked: bool = True
    strong: bool = False
    """Whether the cursor is on this series."""
    hue: int | None = None
    """Key of the colour, which series with the same key share; None: a colour of its own."""
    tag: str = ""
    """Text beside the last point."""


class ChartAxis(Record):
    """An axis: its title, how its numbers are written, whether in logarithms, and fixed ends.

    `binary`: ticks stand at powers of two.
    """

    title: str
    text: Callable[[float], str]
    log: bool = False
    binary: bool = False
    low: float | None = None
    high: float | None = None


class ChartData(Record):
    """A chart; `missing` names in words the points that are not drawn, with reasons."""

    title: str
    series: tuple[ChartSeries, ...]
    x: ChartAxis
    y: ChartAxis
    missing: str = ""


def number(value: float) -> str:
    """A number with few digits."""
    return significant(value, 3)


def log_axis(
    title: str,
    dimension: Dimension,
    values: Sequence[float],
    *,
    unit: str | None = None,
    binary: bool = False,
) -> ChartAxis:
    """A logarithmic axis of quantities: its unit stands once, in the title.

    Where the values reach too far for one prefix, each number has its own.
    """
    known = sorted(value for value in values if value > 0) or [1.0]
    if unit is None and known[-1] > DECADES * known[0]:
        return ChartAxis(
            title=title,
            text=lambda value: show(value, dimension, digits=3),
            log=True,
            binary=binary,
        )
    if unit is None:
        scale = scale_for(known[len(known) // 2], dimension)
    else:
        scale = unit_scale(unit, dimension)
    named = " ".join(filter(None, (title, f"({scale.unit})" if scale.unit else "")))
    return ChartAxis(
        title=named, text=lambda value: number(value / scale.factor), log=True, binary=binary
    )


def marks_of(series: Sequence[ChartSeries]) -> tuple[str, ...]:
    """The mark of each series; lines without marks have a stroke."""
    free = iter(MARKS * (len(series) // len(MARKS) + 1))
    return tuple(next(free) if one.marked else "-" for one in series)


def spaced(places: Sequence[int], lengths: Sequence[int]) -> bool:
    """Tell whether labels around these places, in ascending order, leave a cell between them."""
    ends = [
        (place - length // 2, place - length // 2 + length)
        for place, length in zip(places, lengths, strict=True)
    ]
    return all(end < start for (_, end), (start, _) in pairwise(ends))


def tag_place(
    at: tuple[int, int], text: str, taken: frozenset[tuple[int, int]], size: tuple[int, int]
) -> tuple[int, int] | None:
    """Place where a text beside a mark hides no other mark; None without such a place."""
    x, y = at
    width, height = size
    for row in (y, y - 1, y + 1):
        for start in (x + 2, x - 1 - len(text)):
            cells = {(column, row) for column in range(start - 1, start + len(text) + 1)} - {at}
            inside = 0 < start < width - len(text) and 0 < row < height - 1
            if inside and not cells & taken:
                return start, row
    return None
