"""Positions of text in a chart: ticks at round numbers, and names beside marks.

All painters choose ticks here. Positions along an axis are given in cells: characters, or the
width of an average letter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import TypeAlias

from trnbench.show.charts.record import DIGITS, ChartAxis

MOST_TICKS = 7
MARGIN = 0.03
"""The share of an axis at its end that has no tick: a label there would be cut off."""
MOST_DIGITS = 6
GridCell: TypeAlias = tuple[int, int]
"""Column and row."""
_STEPS = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


def ticks_of(
    axis: ChartAxis, low: float, high: float, cell: Callable[[float], int], *, upright: bool
) -> list[float]:
    """Positions of the ticks from `low` to `high`; of a logarithmic axis, exponents of ten.

    `cell` is the cell of a position; the labels of an upright axis are a line high.
    """
    last = high - MARGIN * (high - low)

    def fits(ticks: Sequence[float]) -> bool:
        texts = labels_of(axis, ticks)
        lengths = [1 if upright else len(text) for text in texts]
        cells = [cell(tick) for tick in ticks]
        if upright:
            cells, lengths = cells[::-1], lengths[::-1]
        few = len(ticks) <= MOST_TICKS and len(set(texts)) == len(texts)
        return few and spaced(cells, lengths)

    fitting = [ticks for ticks in _candidates(axis, low, last) if len(ticks) > 1 and fits(ticks)]
    best = next((ticks for ticks in fitting if len(ticks) > 2), fitting[0] if fitting else [])
    if best:
        return best
    ends = [low + (high - low) * share for share in (0.1, 0.9)]
    return ends if fits(ends) else ends[:1]


def labels_of(axis: ChartAxis, ticks: Sequence[float]) -> list[str]:
    """Texts of ticks, with as few digits as tell them apart."""
    texts: list[str] = []
    for count in range(DIGITS, MOST_DIGITS + 1):
        texts = [axis.text(axis.number(tick), count) for tick in ticks]
        if len(set(texts)) == len(texts):
            break
    return texts


def _candidates(axis: ChartAxis, low: float, high: float) -> Iterator[list[float]]:
    """Sets of ticks, those with many before those with few."""
    # What has a unit of its own is round in that unit: 60 s are 1 min.
    unit = axis.unit.factor if axis.unit else 1.0
    if axis.kind == "binary":
        return _binary(low, high, unit)
    if not axis.log:
        return _plain(low, high, unit)
    shift = math.log10(unit)
    of_decades = _decimal(low - shift, high - shift)
    narrow = _plain(10**low, 10**high, unit) if high - low < 2 else iter(())
    return chain(
        ([tick + shift for tick in ticks] for ticks in of_decades),
        ([math.log10(number) for number in numbers if number > 0] for numbers in narrow),
    )


def _decimal(low: float, high: float) -> Iterator[list[float]]:
    """Exponents of ten at round numbers."""
    for steps in _STEPS:
        yield [
            at
            for power in range(math.floor(low), math.ceil(high) + 1)
            for step in steps
            if low <= (at := power + math.log10(step)) <= high
        ]
    powers = range(math.ceil(low), math.floor(high) + 1)
    for stride in (2, 3, 5):
        yield [float(power) for power in powers if power % stride == 0]


def _binary(low: float, high: float, unit: float) -> Iterator[list[float]]:
    """Exponents of ten at powers of two."""
    bit, shift = math.log10(2), math.log10(unit)
    powers = range(math.ceil((low - shift) / bit), math.floor((high - shift) / bit) + 1)
    for stride in (1, 2, 5, 10, 20):
        yield [power * bit + shift for power in powers if power % stride == 0]


def _plain(low: float, high: float, unit: float = 1.0) -> Iterator[list[float]]:
    """Round numbers of units."""
    width = (high - low) / unit
    if not width > 0:
        return
    power = 10.0 ** math.floor(math.log10(width / 10))
    for step in (1, 2, 5, 10, 20, 50, 100):
        size = step * power * unit
        first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
        yield [number * size for number in range(first, last + 1)]


def tick_lines(
    axis: ChartAxis, low: float, high: float, cell: Callable[[float], int], columns: int
) -> tuple[str, str]:
    """A horizontal axis in characters: a line with its ticks, and one of their labels."""
    rule, below = ["-"] * columns, [" "] * columns
    ticks = ticks_of(axis, low, high, cell, upright=False)
    for tick, text in zip(ticks, labels_of(axis, ticks), strict=True):
        column = cell(tick)
        start = min(max(column - len(text) // 2, 0), columns - len(text))
        rule[column] = "+"
        below[start : start + len(text)] = text
    return "".join(rule), "".join(below)


def spaced(cells: Sequence[int], lengths: Sequence[int]) -> bool:
    """True when labels around these cells, in ascending order, leave a cell between them."""
    ends = [
        (cell - length // 2, cell - length // 2 + length)
        for cell, length in zip(cells, lengths, strict=True)
    ]
    return all(end < start for (_, end), (start, _) in pairwise(ends))


def tag_place(
    at: GridCell,
    text: str,
    marks: frozenset[GridCell],
    size: tuple[int, int],
    lines: frozenset[GridCell] = frozenset(),
) -> GridCell | None:
    """Cell of the first letter of a text beside a mark: it hides no mark, and no line if it can."""
    x, y = at
    width, height = size
    for taken in (marks | lines, marks):
        for row in (y, y - 1, y + 1):
            for start in (x + 2, x - 1 - len(text)):
                cells = {(column, row) for column in range(start - 1, start + len(text) + 1)}
                inside = 0 < start < width - len(text) and 0 < row < height - 1
                if inside and not (cells - {at}) & taken:
                    return start, row
    return None


def cells_between(cells: Sequence[GridCell]) -> Iterator[GridCell]:
    """Cells of the lines from cell to cell."""
    yield from cells[:1]
    for (x0, y0), (x1, y1) in pairwise(cells):
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(1, count + 1):
            yield round(x0 + (x1 - x0) * step / count), round(y0 + (y1 - y0) * step / count)
