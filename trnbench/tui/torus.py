"""Planes of a torus with the load of every link, as text; numbers are in %, colour repeats them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from trnbench.show.drawing import loaded_torus
from trnbench.tui.colours import abreast

if TYPE_CHECKING:
    from trnbench.verbs.collective.steps import Plane

if TYPE_CHECKING:
    from trnbench.verbs.collective.steps import Plane

_ROW_LOAD = re.compile(r"-\s*(\d+)-")
_LOAD = re.compile(r"\d+")
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
