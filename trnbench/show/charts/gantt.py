"""Lanes of spans over time in plain characters, and what of them each column shows.

Where the spans of a long time would be narrower than a character, its middle is left out; the
chart says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from trnbench.facts.records import Record
from trnbench.facts.units import significant
from trnbench.show.charts.record import ChartAxis, GanttChart, GanttLane, Span, SpanKind
from trnbench.show.charts.ticks import tick_lines
from trnbench.show.text_table import RESET, Style

NARROWEST, WIDEST = 60, 200
LEAST_PER_SLOT, COLUMNS_PER_SLOT = 2, 3
"""Columns that a slot of average length must have, and those it gets where the middle is cut."""
RAMP_SHARE = 0.8
"""The part of the space before a gap that filling the pipeline may take, and draining after it."""
BREAK = ":"
MARK = "|"
ANSI = {"cyan": 6, "yellow": 3, "green": 2, "white": 7, "magenta": 5, "blue": 4}


class Panel(Record):
    """A part of the time: where it begins, and the columns it is drawn on."""

    start: float
    column: float
    columns: int

    @property
    def end(self) -> float:
        return self.start + self.columns * self.column

    def cell(self, time: float) -> int:
        """Column of a time, kept inside."""
        return min(max(round((time - self.start) / self.column), 0), self.columns - 1)


def gantt_text(chart: GanttChart, style: Style) -> str:
    """The lanes as wide as the style, with an axis, a legend, and what is not drawn."""
    if chart.empty:
        return "nothing to draw"
    left = max(len(lane.name) for lane in chart.lanes) + 1
    right = max(len(chart.behind), *(len(lane.behind) for lane in chart.lanes)) + 1
    columns = min(max(style.width, NARROWEST), WIDEST) - left - right - 2
    panels = panels_of(chart, columns)
    lines = [" " * (left + 1 + columns + 1) + chart.behind.rjust(right)] if chart.behind else []
    for lane in chart.lanes:
        behind = f"{lane.behind:>{right}}" if lane.behind else ""
        lines.append(f"{lane.name:<{left}}|{_row(lane, chart, panels, style)}|{behind}")
    lines += [*_axis(chart.axis, panels, left), *_legend(chart, style)]
    told = [*left_out(chart, panels), *([chart.missing] if chart.missing else [])]
    return "\n".join([*lines, *told])


def panels_of(chart: GanttChart, columns: int) -> tuple[Panel, ...]:
    """The parts of the time that are drawn: all of it, or its beginning and its end."""
    length = chart.end - chart.start
    half = (columns - len(BREAK)) // 2
    column = max(chart.slot / COLUMNS_PER_SLOT, chart.ramp / (RAMP_SHARE * half))
    if columns * max(column, chart.slot / LEAST_PER_SLOT) >= length or not chart.slot:
        return (Panel(start=chart.start, column=length / columns, columns=columns),)
    rest = columns - len(BREAK) - half
    return (
        Panel(start=chart.start, column=column, columns=half),
        Panel(start=chart.end - rest * column, column=column, columns=rest),
    )


def _row(lane: GanttLane, chart: GanttChart, panels: Sequence[Panel], style: Style) -> str:
    parts = []
    for panel in panels:
        cells = [" "] * panel.columns
        kinds: list[SpanKind | None] = [None] * panel.columns
        for span, columns in runs_of(lane, panel):
            kind = chart.kinds[span.kind]
            text = kind.letter + label_of(span, len(columns) - len(kind.letter))
            cells[columns.start : columns.stop] = text.ljust(len(columns), kind.fill)
            kinds[columns.start : columns.stop] = [kind] * len(columns)
        if lane.mark is not None and panel.start < lane.mark <= panel.end:
            cells[panel.cell(lane.mark)] = MARK
        parts.append(_coloured(cells, kinds) if style.colour else "".join(cells))
    return BREAK.join(parts)


def label_of(span: Span, room: int) -> str:
    return next((text for text in span.labels if len(text) <= room), "")


def runs_of(lane: GanttLane, panel: Panel) -> Iterator[tuple[Span, range]]:
    """Spans of a lane with the columns that are theirs: by kind, then by share of a column."""
    spans = [one for one in lane.spans if one.end > panel.start and one.start < panel.end]
    by_kind: dict[str, list[float]] = {}
    best: dict[tuple[int, str], tuple[float, int]] = {}
    for number, span in enumerate(spans):
        taken = by_kind.setdefault(span.kind, [0.0] * panel.columns)
        for column, share in _shares(span, panel):
            taken[column] += share
            key = column, span.kind
            best[key] = max(best.get(key, (0.0, -number)), (share, -number))
    owners: list[int | None] = []
    for column in range(panel.columns):
        busy = {kind: taken[column] for kind, taken in by_kind.items()}
        if sum(busy.values()) < lane.least or not any(busy.values()):
            owners.append(None)
        else:
            kind = max(busy, key=busy.__getitem__)
            owners.append(-best[column, kind][1])
    column = 0
    for owner, same in groupby(owners):
        length = len(list(same))
        if owner is not None:
            yield spans[owner], range(column, column + length)
        column += length


def _shares(span: Span, panel: Panel) -> Iterator[tuple[int, float]]:
    """The columns that a span touches, and the share of each that it takes."""
    start = max((span.start - panel.start) / panel.column, 0.0)
    end = min((span.end - panel.start) / panel.column, float(panel.columns))
    for column in range(int(start), min(math.ceil(end), panel.columns)):
        yield column, min(end, column + 1) - max(start, column)


def _colour(kind: SpanKind) -> str:
    number = ANSI[kind.colour]
    return f"\x1b[30;4{number}m" if kind.solid else f"\x1b[3{number}m"


def _coloured(cells: Sequence[str], kinds: Sequence[SpanKind | None]) -> str:
    """Cells with colour; a kind's letter starts a new span, and shows without it."""
    parts: list[str] = []
    colour = ""
    for cell, kind in zip(cells, kinds, strict=True):
        wanted = _colour(kind) if kind else ""
        if wanted != colour:
            parts.append((RESET if colour else "") + wanted)
            colour = wanted
        parts.append(cell)
    return "".join(parts) + (RESET if colour else "")


