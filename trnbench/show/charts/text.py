"""Charts in plain characters: points on two axes, and horizontal bars.

The lines of bars are made of segments, so that the TUI colours the same drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from trnbench.errors import unhandled
from trnbench.show.charts.gantt import gantt_text
from trnbench.show.charts.record import (
    AnyChart,
    Bar,
    BarChart,
    Ends,
    GanttChart,
    PointChart,
    marks_of,
    title_of,
)
from trnbench.show.charts.ticks import cells_between, labels_of, tag_place, tick_lines, ticks_of
from trnbench.show.report import Report
from trnbench.show.text_table import Style

WIDEST, NARROWEST = 100, 30
HEIGHT = 18
LINE, UPRIGHT, ACROSS, GUIDE = ".", "|", "-", ":"
LIMIT = "|"
LEAST_BAR = 10
"""Columns that the longest bar has, however narrow the place is."""


def chart_text(chart: AnyChart, style: Style) -> str:
    """A chart as lines of characters, under its title."""
    match chart:
        case PointChart():
            lines = _points(chart, min(max(style.width, NARROWEST), WIDEST))
        case BarChart():
            width = min(style.width, WIDEST)
            lines = ["".join(one.text for one in line).rstrip() for line in bar_lines(chart, width)]
        case GanttChart():
            lines = gantt_text(chart, style).splitlines()
        case unknown:
            unhandled(unknown, "drawing")
    told = [chart.caption, "" if isinstance(chart, GanttChart) else chart.missing]
    below = [style.faint(style.wrap(text)) for text in told if text]
    return "\n".join([style.strong(title_of(chart)), *lines, *below])


def first_chart(report: Report, style: Style) -> str:
    return chart_text(report.charts[0], style) if report.charts else "nothing to plot"


class _Canvas:
    """Characters on a grid, over which positions of two axes are spread."""

    def __init__(self, spans: tuple[Ends, Ends], columns: int, height: int) -> None:
        self.rows = [[" "] * columns for _ in range(height)]
        self._spans = spans
        self.size = columns, height

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Column and row of a position."""
        (left, right), (low, high) = self._spans
        columns, height = self.size
        across = (x - left) / (right - left)
        return round(across * (columns - 1)), round((high - y) / (high - low) * (height - 1))

    def put(self, cell: tuple[int, int], text: str, *, over: bool = False) -> None:
        """Write a text from a cell on, not over anything unless it is to be."""
        column, row = cell
        for number, letter in enumerate(text):
            if 0 <= row < self.size[1] and 0 <= column + number < self.size[0]:
                line = self.rows[row]
                if over or line[column + number] == " ":
                    line[column + number] = letter


def _points(chart: PointChart, width: int) -> list[str]:
    drawn = chart.drawn
    if not drawn:
        return ["nothing to plot"]
    spans = chart.spans
    (left, right), (low, high) = spans
    levels = ticks_of(
        chart.y,
        low,
        high,
        lambda at: round((high - at) / (high - low) * (HEIGHT - 1)),
        upright=True,
    )
    labels = labels_of(chart.y, levels)
    margin = max(map(len, labels)) + 1
    columns = max(width - margin - 1, 20)
    canvas = _Canvas(spans, columns, HEIGHT)
    _draw(chart, canvas)
    head = [""] * HEIGHT
    for level, label in zip(levels, labels, strict=True):
        head[canvas.cell(left, level)[1]] = f"{label} "
    lines = [chart.y.heading]
    lines += [
        f"{label:>{margin}}|{''.join(row)}".rstrip()
        for label, row in zip(head, canvas.rows, strict=True)
    ]
    rule, below = tick_lines(chart.x, left, right, lambda at: canvas.cell(at, low)[0], columns)
    pad = " " * margin
    lines += [f"{pad}+{rule}", f"{pad} {below}".rstrip()]
    lines.append(f"{pad} {chart.x.heading}".rstrip())
    return lines + [f"{pad} {entry}" for entry in _legend(chart)]


def _draw(chart: PointChart, canvas: _Canvas) -> None:
    """Draw marks and names, then what may not hide them: intervals, lines, guides."""
    drawn, x, y = chart.drawn, chart.x, chart.y
    cells = [[canvas.cell(x.place(a), y.place(b)) for a, b in one.points] for one in drawn]
    lines = [
        (cell, ACROSS if low[1] == high[1] else UPRIGHT)
        for one in drawn
        for low, high in chart.intervals(one)
        for cell in cells_between([canvas.cell(*low), canvas.cell(*high)])
    ]
    by_rank = sorted(
        zip(drawn, marks_of(drawn), cells, strict=True), key=lambda one: not one[0].strong
    )
    for one, mark, at in by_rank:
        for cell in at if one.marked else ():
            canvas.put(cell, mark)
    marks = frozenset(cell for one, _, at in by_rank if one.marked for cell in at)
    for one, _, at in by_rank:
        taken = frozenset(cell for cell, _ in lines)
        place = tag_place(at[-1], one.tag, marks, canvas.size, taken) if one.tag else None
        if place is not None:
            canvas.put(place, one.tag)
    for cell, line in lines:
        canvas.put(cell, line)
    for one, at in zip(drawn, cells, strict=True):
        for cell in cells_between(at) if one.joined else ():
            canvas.put(cell, LINE)
    for guide in chart.guides:
        if guide.x is not None:
            column = canvas.cell(x.place(guide.x), 0.0)[0]
            for row in range(canvas.size[1]):
                canvas.put((column, row), GUIDE)
        if guide.y is not None:
            row = canvas.cell(0.0, y.place(guide.y))[1]
            for column in range(0, canvas.size[0], 2):
                canvas.put((column, row), GUIDE)


