"""What a chart shows, as plain data: points, whiskers, axes and how their numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, scale_for, show, significant, unit_scale
from trnbench.show.plot import MARKS

DECADES = 1e4
"""An axis that reaches further than this has no one prefix that suits all of it."""


class ChartSeries(Record):
    """Points of one kind: (x, y), each with the ends of its interval along y if it has one.

    `joined` draws a line through them; `strong` marks the one that the cursor is on. Series of one
    `hue` share a colour; without one each has its own. `tag` is written beside the last point.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    whiskers: tuple[tuple[float, float] | None, ...] = ()
    joined: bool = False
    marked: bool = True
    strong: bool = False
    hue: int | None = None
    tag: str = ""


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
    """A chart; `missing` says in words what is not drawn, and why."""

    title: str
    series: tuple[ChartSeries, ...]
    x: ChartAxis
    y: ChartAxis
    missing: str = ""


def number(value: float) -> str:
    """Return a number with few digits."""
    return significant(value, 3)


def log_axis(
    title: str,
    dimension: Dimension,
    values: Sequence[float],
    *,
    unit: str | None = None,
    binary: bool = False,
) -> ChartAxis:
    """Return a logarithmic axis of quantities: its unit stands once, in the title.

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
    """Return the mark of each series; lines without marks have a stroke."""
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
    """Return where a text beside a mark hides no other mark, if there is such a place."""
    x, y = at
    width, height = size
    for row in (y, y - 1, y + 1):
        for start in (x + 2, x - 1 - len(text)):
            cells = {(column, row) for column in range(start - 1, start + len(text) + 1)} - {at}
            inside = 0 < start < width - len(text) and 0 < row < height - 1
            if inside and not cells & taken:
                return start, row
    return None
