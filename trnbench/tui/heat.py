"""A heat map of shapes in characters: every cell says its number, shade and colour repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from trnbench.tui.colours import abreast

LEVELS = (0.25, 0.5, 0.75, 0.9)
SHADES = (" ", ".", ":", "+", "#")
"""Behind the number of a cell, from the lowest level up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Shares by (row, column); None where there is no answer. Sizes are along both axes."""

    title: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    values: Mapping[tuple[int, int], float | None]


def level_of(value: float) -> int:
    """Return in which of the levels a share lies, from 0."""
    return sum(value >= level for level in LEVELS)


def draw_heat(
    maps: Sequence[HeatMap], axes: tuple[str, str], width: int, styles: Sequence[Style]
) -> Text:
    """Return the maps side by side as far as there is room; `styles` are the levels'."""
    if not maps:
        return Text("nothing to draw")
    cell = max(6, *(len(f"{size:,}") + 1 for size in maps[0].columns))
    left = max(len(f"{size:,}") for size in maps[0].rows) + 1
    text = abreast([_lines(heat, axes, left, cell, styles) for heat in maps], width, gap=3)
    for level, shade in enumerate(SHADES):
        low = 0 if level == 0 else LEVELS[level - 1]
        high = LEVELS[level] if level < len(LEVELS) else 1.0
        text.append(f" {100 * low:.0f}-{100 * high:.0f}%{shade} ", style=styles[level])
        text.append(" ")
    return text


def _lines(
    heat: HeatMap, axes: tuple[str, str], left: int, cell: int, styles: Sequence[Style]
) -> list[Text]:
    head = f"{axes[0]}\\{axes[1]}"
    lines = [
        Text(heat.title, style="bold"),
        Text(f"{head:>{left}}" + "".join(f"{size:>{cell},}" for size in heat.columns)),
    ]
    for row in heat.rows:
        line = Text(f"{row:>{left},}")
        for column in heat.columns:
            value = heat.values.get((row, column))
            if value is None:
                line.append(f"{'no':>{cell - 1}} ", style="dim")
                continue
            level = level_of(value)
            line.append(f"{100 * value:>{cell - 1}.0f}{SHADES[level]}", style=styles[level])
        lines.append(line)
    return lines