def _legend(chart: PointChart) -> Iterator[str]:
    drawn = chart.drawn
    for one, mark in zip(drawn, marks_of(drawn), strict=True):
        if one.label:
            yield f"{mark} {one.label}"
    for guide in chart.guides:
        yield f"{GUIDE} {guide.label}"


class Segment(NamedTuple):
    """A run of characters of one look: `hue` fills or colours it."""

    text: str
    hue: int | None = None
    strong: bool = False


def cells_of(lengths: Sequence[float], scale: float) -> list[int]:
    """Whole cells for each length, whose sum is the rounded total's."""
    cells: list[int] = []
    reached = 0.0
    for length in lengths:
        drawn = round(reached * scale)
        reached += length
        cells.append(round(reached * scale) - drawn)
    return cells


def bar_lines(chart: BarChart, width: int, *, filled: bool = False) -> list[list[Segment]]:
    """Lines of the bars with their legend; `filled`: parts are filled, and begin with their letter.

    Without that a part is a run of its letter.
    """
    tail = max((len(chart.text_of(bar)) for bar in chart.bars), default=0) + 2
    longest = max((len(bar.label) for bar in chart.bars), default=0) + 2
    left = min(longest, max(width - tail - LEAST_BAR, LEAST_BAR))
    room = max(width - left - tail, LEAST_BAR)
    low, high = chart.span
    scale = room / (high - low) if high > low else 0.0

    def column(value: float) -> int:
        return round((value - low) * scale)

    lines = []
    for bar in chart.bars:
        mark = ">" if bar.strong else " "
        line = [Segment(f"{mark}{bar.label:<{left - 2}.{left - 2}} ", strong=bar.strong)]
        line += _interval(bar, column) if bar.estimate else []
        line += [] if bar.estimate else _parts(chart, bar, (column(bar.start), scale), filled)
        drawn = sum(len(one.text) for one in line[1:])
        limit = column(bar.limit or 0.0)
        if bar.limit is not None and limit >= drawn:
            line.append(Segment(" " * (limit - drawn) + LIMIT, strong=True))
        lines.append([*line, Segment(f" {chart.text_of(bar)}", strong=bar.strong)])
    legend = _bar_legend(chart, width, filled)
    return [*lines, *([[], *legend] if legend else [])]


def _parts(chart: BarChart, bar: Bar, place: tuple[int, float], filled: bool) -> Iterator[Segment]:
    begin, scale = place
    if begin:
        yield Segment(" " * begin)
    lengths = [bar.parts.get(part.name, 0.0) for part in chart.parts]
    for part, count in zip(chart.parts, cells_of(lengths, scale), strict=True):
        if count:
            text = part.letter.ljust(count) if filled else part.letter * count
            yield Segment(text, part.hue)


def _interval(bar: Bar, column: Callable[[float], int]) -> Iterator[Segment]:
    """A dot on the line of its interval, and the limit where that lies before its end: [--o-|-]."""
    assert bar.estimate is not None
    ends = (bar.estimate.low, bar.estimate.value, bar.estimate.high)
    low, middle, high = (column(end) if math.isfinite(end) else column(ends[0]) for end in ends)
    letters = [" "] * low + ["-"] * (high + 1 - low)
    if low != high:
        letters[low], letters[high] = "[", "]"
    if bar.limit is not None and column(bar.limit) <= high:
        letters[column(bar.limit)] = LIMIT
    letters[middle] = "o"
    yield Segment("".join(letters[:low]))
    yield Segment("".join(letters[low:]), bar.hue)


def _bar_legend(chart: BarChart, width: int, filled: bool) -> list[list[Segment]]:
    """Lines of letters with names, and the shares of the strong bar, or of the first one."""
    chosen = next((bar for bar in chart.bars if bar.strong), next(iter(chart.bars), None))
    entries: list[tuple[Segment, str]] = []
    for part in chart.legend:
        share = chosen.parts.get(part.name, 0.0) / chosen.total if chosen and chosen.total else 0.0
        letter = f" {part.letter} " if filled else part.letter
        words = part.name.replace("_", "-")
        told = f" {words} {100 * share:.1f}%  " if chart.shares else f" {words}  "
        entries.append((Segment(letter, part.hue), told))
    if chart.limit and any(bar.limit is not None for bar in chart.bars):
        entries.append((Segment(LIMIT, strong=True), f" {chart.limit}  "))
    return legend_lines(entries, width)


def legend_lines(entries: Sequence[tuple[Segment, str]], width: int) -> list[list[Segment]]:
    """Marks with their names in lines of this width: none is broken in two."""
    lines: list[list[Segment]] = []
    column = width
    for mark, name in entries:
        if column + len(mark.text) + len(name.rstrip()) > width:
            lines.append([])
            column = 0
        lines[-1] += [mark, Segment(name)]
        column += len(mark.text) + len(name)
    return lines
