"""Contents of a figure as data: axes, points with intervals, bars, lanes of time.

A verb describes each of its figures once, in its report; a terminal, an SVG file, a page and the
TUI paint the same record. A title says what a figure shows, a caption how it is read. Colours are
numbers here (`hue`): each painter has its own palette.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from string import ascii_uppercase, digits
from typing import Literal, TypeAlias

from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension, Scale, scale_for, show, significant, unit_scale
from trnbench.show.row import Interval

MARKS = "ox+*#@%&"
"""Marks of series, so that colour is never their only difference."""
HUES = 8
GREY = 7
DECADES = 1e4
"""An axis that reaches further than this has no one prefix that suits all of it."""
MARGIN = 0.05
"""Room around the points, as a share of an axis."""
LITTLE = 0.01
"""Part of a bar below which it has no name of its own."""
DIGITS = 3
SENSITIVITY = "sensitivity of the choice"
"""Title of the chart of moved inputs."""
LONG_NUMBER = 1e7
"""A plain number from here on has a prefix: 20M."""
PART_MARKS: Mapping[str, tuple[str, int]] = {
    **{"matrix": ("M", 0), "attention": ("A", 1), "element-wise": ("E", 2), "tensor": ("T", 3)},
    **{"context": ("C", 4), "expert": ("K", 5), "pipeline": ("P", 6), "bubble": ("U", 7)},
    **{"data": ("D", 4), "optimizer": ("O", 5), "generation": ("G", 1), "host": ("H", 6)},
    **{"fixed": ("X", 3), "weights": ("W", 0), "gradients": ("G", 1), "activations": ("A", 2)},
    **{"communication": ("C", 3), "scratch": ("S", 4), "cache": ("K", 6), "runtime": ("R", 6)},
    **{"fragmentation": ("F", 7), "other": ("Z", 2)},
}
"""Letter and colour of each category in every figure.

