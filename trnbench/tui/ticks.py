"""Where an axis has ticks: at round numbers, as many as fit, no label over another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from trnbench.tui.chart_data import ChartAxis, spaced

MOST_TICKS = 7
MARGIN = 0.03
"""So much of an axis, at its end, has no tick: a label there would be cut off."""
_STEPS = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


def ticks_of(
    axis: ChartAxis, low: float, high: float, place: Callable[[float], int], *, upright: bool
) -> list[float]:
    """Places of ticks from `low` to `high`; on a logarithmic axis, exponents of ten.

    `place` is the cell of a tick along the axis; the labels of an upright axis are a line high.
    """
    last = high - MARGIN * (high - low)

    def fits(ticks: Sequence[float]) -> bool:
        texts = labels_of(axis, ticks)
        lengths = [1 if upright else len(text) for text in texts]
        places = [place(tick) for tick in ticks]
        if upright:
            places, lengths = places[::-1], lengths[::-1]
        few = len(ticks) <= MOST_TICKS and len(set(texts)) == len(texts)
        return few and spaced(places, lengths)

    kinds = _binary if axis.binary else _decimal if axis.log else _plain
    best = next((ticks for ticks in kinds(low, last) if fits(ticks)), [])
    if len(best) >= 2:
        return best
    ends = [low + (high - low) * share for share in (0.1, 0.9)]
    return ends if fits(ends) else best


def labels_of(axis: ChartAxis, ticks: Sequence[float]) -> list[str]:
    """Texts at the ticks."""
    return [axis.text(10**tick if axis.log else tick) for tick in ticks]


def _decimal(low: float, high: float) -> Iterator[list[float]]:
    """Yield exponents of ten at round numbers, from many to few."""
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


def _binary(low: float, high: float) -> Iterator[list[float]]:
    """Yield exponents of ten at powers of two, from many to few."""
    bit = math.log10(2)
    powers = range(math.ceil(low / bit), math.floor(high / bit) + 1)
    for stride in (1, 2, 5, 10, 20):
        yield [power * bit for power in powers if power % stride == 0]


def _plain(low: float, high: float) -> Iterator[list[float]]:
    """Yield round numbers, from many to few."""
    width = high - low
    if not width > 0:
        return
    power = 10.0 ** math.floor(math.log10(width / 10))
    for step in (1, 2, 5, 10, 20, 50, 100):
        size = step * power
        first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
        yield [number * size for number in range(first, last + 1)]
