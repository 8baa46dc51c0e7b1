"""The pictures of memory: a filled area through the step, and the blocks at an instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, show
from trnbench.show.charts.record import Bar, BarChart, BarPart, ChartAxis, parts_of
from trnbench.show.charts.text import Segment, cells_of, legend_lines

if TYPE_CHECKING:
    from trnbench.engines.analytic.step.memory_timeline import MemoryInstant
    from trnbench.predict.prediction import RankMemory

LEFT = 11
"""Columns of the scale on the left."""


class Area(Record):
    """Totals by part at successive instants, a limit, and which instant the cursor is on."""

    instants: Sequence[Mapping[str, float]]
    limit: float
    parts: tuple[BarPart, ...]
    here: int | None = None


def area_of(instants: Sequence[MemoryInstant], memory: RankMemory, here: int | None) -> Area:
    """The memory of a rank by category, slot by slot."""
    parts = [{str(name): size for name, size in one.by_category.items()} for one in instants]
    names = [name for name in (parts[0] if parts else {}) if any(one[name] for one in parts)]
    return Area(instants=parts, limit=memory.available_bytes, parts=parts_of(names), here=here)


def draw_area(area: Area, size: tuple[int, int], styles: Sequence[Style]) -> Text:
    """The area in the given room; a line of dashes is the limit.

    Where several instants share a column, the one that holds most is drawn.
    """
    legend = _legend(area, size[0], styles)
    columns = max(size[0] - LEFT - 1, 8)
    lines = max(size[1] - 2 - legend.plain.count("\n"), 3)
    groups = stretches(len(area.instants), columns)
    drawn = [max((area.instants[i] for i in group), key=_total) for group in groups]
    highest = max([area.limit, *map(_total, drawn)])
    scale = lines / highest if highest > 0 else 0.0
    wide = max(columns // max(len(groups), 1), 1)
    stacks = [
        [
            part
            for part, count in zip(area.parts, _cells(area, one, scale), strict=True)
            for _ in range(count)
        ]
        for one in drawn
    ]
    limit_line = min(round(area.limit * scale), lines) - 1
    peak_line = min(round(max(map(_total, drawn), default=0.0) * scale), lines) - 1
    peak = max(map(_total, drawn), default=0.0)
    marks = {peak_line: show(peak, Dimension.BYTES, digits=3)}
    marks |= {limit_line: show(area.limit, Dimension.BYTES, digits=3)}
    text = Text()
    for line in range(lines - 1, -1, -1):
        text.append(f"{marks.get(line, ''):>{LEFT - 1}} |")
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
    at = next((number for number, group in enumerate(groups) if area.here in group), None)
    text.append(" " * (LEFT + 1) + ("" if at is None else " " * (at * wide) + "^") + "\n")
    text.append_text(legend)
    return text


def _cells(area: Area, held: Mapping[str, float], scale: float) -> list[int]:
    return cells_of([held.get(part.name, 0.0) for part in area.parts], scale)


def _legend(area: Area, width: int, styles: Sequence[Style]) -> Text:
    """What each part is, in lines of this width."""
    entries = []
    for part in area.parts:
        filled = styles[part.hue].bgcolor is not None
        mark = Segment(f" {part.letter} " if filled else part.letter, part.hue)
        entries.append((mark, f" {part.name}  "))
    text = Text()
    for number, line in enumerate(legend_lines(entries, width)):
        text.append("\n" if number else "")
        for one in line:
            text.append(one.text, "" if one.hue is None else styles[one.hue])
    return text


def stretches(count: int, columns: int) -> list[range]:
    """Instants of each column, in order; each instant is in a single column."""
    used = min(count, columns)
    return [range(i * count // used, (i + 1) * count // used) for i in range(used)] if used else []


def _total(parts: Mapping[str, float]) -> float:
    return sum(parts.values())


def block_bars(instant: MemoryInstant, title: str) -> BarChart:
    """Bytes of each block at an instant, by category, the largest first."""
    blocks: dict[str, dict[str, float]] = {}
    for (block, category), size in instant.held.items():
        if size:
            parts = blocks.setdefault(block or "no block", {})
            parts[str(category)] = parts.get(str(category), 0.0) + size
    order = sorted(blocks, key=lambda name: -_total(blocks[name]))
    names = dict.fromkeys(name for block in order for name in blocks[block])
    return BarChart(
        title=title,
        caption="the largest first",
        axis=ChartAxis(title="memory", dimension=Dimension.BYTES),
        bars=tuple(Bar(label=name, parts=blocks[name]) for name in order),
        parts=parts_of(names),
    )
