"""Two pinned rows beside each other: the reasons of the faster, and of the larger memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual.app import App

from trnbench.facts.units import Dimension, scale_for, significant
from trnbench.tui.colours import theme_style

if TYPE_CHECKING:
    from trnbench.verbs.train.answer import TrainAnswer
    from trnbench.verbs.train.beside import PartBeside


PIN_TWO = "pin two rows (space) to see how their step times and memory differ"
NAME, CELL = 16, 12
LITTLE = 0.001
"""Parts that are less of both rows are left out."""


def difference_text(
    pair: Sequence[tuple[str, TrainAnswer]], width: int, styles: tuple[Style, Style]
) -> Text:
    """The differences of two labelled steps; `styles` are those of less and of more."""
    from trnbench.verbs.train.beside import memory_beside, time_beside

    if len(pair) != 2:
        return Text(PIN_TWO, style="dim")
    (first, one), (second, other) = pair
    text = Text()
    text.append(f"A: {first}\nB: {second}\n\n")
    memory = memory_beside(one, other)
    scale = scale_for(max((first for _, first, _ in memory), default=1.0), Dimension.BYTES)
    blocks: tuple[tuple[str, Sequence[PartBeside], Callable[[float], str]], ...] = (
        ("step time (s)", time_beside(one, other), lambda value: significant(value, 4)),
        (
            f"memory per rank ({scale.unit})",
            memory,
            lambda value: significant(value / scale.factor, 3),
        ),
    )
    for title, parts, written in blocks:
        text.append_text(_block(title, parts, written, width, styles))
    return text


def less_and_more(app: App[object]) -> tuple[Style, Style]:
    """Styles of what the second has less of, and more."""
    return theme_style(app, "success"), theme_style(app, "error")


def _block(
    title: str,
    parts: Sequence[PartBeside],
    written: Callable[[float], str],
    width: int,
    styles: tuple[Style, Style],
) -> Text:
    text = Text()
    left = max(NAME, len(title)) + 1
    head = f"{title:<{left}}" + "".join(f"{name:>{CELL}}" for name in ("A", "B", "B - A"))
    text.append(f"{head}\n", style="bold")
    if not parts:
        text.append("one of the two has none\n\n", style="dim")
        return text
    most = max(abs(second - first) for _, first, second in parts)
    room = max(width - left - 3 * CELL - 3, 4)
    total = ("all", sum(part[1] for part in parts), sum(part[2] for part in parts))
    least = LITTLE * max(total[1:])
    for name, first, second in (total, *(part for part in parts if max(part[1:]) >= least)):
        more = second - first
        cells = (written(first), written(second), f"{'+' * (more > 0)}{written(more)}")
        line = f"{name.replace('_', '-'):<{left}}" + "".join(f"{cell:>{CELL}}" for cell in cells)
        text.append(line, style="bold" if name == "all" else "")
        if name != "all" and most:
            count = round(room * abs(more) / most)
            text.append("  ")
            text.append(("+" if more > 0 else "-") * count, style=styles[more > 0])
        text.append("\n")
    text.append("\n")
    return text
