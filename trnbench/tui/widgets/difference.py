"""Two pinned rows beside each other: the reasons of the faster, and of the larger memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, scale_for, significant
from trnbench.tui.colours import theme_style
from trnbench.tui.widgets.panels import TextPanel

if TYPE_CHECKING:
    from trnbench.verbs.train.answer import TrainAnswer


class PartBeside(Record):
    """One part of two totals: seconds of a step, or bytes of a rank."""

    name: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        return self.second - self.first


def time_beside(first: TrainAnswer, second: TrainAnswer) -> tuple[PartBeside, ...]:
    """Return the exposed seconds of two steps by category, the largest difference first."""
    if first.step is None or second.step is None:
        return ()
    return _beside(first.step.exposed_s, second.step.exposed_s)


def memory_beside(first: TrainAnswer, second: TrainAnswer) -> tuple[PartBeside, ...]:
    """Return the bytes per rank of two steps by category, the largest difference first."""
    if first.memory is None or second.memory is None:
        return ()
    held = (first.memory.by_category, second.memory.by_category)
    return _beside(*({str(name): size for name, size in one.items()} for one in held))


def _beside(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[PartBeside, ...]:
    parts = (
        PartBeside(name=name, first=first.get(name, 0.0), second=second.get(name, 0.0))
        for name in dict.fromkeys([*first, *second])
    )
    return tuple(
        sorted(
            (part for part in parts if part.first or part.second),
            key=lambda part: -abs(part.difference),
        )
    )


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


class DifferencePanel(TextPanel):
    """Shows the differences of two labelled steps, in time and in memory."""

    def compare(self, pair: Sequence[tuple[str, TrainAnswer]]) -> None:
        styles = (theme_style(self.app, "success"), theme_style(self.app, "error"))
        self.show(difference_text(pair, self.size.width - 2, styles))
