"""Scatter and line plots in plain characters: axes in logarithms or plain, a mark a series."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from trnbench.facts.records import Record

MARKS = "ox+*#@%&"
"""One for each series, so that colour is never the only difference."""
LEFT = 11


class PlotSeries(Record):
    """Points of one kind; `joined` draws a line of dots between them instead of marks."""

    label: str
    points: tuple[tuple[float, float], ...]
    joined: bool = False


class PlotAxis(Record):
    """An axis, logarithmic unless `linear`: its title and how its numbers are written."""

    title: str
    text: Callable[[float], str]
    linear: bool = False

    def place(self, value: float) -> float:
        """Return where a number lies along the axis, in whatever unit."""
        return value if self.linear else math.log10(value)

    def number(self, place: float) -> float:
        """Return the number at a place."""
        return place if self.linear else 10**place


def log_plot(
    series: Sequence[PlotSeries], x: PlotAxis, y: PlotAxis, *, width: int = 78, height: int = 18
) -> str:
    """Return a plot on two axes; points that are not positive, or endless, are left out."""
    drawn = [point for one in series for point in one.points if _drawable(point)]
    if not drawn:
        return "nothing to plot"
    columns = max(width - LEFT - 2, 20)
    xs = _span([x.place(point[0]) for point in drawn])
    ys = _span([y.place(point[1]) for point in drawn])
    canvas = [[" "] * columns for _ in range(height)]

    def put(point: tuple[float, float], mark: str, *, over: bool) -> None:
        column = round(_share(x.place(point[0]), xs) * (columns - 1))
        row = height - 1 - round(_share(y.place(point[1]), ys) * (height - 1))
        if over or canvas[row][column] == " ":
            canvas[row][column] = mark

    marks = iter(MARKS * (len(series) // len(MARKS) + 1))
    legend = []
    for one in series:
        points = [point for point in one.points if _drawable(point)]
        if one.joined:
            for point in _between(points, columns):
                put(point, ".", over=False)
            legend.append(f". {one.label}")
        else:
            mark = next(marks)
            for point in points:
                put(point, mark, over=True)
            legend.append(f"{mark} {one.label}")
    return "\n".join(
        [
            f"{y.title}",
            *_rows(canvas, ys, y),
            " " * LEFT + "+" + "-" * columns,
            _ticks(xs, x, columns),
            " " * LEFT + f" {x.title}",
            *(" " * LEFT + f" {entry}" for entry in legend),
        ]
    )


def _drawable(point: tuple[float, float]) -> bool:
    return all(0 < number < math.inf for number in point)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    # A single value still needs an axis around it.
    return (low, high) if high - low > 1e-9 else (low - 0.5, high + 0.5)


def _share(value: float, span: tuple[float, float]) -> float:
    return (value - span[0]) / (span[1] - span[0])


def _between(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[float, float]]:
    dots: list[tuple[float, float]] = list(points[:1])
    for (x0, y0), (x1, y1) in pairwise(points):
        for step in range(1, columns + 1):
            share = step / columns
            dots.append((x0 ** (1 - share) * x1**share, y0 ** (1 - share) * y1**share))
    return dots


def _rows(canvas: list[list[str]], ys: tuple[float, float], axis: PlotAxis) -> list[str]:
    last = len(canvas) - 1
    lines = []
    for i, row in enumerate(canvas):
        share = 1 - i / last
        labelled = i % max(last // 4, 1) == 0
        value = axis.number(ys[0] + share * (ys[1] - ys[0]))
        label = axis.text(value) if labelled else ""
        lines.append(f"{label:>{LEFT - 1}} |{''.join(row)}".rstrip())
    return lines


def _ticks(xs: tuple[float, float], axis: PlotAxis, columns: int) -> str:
    line = [" "] * (LEFT + 1 + columns + 12)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        text = axis.text(axis.number(xs[0] + share * (xs[1] - xs[0])))
        start = LEFT + 1 + round(share * (columns - 1)) - (len(text) // 2 if share else 0)
        start = min(start, LEFT + 1 + columns - len(text))
        line[start : start + len(text)] = text
    return "".join(line).rstrip()
