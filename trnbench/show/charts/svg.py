"""Charts as SVG: own drawings that need nothing else, readable in grey, on light and on dark.

Colours are CSS variables with values of their own, so that a page or a viewer that is dark turns
them. Kinds differ by shape and by letter as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from textwrap import wrap

from trnbench.errors import unhandled
from trnbench.facts.records import Record, replace
from trnbench.facts.terminal_text import shown
from trnbench.show.charts.gantt import Panel, label_of, left_out, panels_of, runs_of
from trnbench.show.charts.record import (
    AnyChart,
    Bar,
    BarChart,
    BarPart,
    ChartAxis,
    Ends,
    GanttChart,
    GanttLane,
    Guide,
    Point,
    PointChart,
    Series,
    title_of,
)
from trnbench.show.charts.ticks import labels_of, ticks_of

WIDTH, HEIGHT = 640, 300
RIGHT, TOP, BOTTOM = 14, 24, 40
BAR, GAP = 22, 10
LINE = 16
LETTER = 8
"""Letters of a text are not wider, on average."""
_HUE_OF = {"cyan": 0, "yellow": 1, "green": 2, "white": 7, "magenta": 3, "blue": 6}
_LEAST_LETTERED = 12
"""A part of a bar has its letter where it is at least this wide."""
_MOST_TALL_LANES, _LOW_LANE = 16, 12
_MOST_IN_ONE_COLUMN = 6
_MOST_MARKS = 1000
"""More marks would make a large file of one blot."""


@cache
def chart_style() -> str:
    return files("trnbench.show").joinpath("templates/chart.css").read_text(encoding="utf-8")


def chart_svg(chart: AnyChart, *, alone: bool = False) -> str:
    """A chart as an SVG element; `alone`: as a file that shows its title and has own colours."""
    match chart:
        case PointChart():
            body, height = _points(chart)
        case BarChart():
            body, height = _bars(chart)
        case GanttChart():
            body, height = _gantt(chart)
        case unknown:
            unhandled(unknown, "drawing")
    title, caption = title_of(chart), caption_of(chart)
    own = ""
    if alone:
        lines = wrap(caption, WIDTH // 6)
        head = 28 + LINE * len(lines)
        texts = [_text(6, 18, title, kind="title")]
        texts += [_text(6, 34 + LINE * n, line, kind="faint") for n, line in enumerate(lines)]
        own = (
            f'<style>{chart_style()}</style><rect width="100%" height="100%" fill="var(--paper)"/>'
        )
        body = [*texts, f'<g transform="translate(0 {head})">', *body, "</g>"]
        height += head
    name = _escaped(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{name}"><title>{name}</title><desc>{_escaped(caption)}</desc>'
        f"{own}{''.join(body)}</svg>"
    )


def caption_of(chart: AnyChart) -> str:
    return "; ".join(filter(None, (chart.caption, chart.missing)))


class _Frame(Record):
    """Positions of numbers on the paper, right of `left` and above `bottom`."""

    x: ChartAxis
    y: ChartAxis
    spans: tuple[Ends, Ends]
    left: float
    bottom: float = HEIGHT - BOTTOM

    def across(self, place: float) -> float:
        low, high = self.spans[0]
        return self.left + (place - low) / (high - low) * (WIDTH - self.left - RIGHT)

    def up(self, place: float) -> float:
        low, high = self.spans[1]
        return self.bottom - (place - low) / (high - low) * (self.bottom - TOP)

    def on(self, x: float, y: float) -> Point:
        return self.across(x), self.up(y)


def _points(chart: PointChart) -> tuple[list[str], float]:
    drawn = chart.drawn
    if not drawn:
        return [_text(6, TOP, "nothing to plot")], TOP + LINE
    spans = chart.spans
    # Labels have the same lines wherever the frame begins.
    upward = _Frame(x=chart.x, y=chart.y, spans=spans, left=0.0)
    levels = ticks_of(chart.y, *spans[1], lambda at: round(upward.up(at) / LINE), upright=True)
    labels = labels_of(chart.y, levels)
    frame = replace(upward, left=max(max(map(len, labels)) * LETTER, 30) + 12.0)
    body = [_text(6, TOP - 8, chart.y.heading)]
    for level, label in zip(levels, labels, strict=True):
        y = frame.up(level)
        body.append(_line("rule", frame.left, y, WIDTH - RIGHT, y))
        body.append(_text(frame.left - 6, y + 4, label, "end", "faint"))
    right = WIDTH - RIGHT
    body += _ticked(chart.x, spans[0], frame.across, frame.bottom, (frame.left, right))
    body.append(_text(right, frame.bottom + 34, chart.x.heading, "end"))
    for guide in chart.guides:
        body += _guide(guide, frame)
    # The strong series last: nothing hides it.
    for one in sorted(drawn, key=lambda each: each.strong):
        body += _series(chart, one, frame)
    named = [one for one in drawn if one.label]
    body += _legend(named, frame.left + 6)
    return body, HEIGHT + LINE * math.ceil(len(named) / _columns(named)) + 4


def _columns(named: Sequence[Series]) -> int:
    long = any(len(one.label) * LETTER > WIDTH / 2 for one in named)
    return 1 if long or len(named) < _MOST_IN_ONE_COLUMN else 2


def _legend(named: Sequence[Series], left: float) -> Iterator[str]:
    columns = _columns(named)
    for number, one in enumerate(named):
        x, y = left + WIDTH // 2 * (number % columns), HEIGHT + 6 + LINE * (number // columns)
        hue = one.hue or 0
        if one.marked:
            yield _mark(hue, x, y)
        if one.joined:
            yield _line(f"l{hue}", x - 10, y, x + 10, y)
        yield _text(x + 16, y + 4, one.label, kind="strong" * one.strong)


def _ticked(
    axis: ChartAxis, span: Ends, across: Callable[[float], float], y: float, ends: Ends
) -> Iterator[str]:
    """A horizontal axis at `y`, from end to end, with ticks and labels below."""
    yield _line("axis", ends[0], y, ends[1], y)
    ticks = ticks_of(axis, *span, lambda at: round(across(at) / LETTER), upright=False)
    for tick, label in zip(ticks, labels_of(axis, ticks), strict=True):
        x, half = across(tick), len(label) * LETTER / 2
        yield _line("axis", x, y, x, y + 4)
        yield _text(min(max(x, ends[0] + half), WIDTH - half), y + 18, label, "middle", "faint")


def _guide(guide: Guide, frame: _Frame) -> Iterator[str]:
    if guide.x is not None:
        x = frame.across(frame.x.place(guide.x))
        yield _line("guide", x, TOP, x, frame.bottom)
        yield _beside(x, TOP + 10, guide.label, "faint", gap=5)
    if guide.y is not None:
        y = frame.up(frame.y.place(guide.y))
        yield _line("guide", frame.left, y, WIDTH - RIGHT, y)
        yield _text(WIDTH - RIGHT, y - 4, guide.label, "end", "faint")


def _series(chart: PointChart, one: Series, frame: _Frame) -> Iterator[str]:
    hue = one.hue or 0
    places = [frame.on(chart.x.place(x), chart.y.place(y)) for x, y in one.points]
    for low, high in chart.intervals(one):
        x1, y1, x2, y2 = *frame.on(*low), *frame.on(*high)
        yield _line(f"l{hue}", x1, y1, x2, y2)
        # The caps stand across the interval.
        aside, upward = (0, 4) if y1 == y2 else (4, 0)
        for x, y in ((x1, y1), (x2, y2)):
            yield _line(f"l{hue}", x - aside, y - upward, x + aside, y + upward)
    if one.joined and len(places) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="l{hue}" points="{line}"/>'
    for x, y in places[:: max(len(places) // _MOST_MARKS, 1)] if one.marked else ():
        if one.strong:
            yield f'<path class="ends" d="M{x - 8:.1f} {y:.1f}a8 8 0 1 0 16 0a8 8 0 1 0 -16 0"/>'
        yield _mark(hue, x, y)
    if one.tag:
        yield _beside(places[-1][0], places[-1][1] - 6, one.tag, "strong", gap=12)


def _beside(x: float, y: float, text: str, kind: str, *, gap: float) -> str:
    right = x + gap + len(text) * LETTER < WIDTH
    return _text(x + gap if right else x - gap, y, text, "start" if right else "end", kind)


def _mark(hue: int, x: float, y: float) -> str:
    """A mark; the shapes are told apart without colour."""
    match hue % 4:
        case 0:
            return f'<circle class="f{hue}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        case 1:
            return _box(hue, x - 3.5, y - 3.5, (7, 7))
        case 2:
            return f'<path class="f{hue}" d="M{x:.1f} {y - 5:.1f}l5 9h-10z"/>'
        case _:
            return f'<path class="l{hue}" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8"/>'


def _bars(chart: BarChart) -> tuple[list[str], float]:
    low, high = chart.span
    # Behind the stroke of its limit a number alone would be taken for the limit.
    texts = [
        chart.text_of(bar)
        + (f" of {chart.axis.text(bar.limit)}" if bar.limit is not None and bar.parts else "")
        for bar in chart.bars
    ]
    left = min(max([len(bar.label) for bar in chart.bars], default=0) * LETTER + 16, WIDTH // 2)
    room = WIDTH - left - max(map(len, texts), default=0) * LETTER - 12
    room = max(room, 80)
    unit = room / ((high - low) or 1.0)
    body: list[str] = []
    y = 4.0
    for bar, text in zip(chart.bars, texts, strict=True):
        kind = "strong" * bar.strong
        body.append(_text(left - 8, y + 15, _fitting(bar.label, left - 16), "end", kind))
        start = left + (bar.start - low) * unit
        end: float = left + room
        if bar.estimate is None:
            end = _bar_parts(chart, bar, (start, y, unit), body)
        else:
            body.append(_line("rule", left, y + BAR / 2, left + room, y + BAR / 2))
            body += _estimate(bar, (left - low * unit, y, unit))
        if bar.limit is not None:
            at = left + (bar.limit - low) * unit
            body.append(_line("guide", at, y - GAP / 2, at, y + BAR + GAP / 2))
            end = max(end, at) if abs(at - end) < LETTER * len(text) + 6 else end
        body.append(_text(end + 6, y + 15, text, kind=kind))
        y += BAR + GAP
    if chart.estimates:
        axis = replace(chart.axis, kind="linear")
        ends = (left, left + room)
        body += _ticked(axis, (low, high), lambda at: left + (at - low) * unit, y, ends)
        y += 28
    if chart.limit and any(bar.limit is not None for bar in chart.bars):
        body.append(_line("guide", left - 20, y + 6, left, y + 6))
        body.append(_text(left + 6, y + 10, chart.limit))
        y += LINE
    return [*body, *_part_legend(chart.legend, y)], y + LINE * math.ceil(len(chart.legend) / 3) + 6


def _fitting(label: str, width: float) -> str:
    """A label that is no wider than this; a longer one loses its middle."""
    most = int(width / LETTER)
    half = (most - 1) // 2
    return label if len(label) <= most else f"{label[:half]}\u2026{label[-(most - half - 1) :]}"


def _bar_parts(
    chart: BarChart, bar: Bar, place: tuple[float, float, float], body: list[str]
) -> float:
    """Draw the parts of a bar; the end of the last."""
    x, y, unit = place
    for part in chart.parts:
        wide = bar.parts.get(part.name, 0.0) * unit
        if wide > 0:
            body.append(_box(part.hue, x, y, (max(wide - 1, 0.5), BAR)))
            if wide >= _LEAST_LETTERED and len(chart.parts) > 1:
                body.append(_text(x + wide / 2, y + 15, part.letter, "middle", "on"))
            x += wide
    return x


def _estimate(bar: Bar, place: tuple[float, float, float]) -> Iterator[str]:
    """A dot at an estimate, on the line of its interval."""
    assert bar.estimate is not None
    zero, y, unit = place
    low, value, high = (
        zero + end * unit for end in (bar.estimate.low, bar.estimate.value, bar.estimate.high)
    )
    middle = y + BAR / 2
    if low < high:
        caps = "".join(f"M{end:.1f} {middle - 5:.1f}v10" for end in (low, high))
        yield f'<path class="l{bar.hue} wide" d="M{low:.1f} {middle:.1f}H{high:.1f}{caps}"/>'
    yield f'<circle class="f{bar.hue}" cx="{value:.1f}" cy="{middle:.1f}" r="6"/>'


def _part_legend(parts: Sequence[BarPart], y: float) -> Iterator[str]:
    if len(parts) < 2:
        return
    for number, part in enumerate(parts):
        column, top = 60 + 190 * (number % 3), y + LINE * (number // 3)
        yield _box(part.hue, column, top, (14, 13))
        yield _text(column + 7, top + 11, part.letter, "middle", "on")
        yield _text(column + 20, top + 11, part.name)


def _gantt(chart: GanttChart) -> tuple[list[str], float]:
    left = float(max((len(lane.name) for lane in chart.lanes), default=0) * LETTER + 12)
    behind = max(map(len, [chart.behind, *(lane.behind for lane in chart.lanes)])) * LETTER
    panels = panels_of(chart, round(WIDTH - left - behind - 10))
    # Each panel with the place of its left edge; a gap of a unit lies between two.
    starts = [left + sum(one.columns + 1 for one in panels[:n]) for n in range(len(panels))]
    frame = list(zip(starts, panels, strict=True))
    high = BAR if len(chart.lanes) <= _MOST_TALL_LANES else _LOW_LANE
    y = 4.0
    body = []
    if chart.behind:
        body.append(_text(WIDTH - 4, 14, chart.behind, "end", "faint"))
        y += LINE
    for lane in chart.lanes:
        body.append(_text(left - 6, y + high - 4, lane.name.strip(), "end"))
        body.append(_text(WIDTH - 4, y + high - 4, lane.behind, "end", "faint"))
        for start, panel in frame:
            body += _lane(chart, lane, panel, (start, y, high))
        y += high + 2
    for start, panel in frame:
        span, ends = (panel.start, panel.end), (start, start + panel.columns - 1)
        body += _ticked(chart.axis, span, _columns_from(start, panel), y, ends)
    unit = chart.axis.unit.unit if chart.axis.unit else ""
    body.append(_text(left - 6, y + 18, unit, "end", "faint"))
    used = {span.kind for lane in chart.lanes for span in lane.spans}
    kinds = {one.letter: one for name, one in chart.kinds.items() if name in used}
    parts = [
        BarPart(name=one.legend, letter=one.letter, hue=_HUE_OF[one.colour])
        for one in kinds.values()
    ]
    body += _part_legend(parts, y + 28)
    y += 28 + (LINE * math.ceil(len(parts) / 3) if len(parts) > 1 else 0)
    for line in left_out(chart, panels):
        body.append(_text(60, y + 11, line, kind="faint"))
        y += LINE
    return body, y + 6


def _columns_from(left: float, panel: Panel) -> Callable[[float], float]:
    return lambda time: left + panel.cell(time)


def _lane(
    chart: GanttChart, lane: GanttLane, panel: Panel, place: tuple[float, float, float]
) -> Iterator[str]:
    left, y, high = place
    for span, cells in runs_of(lane, panel):
        kind, x = chart.kinds[span.kind], left + cells.start
        yield _box(_HUE_OF[kind.colour], x, y, (max(len(cells) - 1, 0.5), high))
        if len(cells) >= _LEAST_LETTERED and high == BAR and kind.solid:
            text = kind.letter + label_of(span, len(cells) // LETTER - 1)
            yield _text(x + 3, y + 15, text, kind="on")
    if lane.mark is not None and panel.start < lane.mark <= panel.end:
        at = left + panel.cell(lane.mark)
        yield _line("guide", at, y - 1, at, y + high + 1)


def _box(hue: int, x: float, y: float, size: tuple[float, float]) -> str:
    wide, high = size
    place = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
    return f'<rect class="f{hue}" {place}/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}/>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    how = f' text-anchor="{anchor}"' if anchor != "start" else ""
    how += f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{how}>{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    return escape(shown(text), quote=True)
