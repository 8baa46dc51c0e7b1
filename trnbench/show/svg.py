"""Charts as SVG: own drawings that need nothing else, readable in grey, on light and on dark.

Colours are CSS variables with values of their own, so that a page or a viewer that is dark turns
them. Kinds differ by shape and by letter as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from string import ascii_uppercase

from trnbench.errors import unhandled
from trnbench.facts.terminal_text import shown
from trnbench.show.charts import BarChart, Chart, PictureSeries, PointChart
from trnbench.show.plot import PlotAxis

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 76, 14, 14, 40
BAR, GAP = 22, 10
LINE = 16
INK = ("#1a4f8a", "#a34a00", "#1f6b3a", "#7a2a7a", "#8a6d00", "#a01f3c", "#2a6f7a", "#555555")
INK_ON_DARK = (
    *("#8ab8f0", "#f0a860", "#80cc98", "#d898d8", "#d8c050", "#f08aa0", "#78c8d8", "#bbbbbb"),
)
STYLE = "".join(
    (
        ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1b1b;--faint:#595959;--rule:#d0d0d0;",
        *(f"--s{n}:{colour};" for n, colour in enumerate(INK)),
        "}@media(prefers-color-scheme:dark){:root{--paper:#161616;--ink:#ececec;--faint:#b4b4b4;",
        "--rule:#484848;",
        *(f"--s{n}:{colour};" for n, colour in enumerate(INK_ON_DARK)),
        "}}@media print{:root{--paper:#fff;--ink:#1b1b1b;--faint:#595959;--rule:#d0d0d0;",
        *(f"--s{n}:{colour};" for n, colour in enumerate(INK)),
        "}}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .faint{fill:var(--faint)}",
        "svg .rule{stroke:var(--rule);fill:none}svg .axis{stroke:var(--faint);fill:none}",
        *(f"svg .f{n}{{fill:var(--s{n})}}" for n in range(len(INK))),
        *(f"svg .l{n}{{stroke:var(--s{n});fill:none;stroke-width:1.6}}" for n in range(len(INK))),
        "svg .on{fill:var(--paper);font-weight:600}",
    )
)
_SHARE_WITH_LETTER = 0.035
_TICKS = 5
_LETTER = 8
"""Letters of a text are not wider, on average."""


def chart_svg(chart: Chart, *, alone: bool = False) -> str:
    """Return a chart as an SVG element; `alone`: as a file that carries its own colours."""
    match chart:
        case PointChart():
            body, height = _points(chart)
        case BarChart():
            body, height = _bars(chart)
        case unknown:
            unhandled(unknown, "drawing")
    own = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="var(--paper)"/>'
    name = escape(shown(chart.title), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{name}"><title>{name}</title>{own if alone else ""}{"".join(body)}</svg>'
    )


def _points(chart: PointChart) -> tuple[list[str], int]:
    marks = [mark for one in chart.series for mark in one.points]
    spans = [
        _span(chart.x, [mark[0] for mark in marks]),
        _span(chart.y, [end for mark in marks for end in mark[1:]]),
    ]
    if chart.diagonal:
        both = (min(low for low, _ in spans), max(high for _, high in spans))
        spans = [both, both]
    bottom = HEIGHT - BOTTOM

    def across(value: float) -> float:
        return LEFT + _share(chart.x, value, spans[0]) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return bottom - _share(chart.y, value, spans[1]) * (bottom - TOP)

    body = []
    for value in _ticks(chart.y, spans[1]):
        body.append(_line("rule", LEFT, up(value), WIDTH - RIGHT, up(value)))
        body.append(_text(LEFT - 6, up(value) + 4, chart.y.text(value), "end", "faint"))
    for value in _ticks(chart.x, spans[0]):
        body.append(_line("axis", across(value), bottom, across(value), bottom + 4))
        told = chart.x.text(value)
        place = min(across(value), WIDTH - len(told) * _LETTER / 2)
        body.append(_text(place, bottom + 18, told, "middle", "faint"))
    body.append(_line("axis", LEFT, bottom, WIDTH - RIGHT, bottom))
    body.append(_text(WIDTH - RIGHT, bottom + 34, chart.x.title, "end"))
    body.append(_text(6, TOP - 2, chart.y.title))
    if chart.diagonal:
        ends = [chart.x.number(end) for end in spans[0]]
        body.append(_line("axis", across(ends[0]), up(ends[0]), across(ends[1]), up(ends[1])))
    for number, one in enumerate(chart.series):
        places = [(across(x), up(y), up(low), up(high)) for x, y, low, high in one.points]
        body += _drawn(one, places, number)
    height = HEIGHT
    if len(chart.series) > 1 or chart.series[0].label:
        for number, one in enumerate(chart.series):
            body.append(_mark(number, LEFT + 6, height + 6))
            body.append(_text(LEFT + 18, height + 10, one.label))
            height += LINE
    return body, height + 4


def _drawn(
    one: PictureSeries, places: Sequence[tuple[float, float, float, float]], number: int
) -> list[str]:
    colour = number % len(INK)
    body = [_line(f"l{colour}", x, low, x, high) for x, _, low, high in places if low != high]
    if one.joined:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
        body.append(f'<polyline class="l{colour}" points="{line}"/>')
    # Thousands of marks would make a large file of one blot.
    drawn = places[:: max(len(places) // 1000, 1)]
    return [*body, *(_mark(number, x, y) for x, y, _, _ in drawn)]


def _mark(number: int, x: float, y: float) -> str:
    """Return a mark; the shapes are told apart without colour."""
    colour = number % len(INK)
    match number % 4:
        case 0:
            return f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        case 1:
            return _box(colour, x - 3.5, y - 3.5, (7, 7))
        case 2:
            way = f"M{x:.1f} {y - 5:.1f}l5 9h-10z"
            return f'<path class="f{colour}" d="{way}"/>'
        case _:
            way = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8"
            return f'<path class="l{colour}" d="{way}"/>'


def _bars(chart: BarChart) -> tuple[list[str], int]:
    ends = [end for _, start, parts in chart.bars for end in (start, start + sum(parts))]
    low, high = min(0.0, *ends), max(0.0, *ends)
    longest = max((len(name) for name, _, _ in chart.bars), default=0)
    left = min(max(LEFT + 60, 8 + longest * _LETTER), WIDTH // 2)
    room = WIDTH - left - 84
    unit = room / ((high - low) or 1.0)
    body: list[str] = []
    y = float(TOP)
    single = len(chart.parts) == 1
    for name, start, parts in chart.bars:
        x = left + (start - low) * unit
        body.append(_text(left - 8, y + 15, name, "end"))
        for number, part in enumerate(parts):
            wide = part * unit
            if wide <= 0:
                continue
            colour = number % len(INK)
            body.append(_box(colour, x, y, (max(wide - 1, 0.5), BAR)))
            if not single and part > _SHARE_WITH_LETTER * (high - low):
                letter = ascii_uppercase[number % 26]
                body.append(_text(x + wide / 2, y + 15, letter, "middle", "on"))
            x += wide
        whole = start if single and start < 0 else sum(parts)
        body.append(_text(x + 6, y + 15, chart.text(whole)))
        y += BAR + GAP
    if not single:
        for number, title in enumerate(chart.parts):
            column, level = number % 3, number // 3
            place = LEFT + 190 * column
            top = y + LINE * level
            body.append(_box(number % len(INK), place, top, (14, 13)))
            letter = ascii_uppercase[number % 26]
            body.append(_text(place + 7, top + 11, letter, "middle", "on"))
            body.append(_text(place + 20, top + 11, title))
        y += LINE * math.ceil(len(chart.parts) / 3)
    return body, round(y + 6)


def _span(axis: PlotAxis, values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis, in logarithms where it has them, with some air."""
    places = [axis.place(value) for value in values if value > 0]
    low, high = min(places), max(places)
    air = 0.06 * (high - low) or (0.5 if axis.linear else 0.1)
    return low - air, high + air