There are fewer colours than categories: those of one colour are never neighbours in a bar. Letters
of steps differ from F, B and W, which are slots of a schedule beside them.
"""
Point: TypeAlias = tuple[float, float]
Ends: TypeAlias = tuple[float, float]
Colour = Literal["cyan", "yellow", "green", "white", "magenta", "blue"]
AxisKind = Literal["linear", "log", "binary", "date"]
"""`binary`: logarithmic, with ticks at powers of two. `date`: numbers are ordinals of days."""


class ChartAxis(Record):
    """An axis: its title, how numbers are spread and written, and fixed ends where it has them.

    `unit` is that of all numbers and stands in the heading; without it each number has the prefix
    that suits it. `dimension` is None for plain numbers.
    """

    title: str
    kind: AxisKind = "linear"
    dimension: Dimension | None = None
    unit: Scale | None = None
    low: float | None = None
    high: float | None = None

    @property
    def log(self) -> bool:
        return self.kind in ("log", "binary")

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit.unit})" if self.unit and self.unit.unit else self.title

    def text(self, value: float, digits: int = DIGITS) -> str:
        """A number as it is written at a tick or behind a bar."""
        if self.kind == "date":
            return datetime.date.fromordinal(round(value)).isoformat()
        if self.unit is not None:
            return significant(value / self.unit.factor, digits)
        if self.dimension is not None or abs(value) >= LONG_NUMBER:
            return show(value, self.dimension or Dimension.COUNT, digits=digits)
        return significant(value, digits)

    def place(self, value: float) -> float:
        """Position of a number along the axis; NaN where it has none."""
        if not self.log:
            return value if math.isfinite(value) else math.nan
        return math.log10(value) if 0 < value < math.inf else math.nan

    def number(self, place: float) -> float:
        return 10**place if self.log else place


def axis_of(
    title: str,
    dimension: Dimension,
    values: Iterable[float],
    *,
    kind: AxisKind = "log",
    unit: str | None = None,
) -> ChartAxis:
    """An axis of quantities in one unit, unless they reach too far for a single prefix."""
    known = sorted(value for value in values if 0 < value < math.inf) or [1.0]
    if unit is not None:
        scale = unit_scale(unit, dimension)
    elif known[-1] > DECADES * known[0]:
        return ChartAxis(title=title, kind=kind, dimension=dimension)
    else:
        scale = scale_for(known[len(known) // 2], dimension)
    return ChartAxis(title=title, kind=kind, dimension=dimension, unit=scale)


class Series(Record):
    """Points of one kind, and the ends of their intervals along each axis where they have them.

    `joined` draws a line through them, `marked` a mark at each. `strong` is the series that the
    cursor is on or that wins. Series of one `hue` share a colour; without one each has its own.
    `tag` is written beside the last point.
    """

    label: str
    points: tuple[Point, ...]
    across: tuple[Ends | None, ...] = ()
    upright: tuple[Ends | None, ...] = ()
    joined: bool = False
    marked: bool = True
    strong: bool = False
    hue: int | None = None
    tag: str = ""


class Guide(Record):
    """A line through the whole chart at one x or one y, such as a deadline."""

    label: str
    x: float | None = None
    y: float | None = None


class PointChart(Record):
    """Points over two axes; `missing` says in words what is not drawn, and why."""

    title: str
    caption: str
    x: ChartAxis
    y: ChartAxis
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    missing: str = ""

    @property
    def empty(self) -> bool:
        return not self.drawn

    @property
    def drawn(self) -> tuple[Series, ...]:
        """The series with their colours, and with those points that have a place."""
        kept = []
        for number, one in enumerate(self.series):
            at = [n for n, point in enumerate(one.points) if self._has_place(point)]
            if at:
                ends = {
                    "across": tuple(one.across[n] for n in at) if one.across else (),
                    "upright": tuple(one.upright[n] for n in at) if one.upright else (),
                }
                points = tuple(one.points[n] for n in at)
                hue = number if one.hue is None else one.hue
                kept.append(replace(one, points=points, hue=hue % HUES, **ends))
        return tuple(kept)

    def _has_place(self, point: Point) -> bool:
        return math.isfinite(self.x.place(point[0]) + self.y.place(point[1]))

    def intervals(self, one: Series) -> Iterator[tuple[Point, Point]]:
        """Both ends of every interval of a series, in positions; one without end stops short."""
        for (x, y), across, upright in zip_longest(one.points, one.across, one.upright):
            if across:
                low, high = _inside(self.x, across)
                yield (low, self.y.place(y)), (high, self.y.place(y))
            if upright:
                low, high = _inside(self.y, upright)
                yield (self.x.place(x), low), (self.x.place(x), high)

    @property
    def spans(self) -> tuple[Ends, Ends]:
        """From where to where both axes reach, over points, intervals and guides, in positions."""
        drawn = self.drawn
        xs = [x for one in drawn for x, _ in one.points]
        ys = [y for one in drawn for _, y in one.points]
        xs += [end for one in drawn for ends in one.across if ends for end in ends]
        ys += [end for one in drawn for ends in one.upright if ends for end in ends]
        xs += [guide.x for guide in self.guides if guide.x is not None]
        ys += [guide.y for guide in self.guides if guide.y is not None]
        return _span(self.x, xs), _span(self.y, ys)


def _span(axis: ChartAxis, values: Sequence[float]) -> Ends:
    places = [place for place in map(axis.place, values) if math.isfinite(place)] or [0.0, 1.0]
    low, high = min(places), max(places)
    # A single value still needs an axis around it.
    room = (high - low) * MARGIN or (0.3 if axis.log else abs(high) * MARGIN or 1.0)
    return (
        low - room if axis.low is None else axis.place(axis.low),
        high + room if axis.high is None else axis.place(axis.high),
    )


def _inside(axis: ChartAxis, ends: Ends) -> Ends:
    places = [place for place in map(axis.place, ends) if math.isfinite(place)] or [0.0]
    return places[0], places[-1]


def marks_of(series: Sequence[Series]) -> tuple[str, ...]:
    free = iter(MARKS * (len(series) // len(MARKS) + 1))
    return tuple(next(free) if one.marked else "." for one in series)


class BarPart(Record):
    """A part of bars: its name, the letter that stands for it, and its colour."""

    name: str
    letter: str
    hue: int


def parts_of(names: Iterable[str]) -> tuple[BarPart, ...]:
    """Parts of bars: those of steps and of memory look alike in every figure.

    Any other takes the first letter of its name that is free, and the next colour.
    """
    parts: dict[str, BarPart] = {}
    named = list(names)
    for name in sorted(named, key=lambda one: one not in PART_MARKS):
        letter, hue = PART_MARKS.get(name, ("", named.index(name) % HUES))
        taken = {part.letter for part in parts.values()}
        wanted = [*letter, *(c for c in name.upper() if c.isalnum()), *ascii_uppercase, *digits]
        free = next(c for c in wanted if c not in taken)
        parts[name] = BarPart(name=name, letter=free, hue=hue)
    return tuple(parts[name] for name in named)


def without_small(bars: Sequence[Bar]) -> tuple[Bar, ...]:
    """The bars with parts that are little in every bar put together as the last, `other`."""
    names = dict.fromkeys(name for bar in bars for name in bar.parts)
    small = {
        name
        for name in names
        if all(bar.parts.get(name, 0.0) < LITTLE * bar.total for bar in bars if bar.total)
    }
    if sum(any(bar.parts.get(name) for bar in bars) for name in small) < 2:
        return tuple(bars)
    return tuple(
        replace(
            bar,
            parts={
                **{name: size for name, size in bar.parts.items() if name not in small},
                "other": math.fsum(size for name, size in bar.parts.items() if name in small),
            },
        )
        for bar in bars
    )


class Bar(Record):
    """A bar: its parts by name, or an estimate with its interval.

    It begins at `start`; `limit` is drawn as a stroke across it, `strong` is the bar that the
    cursor is on or that wins.
    """

    label: str
    parts: Mapping[str, float] = field(default_factory=dict)
    estimate: Interval | None = None
    start: float = 0.0
    limit: float | None = None
    strong: bool = False
    hue: int = 0
    text: str = ""
    """What stands behind the bar in place of its number."""

    @property
    def total(self) -> float:
        return self.estimate.value if self.estimate else math.fsum(self.parts.values())

    @property
    def ends(self) -> Ends:
        """From where to where anything of the bar is drawn."""
        if self.estimate:
            marks = (self.estimate.low, self.estimate.value, self.estimate.high)
            reached = (*marks, *([] if self.limit is None else [self.limit]))
        else:
            reached = (self.start, self.start + self.total, self.limit or self.start)
        finite = [value for value in reached if math.isfinite(value)]
        return min(finite), max(finite)


class BarChart(Record):
    """Horizontal bars below each other, on one scale.

    `parts` names and colours the parts of all bars. `shares`: the legend says what each part is of
    the strong bar. `limit` names the strokes across the bars.
    """

    title: str
    caption: str
    axis: ChartAxis
    bars: tuple[Bar, ...]
    parts: tuple[BarPart, ...] = ()
    shares: bool = False
    limit: str = ""
    missing: str = ""

    @property
    def empty(self) -> bool:
        return not any(bar.ends != (0.0, 0.0) for bar in self.bars)

    @property
    def estimates(self) -> bool:
        """True where bars are estimates with intervals."""
        return any(bar.estimate is not None for bar in self.bars)

    @property
    def span(self) -> Ends:
        """From where to where the bars reach; those with parts begin at 0, estimates need not."""
        ends = [end for bar in self.bars for end in bar.ends]
        if self.estimates:
            room = MARGIN * (max(ends) - min(ends)) or MARGIN * abs(max(ends)) or 1.0
            return max(min(ends) - room, 0.0), max(ends) + room
        return min([0.0, *ends]), max([0.0, *ends])

    def text_of(self, bar: Bar) -> str:
        """The number behind a bar, with its interval."""
        text = bar.text or self.axis.text(bar.start if bar.start < 0 else bar.total)
        if bar.estimate is None or bar.estimate.low == bar.estimate.high:
            return text
        low, high = self.axis.text(bar.estimate.low), self.axis.text(bar.estimate.high)
        return f"{text} ({low}-{high})"

    @property
    def legend(self) -> tuple[BarPart, ...]:
        return tuple(one for one in self.parts if any(bar.parts.get(one.name) for bar in self.bars))


class SpanKind(Record):
    """Appearance of one kind of spans: a letter, a filling of the rest, a colour, a name."""

    letter: str
    fill: str
    colour: Colour
    legend: str
    solid: bool = True


class Span(Record, kw_only=False):
    """Something that lasts from `start` to `end`, and texts that may stand on it, longest first."""

    start: float
    end: float
    kind: str
    labels: tuple[str, ...] = ()


class GanttLane(Record):
    """Spans that do not overlap, on one row.

    A column of which spans take less than the share `least` stays blank. `behind` is written at
    the end of the row; `mark` is a moment that is marked, such as a deadline.
    """

    name: str
    spans: tuple[Span, ...]
    least: float = 0.0
    behind: str = ""
    mark: float | None = None


class GanttChart(Record):
    """Lanes of spans over time, from `start` to `end` in the numbers of the axis.

    `slot` is how long an average span lasts, and `ramp` how long the lanes take to fill or to
    drain: where a slot would be narrower than a character, the middle is left out. `behind` heads
    what is written behind rows.
    """

    title: str
    caption: str
    axis: ChartAxis
    start: float = 0.0
    end: float
    lanes: tuple[GanttLane, ...]
    kinds: Mapping[str, SpanKind]
    slot: float = 0.0
    ramp: float = 0.0
    behind: str = ""
    legend: tuple[str, ...] = ()
    missing: str = ""

    @property
    def empty(self) -> bool:
        return self.end <= self.start or not any(lane.spans for lane in self.lanes)


AnyChart: TypeAlias = PointChart | BarChart | GanttChart


def title_of(chart: AnyChart) -> str:
    """The title, with the unit of numbers that stand behind estimates."""
    bars = chart if isinstance(chart, BarChart) and chart.estimates else None
    unit = bars.axis.unit.unit if bars and bars.axis.unit else ""
    return f"{chart.title} ({unit})" if unit else chart.title


def tells_money(chart: AnyChart) -> bool:
    axes = (chart.x, chart.y) if isinstance(chart, PointChart) else (chart.axis,)
    return any(axis.dimension in (Dimension.USD, Dimension.USD_PER_HOUR) for axis in axes)
