"""What a chart shows, as plain data: points, whiskers, axes and how their numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trnbench.report.plot import MARKS
from trnbench.units import Dimension, show, significant, unit_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """Points of one kind: (x, y), each with the ends of its interval along y if it has one.

    `joined` draws a line through them; `strong` marks the one that the cursor is on. Series of one
    `hue` share a colour; without one each has its own.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    whiskers: tuple[tuple[float, float] | None, ...] = ()
    joined: bool = False
    marked: bool = True
    strong: bool = False
    hue: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAxis:
    """An axis: its title, how its numbers are written, whether in logarithms, and fixed ends.

    `binary`: ticks stand at powers of two.
    """

    title: str
    text: Callable[[float], str]
    log: bool = False
    binary: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartData:
    """A chart; `missing` says in words what is not drawn, and why."""

    title: str
    series: tuple[ChartSeries, ...]
    x: ChartAxis
    y: ChartAxis
    missing: str = ""


def number(value: float) -> str:
    """Return a number with few digits."""
    return significant(value, 3)


def in_unit(dimension: Dimension, unit: str | None = None) -> Callable[[float], str]:
    """Return how quantities are written along an axis: with their own prefix, or in one unit."""
    if unit is None:
        return lambda value: show(value, dimension, digits=3)
    scale = unit_scale(unit, dimension)
    return lambda value: significant(value / scale.factor, 3)


def marks_of(series: Sequence[ChartSeries]) -> tuple[str, ...]:
    """Return the mark of each series; lines without marks have a stroke."""
    free = iter(MARKS * (len(series) // len(MARKS) + 1))
    return tuple(next(free) if one.marked else "-" for one in series)