def _share(axis: PlotAxis, value: float, span: tuple[float, float]) -> float:
    return (axis.place(value) - span[0]) / (span[1] - span[0])


def _ticks(axis: PlotAxis, span: tuple[float, float]) -> list[float]:
    """Return round numbers along an axis, a few of them."""
    low, high = span
    if axis.linear:
        return _round_steps(low, high)
    decades = high - low
    found = [
        digit * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for digit in ((1,) if decades > 3 else (1, 2, 5))
        if low <= math.log10(digit * 10.0**power) <= high
    ]
    if len(found) < 3:
        return _round_steps(10**low, 10**high)
    return found[:: math.ceil(len(found) / (_TICKS + 2))]


def _round_steps(low: float, high: float) -> list[float]:
    raw = (high - low) / _TICKS
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * digit for digit in (1, 2, 5, 10) if size * digit >= raw)
    first = math.ceil(low / step)
    return [step * n for n in range(first, math.floor(high / step) + 1)]


def _box(colour: int, x: float, y: float, size: tuple[float, float]) -> str:
    wide, high = size
    place = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
    return f'<rect class="f{colour}" {place}/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}/>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    how = f' text-anchor="{anchor}"' if anchor != "start" else ""
    how += f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{how}>{escape(shown(text))}</text>'
