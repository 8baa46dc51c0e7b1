"""Two pinned rows beside each other: the reasons of the faster, and of the larger memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from trnbench.facts.units import Dimension, scale_for, significant
from trnbench.tui.step_beside import PartBeside, memory_beside, time_beside

if TYPE_CHECKING:
    from trnbench.verbs.train.answer import TrainAnswer

PIN_TWO = "pin two rows (space) to see in what their step times and their memory differ"
NAME, CELL = 16, 12


def difference_text(
    pair: Sequence[tuple[str, TrainAnswer]], width: int, styles: tuple[Style, Style]
) -> Text:
    """The differences of two labelled steps; `styles` are those of less and of more."""
    if len(pair) != 2:
        return Text(PIN_TWO, style="dim")
    (first, one), (second, other) = pair
    text = Text()
    text.append(f"A: {first}\nB: {second}\n\n")
    memory = memory_beside(one, other)
    scale = scale_for(max((part.first for part in memory), default=1.0), Dimension.BYTES)
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
    most = max(abs(part.difference) for part in parts)
    room = max(width - left - 3 * CELL - 3, 4)
    total = PartBeside(
        name="all",
        first=sum(part.first for part in parts),
        second=sum(part.second for part in parts),
    )
    for part in (total, *parts):
        name = part.name.replace("_", "-")
        sign = "+" if part.difference > 0 else ""
        cells = (written(part.first), written(part.second), f"{sign}{written(part.difference)}")
        line = f"{name:<{left}}" + "".join(f"{cell:>{CELL}}" for cell in cells)
        text.append(line, style="bold" if part is total else "")
        if part is not total and most:
            count = round(room * abs(part.difference) / most)
            more = part.difference > 0
            text.append("  ")
            text.append(("+" if more else "-") * count, style=styles[more])
        text.append("\n")
    text.append("\n")
    return text
