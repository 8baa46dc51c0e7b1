"""Drawings in cells of a terminal, in colour where there is colour: heat maps, planes, memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual.app import App

from trnbench.facts.units import Dimension, show
from trnbench.show.charts.record import BarPart, parts_of
from trnbench.show.charts.text import Segment, cells_of, legend_lines
from trnbench.show.drawing import loaded_torus

if TYPE_CHECKING:
    from trnbench.verbs.collective.answer import Plane

LEVELS = (0.25, 0.5, 0.75, 0.9)
SHADES = (" ", ".", ":", "+", "#")
"""Behind the number of a cell without colour, from the lowest level up."""
FILLED = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""Viridis of matplotlib: brighter is more, also for who sees no hues."""
FILLED_ANSI = ("red", "magenta", "blue", "cyan", "green")
DARK_LEVELS = 3
"""So many levels, from the lowest up, have light numbers."""
CELL, LEFT = 5, 6
COARSE = (128, 512, 2048, 8192, 32768)
POWERS = tuple(2**power for power in range(7, 16))
FINE = tuple(sorted({*POWERS, *(3 * size // 2 for size in POWERS[:-1])}))
LEAST_LINES = 11
"""Lines that a map may take where there is less room: its panel scrolls then."""


def abreast(blocks: Sequence[Sequence[Text]], width: int, *, gap: int) -> Text:
    """Blocks of equal height side by side as far as `width` goes, then below."""
    text = Text()
    widths = [max(len(line) for line in block) + gap for block in blocks]
    start = 0
    while start < len(blocks):
        end, used = start + 1, widths[start]
        while end < len(blocks) and used + widths[end] <= width:
            used += widths[end]
            end += 1
        for lines in zip(*blocks[start:end], strict=True):
            for line, wide in zip(lines, widths[start:end], strict=True):
                padded = line.copy()
                padded.pad_right(max(wide - len(line), 0))
                text.append_text(padded)
            text.append("\n")
        text.append("\n")
        start = end
    return text


def sizes_for(columns: int, lines: int) -> tuple[int, ...]:
    """The sizes along an axis, as many as fit."""
    for sizes in (FINE, POWERS):
        if LEFT + CELL * len(sizes) <= columns and len(sizes) + 2 <= max(lines, LEAST_LINES):
            return sizes
    return COARSE


def level_of(value: float) -> int:
    return sum(value >= level for level in LEVELS)


def level_styles(app: App[object]) -> list[Style]:
    """The styles of the levels: filled cells, or none with NO_COLOR."""
    if app.no_color:
        return [Style.null()] * len(SHADES)
    colours = FILLED_ANSI if app.theme.startswith("ansi") else FILLED
    return [
        Style(color="white" if level < DARK_LEVELS else "black", bgcolor=colour)
        for level, colour in enumerate(colours)
    ]


def draw_heat(
    maps: Mapping[str, Mapping[tuple[int, int], float | None]], width: int, styles: Sequence[Style]
) -> Text:
    """Maps by title side by side as far as they fit; `styles` belong to the levels.

    A map has shares by (m, n), the same sizes along both axes, and None where there is no answer.
    """
    if not maps:
        return Text("nothing to draw")
    blocks = [_heat_lines(title, values, styles) for title, values in maps.items()]
    text = abreast(blocks, width, gap=3)
    for low, high, shade, style in zip((0.0, *LEVELS), (*LEVELS, 1.0), SHADES, styles, strict=True):
        text.append(_cell(f"{100 * low:.0f}-{100 * high:.0f}", shade, style))
        text.append(" ")
    return text


def _heat_lines(
    title: str, values: Mapping[tuple[int, int], float | None], styles: Sequence[Style]
) -> list[Text]:
    sizes = sorted({m for m, _ in values})
    lines = [
        Text(f"{title}: m down, n across", style="bold"),
        Text(" " * LEFT + "".join(f"{size_text(n):>{CELL}}" for n in sizes)),
    ]
    for m in sizes:
        line = Text(f"{size_text(m):>{LEFT}}")
        for n in sizes:
            value = values.get((m, n))
            if value is None:
                line.append(f"{'no':>{CELL - 1}} ", style="dim")
                continue
            level = level_of(value)
            line.append(_cell(f"{100 * value:>{CELL - 1}.0f}", SHADES[level], styles[level]))
        lines.append(line)
    return lines


def _cell(number: str, shade: str, style: Style) -> Text:
    return Text(f"{number}{' ' if style.bgcolor else shade}", style=style)


def size_text(size: int) -> str:
    """A size in at most four letters: 128, 1.5k, 32k."""
    return f"{size}" if size < 1024 else f"{size / 1024:g}k"


_ROW_LOAD = re.compile(r"-\s*(\d+)-")
_LOAD = re.compile(r"(\d+)")
HALF, HIGH = 50, 90
"""From these loads on, in %, a link is drawn as busy, and as the busiest."""


def draw_planes(planes: Sequence[Plane], width: int, styles: tuple[Style, Style, Style]) -> Text:
    """The planes side by side as far as they fit.

    `styles` are those of idle, busy and busiest links.
    """
    return abreast([_block(plane, styles) for plane in planes], width, gap=4)


def _block(plane: Plane, styles: tuple[Style, Style, Style]) -> list[Text]:
    lines = [Text(plane.name, style="bold")]
    for number, line in enumerate(loaded_torus(plane.shape, plane.right, plane.below)):
        text = Text(line)
        for match in (_LOAD if number % 2 else _ROW_LOAD).finditer(line):
            text.stylize(_style(int(match[1]), styles), *match.span(1))
        lines.append(text)
    if plane.onward:
        rows, columns = plane.shape
        lines.append(Text("to other planes, %:", style="dim"))
        for row in range(rows):
            ahead = Text()
            for column in range(columns):
                load = round(100 * plane.onward[row * columns + column])
                ahead.append(f"{load:>5}", style=_style(load, styles))
            lines.append(ahead)
    return lines


def _style(load: int, styles: tuple[Style, Style, Style]) -> Style:
    return styles[0] if load < HALF else styles[1] if load < HIGH else styles[2]


SCALE = 11
"""Columns of the scale on the left."""


def draw_area(
    instants: Sequence[Mapping[str, float]],
    limit: float,
    here: int | None,
    size: tuple[int, int],
    styles: Sequence[Style],
) -> Text:
    """Bytes by part at successive instants, in the given room; a line of dashes is the limit.

    `here` is the instant under the cursor. Where several share a column, the one that holds most
    is drawn.
    """
    names = [name for name in (instants or [{}])[0] if any(instant[name] for instant in instants)]
    parts = parts_of(names)
    legend = _legend(parts, size[0], styles)
    columns = max(size[0] - SCALE - 1, 8)
    lines = max(size[1] - 2 - legend.plain.count("\n"), 3)
    groups = stretches(len(instants), columns)
    drawn = [max((instants[i] for i in group), key=_total) for group in groups]
    peak = max(map(_total, drawn), default=0.0)
    highest = max(limit, peak)
    scale = lines / highest if highest > 0 else 0.0
    wide = max(columns // max(len(groups), 1), 1)
    stacks = []
    for block in drawn:
        cells = cells_of([block.get(part.name, 0.0) for part in parts], scale)
        stacks.append([part for part, n in zip(parts, cells, strict=True) for _ in range(n)])
    peak_line, limit_line = (min(round(held * scale), lines) - 1 for held in (peak, limit))
    marks = {peak_line: show(peak, Dimension.BYTES, digits=3)}
    marks |= {limit_line: show(limit, Dimension.BYTES, digits=3)}
    text = Text()
    for line in range(lines - 1, -1, -1):
        text.append(f"{marks.get(line, ''):>{SCALE - 1}} |")
        before = None
        for stack in stacks:
            part = stack[line] if line < len(stack) else None
            if part is None:
                text.append(("-" if line == limit_line else " ") * wide)
            elif styles[part.hue].bgcolor:
                # Its letter once where it begins: colours are not all that tells parts apart.
                letter = part.letter if part != before else ""
                text.append(f"{letter:<{wide}}", styles[part.hue])
            else:
                text.append(part.letter * wide, styles[part.hue])
            before = part
        text.append("\n")
    at = next((number for number, group in enumerate(groups) if here in group), None)
    text.append(" " * (SCALE + 1) + ("" if at is None else " " * (at * wide) + "^") + "\n")
    text.append_text(legend)
    return text


def _legend(parts: Sequence[BarPart], width: int, styles: Sequence[Style]) -> Text:
    """Legend of the parts, in lines of this width."""
    entries = []
    for part in parts:
        filled = styles[part.hue].bgcolor is not None
        mark = Segment(f" {part.letter} " if filled else part.letter, part.hue)
        entries.append((mark, f" {part.name}  "))
    text = Text()
    for number, line in enumerate(legend_lines(entries, width)):
        text.append("\n" if number else "")
        for span in line:
            text.append(span.text, "" if span.hue is None else styles[span.hue])
    return text


def stretches(count: int, columns: int) -> list[range]:
    """Instants of each column, in order; each instant is in a single column."""
    used = min(count, columns)
    return [range(i * count // used, (i + 1) * count // used) for i in range(used)] if used else []


def _total(parts: Mapping[str, float]) -> float:
    return sum(parts.values())