def _axis(axis: ChartAxis, panels: Sequence[Panel], left: int) -> list[str]:
    """A line of ticks and one of times; all panels have one scale."""
    drawn = [tick_lines(axis, one.start, one.end, one.cell, one.columns) for one in panels]
    unit = axis.unit.unit if axis.unit else ""
    rules, labels = BREAK.join(rule for rule, _ in drawn), " ".join(text for _, text in drawn)
    return [f"{'':{left}} {rules}", f"{unit:>{left}} {labels}".rstrip()]


def _legend(chart: GanttChart, style: Style) -> list[str]:
    """The kinds that occur, in lines of the style's width."""
    used = {span.kind for lane in chart.lanes for span in lane.spans}
    kinds = {kind.letter: kind for name, kind in chart.kinds.items() if name in used}
    entries = [*_entries(kinds, style), *((text, len(text)) for text in chart.legend)]
    lines, room = [""], 0
    for text, length in entries:
        if room and room + length + 2 > style.width:
            lines.append("")
            room = 0
        lines[-1] += ("  " if room else "") + text
        room += length + (2 if room else 0)
    return lines


def _entries(kinds: Mapping[str, SpanKind], style: Style) -> Iterator[tuple[str, int]]:
    for kind in kinds.values():
        letter = f"{_colour(kind)}{kind.letter}{RESET}" if style.colour else kind.letter
        yield f"{letter} {kind.legend}", len(kind.legend) + 2


def left_out(chart: GanttChart, panels: Sequence[Panel]) -> list[str]:
    """The part of the time that the chart leaves out, in words."""
    if len(panels) < 2:
        return []
    start, end = panels[0].end, panels[1].start
    unit = chart.axis.unit
    factor, word = (unit.factor, unit.unit) if unit else (1.0, "")
    share = (end - start) / (chart.end - chart.start)
    return [
        f"{BREAK} the middle is left out, {significant(start / factor)} to "
        f"{significant(end / factor)} {word} ({100 * share:.0f} % of the step)"
    ]
