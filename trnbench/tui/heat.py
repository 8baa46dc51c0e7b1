"""A heat map of shapes in filled cells: every cell says its number; without colour, a sign too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.style import Style
from rich.text import Text
from textual.app import App

from trnbench.facts.records import Record
from trnbench.tui.colours import abreast

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


class HeatMap(Record):
    """Shares by (row, column); None where there is no answer. Sizes are along both axes."""

    title: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    values: Mapping[tuple[int, int], float | None]


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
    maps: Sequence[HeatMap], axes: tuple[str, str], width: int, styles: Sequence[Style]
) -> Text:
    """The maps side by side as far as they fit; `styles` belong to the levels."""
    if not maps:
        return Text("nothing to draw")
    text = abreast([_lines(heat, axes, styles) for heat in maps], width, gap=3)
    for level, shade in enumerate(SHADES):
        low = 0 if level == 0 else LEVELS[level - 1]
        high = LEVELS[level] if level < len(LEVELS) else 1.0
        text.append(_cell(f"{100 * low:.0f}-{100 * high:.0f}", shade, styles[level]))
        text.append(" ")
    return text


def _lines(heat: HeatMap, axes: tuple[str, str], styles: Sequence[Style]) -> list[Text]:
    lines = [
        Text(f"{heat.title}: {axes[0]} down, {axes[1]} across", style="bold"),
        Text(" " * LEFT + "".join(f"{size_text(n):>{CELL}}" for n in heat.columns)),
    ]
    for row in heat.rows:
        line = Text(f"{size_text(row):>{LEFT}}")
        for column in heat.columns:
            value = heat.values.get((row, column))
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
