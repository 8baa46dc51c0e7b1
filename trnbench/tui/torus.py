"""Planes of a torus with the load of every link, as text; numbers are in %, colour repeats them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from trnbench.report.drawing import loaded_torus

if TYPE_CHECKING:
    from trnbench.app.collective_steps import Plane

_ROW_LOAD = re.compile(r"-\s*(\d+)-")
_LOAD = re.compile(r"\d+")
HALF, HIGH = 50, 90
"""From these loads on, in %, a link is drawn as busy, and as the busiest."""


def draw_planes(planes: Sequence[Plane], width: int, styles: tuple[Style, Style, Style]) -> Text:
    """Return the planes beside each other as far as there is room.

    `styles` are those of idle, busy and busiest links.
    """
    text = Text()
    blocks = [_block(plane, styles) for plane in planes]
    widths = [max(len(line) for line in block) + 4 for block in blocks]
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


def _block(plane: Plane, styles: tuple[Style, Style, Style]) -> list[Text]:
    lines = [Text(plane.name, style="bold")]
    for number, line in enumerate(loaded_torus(plane.shape, plane.right, plane.below)):
        text = Text(line)
        for match in (_ROW_LOAD if number % 2 == 0 else _LOAD).finditer(line):
            group = 1 if number % 2 == 0 else 0
            text.stylize(_style(int(match[group]), styles), *match.span(group))
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
