"""A Gantt chart of a played pipeline schedule in plain characters: a row a stage, time across.

Where the slots of a long step would be narrower than a character, its middle is left out; where
there are too many stages, some are. The chart says so in either case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from trnbench.engines.emulate.schedule.timeline import SlotEvent, Timeline, Track
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, Scale, scale_for, significant, unit_scale
from trnbench.show.text_table import PLAIN, RESET, Style

NARROWEST, WIDEST = 60, 200
MOST_ROWS = 32
LEAST_PER_SLOT, COLUMNS_PER_SLOT = 2, 3
"""Columns that a slot of average length must have, and those it gets where the middle is cut."""
COLUMNS_PER_TICK = 14
RAMP_SHARE = 0.8
"""The part of the space before a gap that filling the pipeline may take, and draining after it."""
BREAK = ":"
LANES: tuple[Track, ...] = ("links", "network", "gradients")


class _Mark(Record):
    """How something is drawn: its letter, what follows the letter, its colour, its name."""

    letter: str
    fill: str
    colour: str
    legend: str


_SLOTS = {
    "forward": _Mark(letter="F", fill="-", colour="\x1b[30;46m", legend="forward"),
    "backward": _Mark(letter="B", fill="=", colour="\x1b[30;43m", legend="backward"),
    "weight": _Mark(letter="W", fill="~", colour="\x1b[30;42m", legend="weight gradients"),
    "optimizer": _Mark(letter="O", fill="o", colour="\x1b[30;47m", legend="optimizer"),
}
SLOT_LETTERS = "".join(mark.letter for mark in _SLOTS.values())
"""Letters that stand for slots: a drawing beside the chart uses others."""
_TRAFFIC = {
    "send-forward": _Mark(letter=">", fill=">", colour="\x1b[36m", legend="message forward"),
    "send-backward": _Mark(letter="<", fill="<", colour="\x1b[33m", legend="message back"),
    "gradients": _Mark(letter="g", fill="g", colour="\x1b[35m", legend="gradients reduced"),
    "sums": _Mark(letter="s", fill="s", colour="\x1b[35m", legend="sums over other ranks"),
    "parameters": _Mark(letter="p", fill="p", colour="\x1b[34m", legend="parameters gathered"),
    "tensor": _Mark(letter="t", fill="t", colour="\x1b[32m", legend="tensor-parallel exchange"),
    "context": _Mark(letter="c", fill="c", colour="\x1b[32m", legend="context-parallel exchange"),
    "expert": _Mark(letter="e", fill="e", colour="\x1b[32m", legend="expert exchange"),
    "data": _Mark(letter="d", fill="d", colour="\x1b[32m", legend="parameters and gradients"),
}
_OTHER = _Mark(letter="x", fill="x", colour="\x1b[32m", legend="other exchange")


class _Panel(Record):
    """A part of the step: where it begins, s, and the columns it is drawn on."""

    start_s: float
    column_s: float
    columns: int

    @property
    def end_s(self) -> float:
        return self.start_s + self.columns * self.column_s

    def column(self, time_s: float) -> int:
        """Return the column nearest to a time, kept inside."""
        return min(max(round((time_s - self.start_s) / self.column_s), 0), self.columns)


def gantt(
    timeline: Timeline,
    style: Style = PLAIN,
    *,
    lanes: bool = False,
    rows: int = MOST_ROWS,
    window: tuple[float, float] | None = None,
) -> str:
    """Return the chart, as wide as the style, with at most about `rows` rows.

    `lanes` adds, under each stage, a row for each lane of communication it uses. `window`: draw
    only from one time to another, s.
    """
    if not timeline.events:
        return "nothing to draw"
    if window is not None:
        timeline = _within(timeline, window)
    used = [lane for lane in LANES if lanes and any(e.track == lane for e in timeline.events)]
    stages = _shown(timeline.order.pp, max(rows // (1 + len(used)), 2))
    heads = {stage: f"stage {stage}" for stage in stages}
    left = max(map(len, (*heads.values(), *(f"  {lane}" for lane in used)))) + 1
    bubble = [f"{100 * share:.0f} %" for share in timeline.played.bubble_s / timeline.played.step_s]
    right = max(*map(len, bubble), len("bubble")) + 1
    columns = min(max(style.width, NARROWEST), WIDEST) - left - right - 2
    panels = _panels(timeline, columns) if window is None else (_panel(window, columns),)
    vpp = timeline.order.vpp
    lines = [" " * (left + 1 + columns + 1) + "bubble".rjust(right)]
    for stage in stages:
        events = [event for event in timeline.events if event.stage == stage]
        computed = _compute(events, float(timeline.end_s[stage, -1]))
        drawn = _row(computed, panels, vpp, style, least=0.5)
        lines.append(f"{heads[stage]:<{left}}|{drawn}|{bubble[stage]:>{right}}")
        for lane in used:
            moved = [event for event in events if event.track == lane]
            drawn = _row(moved, panels, vpp, style, least=0.0)
            lines.append(f"{'  ' + lane:<{left}}|{drawn}|")
    lines += [*_axis(panels, left), *_legend(timeline, used, style)]
    return "\n".join([*lines, *_left_out(timeline, stages, panels)])


def _shown(pp: int, most: int) -> list[int]:
    """Return the stages that are drawn, the first and the last always among them."""
    return sorted({round(i * (pp - 1) / max(min(pp, most) - 1, 1)) for i in range(min(pp, most))})


def _panels(timeline: Timeline, columns: int) -> tuple[_Panel, ...]:
    """Return the parts of the step that are drawn: all of it, or its beginning and its end."""
    step_s = float(timeline.played.step_s)
    half = (columns - len(BREAK)) // 2
    slot_s = float(np.mean(timeline.end_s - timeline.start_s))
    fill_s = float(timeline.start_s[:, 0].max())
    drain_s = step_s - float(timeline.end_s[:, -1].min())
    column_s = max(slot_s / COLUMNS_PER_SLOT, max(fill_s, drain_s) / (RAMP_SHARE * half))
    if columns * max(column_s, slot_s / LEAST_PER_SLOT) >= step_s:
        return (_Panel(start_s=0.0, column_s=step_s / columns, columns=columns),)
    rest = columns - len(BREAK) - half
    return (
        _Panel(start_s=0.0, column_s=column_s, columns=half),
        _Panel(start_s=step_s - rest * column_s, column_s=column_s, columns=rest),
    )


def _within(timeline: Timeline, window: tuple[float, float]) -> Timeline:
    """Return the timeline with the events that a window touches."""
    start_s, end_s = window
    events = (e for e in timeline.events if e.end_s > start_s and e.start_s < end_s)
    return replace(timeline, events=tuple(events))


def _panel(window: tuple[float, float], columns: int) -> _Panel:
    start_s, end_s = window
    return _Panel(start_s=start_s, column_s=(end_s - start_s) / columns, columns=columns)


def _compute(events: Sequence[SlotEvent], end_s: float) -> list[SlotEvent]:
    """Return the bars of a stage: its slots, then its communication at the end of the step."""
    return [
        *(event for event in events if event.track == "compute"),
        *(
            replace(event, start_s=max(event.start_s, end_s))
            for event in events
            if event.track == "gradients" and event.end_s > end_s
        ),
    ]


def _row(
    events: Sequence[SlotEvent], panels: Sequence[_Panel], vpp: int, style: Style, *, least: float
) -> str:
    """Return one row of events that do not overlap.

    A column shows what takes most of it, if at least this share of it is taken at all.
    """
    parts = []
    for panel in panels:
        seen = [e for e in events if e.end_s > panel.start_s and e.start_s < panel.end_s]
        cells = [" "] * panel.columns
        marks: list[_Mark | None] = [None] * panel.columns
        for event, columns in _runs(seen, panel, least):
            mark = _SLOTS.get(event.name) or _TRAFFIC.get(event.name, _OTHER)
            text = mark.letter + _number(event, len(columns) - len(mark.letter), vpp)
            cells[columns.start : columns.stop] = text.ljust(len(columns), mark.fill)
            marks[columns.start : columns.stop] = [mark] * len(columns)
        parts.append(_coloured(cells, marks) if style.colour else "".join(cells))
    return BREAK.join(parts)


def _runs(
    events: Sequence[SlotEvent], panel: _Panel, least: float
) -> Iterator[tuple[SlotEvent, range]]:
    """Yield events with the columns that are theirs: first by kind, then by share of a column."""
    by_kind: dict[str, FloatArray] = {}
    best: dict[tuple[int, str], tuple[float, int]] = {}
    for number, event in enumerate(events):
        taken = by_kind.setdefault(event.name, np.zeros(panel.columns))
        for column, share in _shares(event, panel):
            taken[column] += share
            key = column, event.name
            best[key] = max(best.get(key, (0.0, -number)), (share, -number))
    owners: list[int | None] = []
    for column in range(panel.columns):
        busy = {kind: taken[column] for kind, taken in by_kind.items()}
        if sum(busy.values()) < least or not any(busy.values()):
            owners.append(None)
        else:
            kind = max(busy, key=busy.__getitem__)
            owners.append(-best[column, kind][1])
    column = 0
    for owner, same in groupby(owners):
        length = len(list(same))
        if owner is not None:
            yield events[owner], range(column, column + length)
        column += length


def _shares(event: SlotEvent, panel: _Panel) -> Iterator[tuple[int, float]]:
    """Yield the columns an event touches, and what share of each it takes."""
    start = max((event.start_s - panel.start_s) / panel.column_s, 0.0)
    end = min((event.end_s - panel.start_s) / panel.column_s, float(panel.columns))
    for column in range(int(start), min(math.ceil(end), panel.columns)):
        yield column, min(end, column + 1) - max(start, column)


def _number(event: SlotEvent, room: int, vpp: int) -> str:
    """Return the micro-batch, and the chunk where there are several, if there is room for it."""
    if event.name not in _SLOTS or event.micro_batch is None:
        return ""
    batch = str(event.micro_batch)
    whole = f"{batch}.{event.chunk}" if vpp > 1 else batch
    return next((text for text in (whole, batch) if len(text) <= room), "")


def _coloured(cells: Sequence[str], marks: Sequence[_Mark | None]) -> str:
    """Return the cells with colour; a mark's letter starts a new slot, and shows without it."""
    parts: list[str] = []
    colour = ""
    for cell, mark in zip(cells, marks, strict=True):
        wanted = mark.colour if mark else ""
        if wanted != colour:
            parts.append((RESET if colour else "") + wanted)
            colour = wanted
        parts.append(cell)
    return "".join(parts) + (RESET if colour else "")


def _axis(panels: Sequence[_Panel], left: int) -> list[str]:
    """Return a line of ticks and one of times; all panels have one scale."""
    unit = _unit(panels[-1].end_s)
    step_s = unit.factor * _round_step(COLUMNS_PER_TICK * panels[0].column_s / unit.factor)
    ticks, labels = [], []
    for panel in panels:
        line, text = ["-"] * panel.columns, [" "] * panel.columns
        free = 0
        for i in range(math.ceil(panel.start_s / step_s), math.floor(panel.end_s / step_s) + 1):
            at = min(panel.column(i * step_s), panel.columns - 1)
            label = significant(i * step_s / unit.factor, 6)
            begin = min(at, panel.columns - len(label))
            line[at] = "+"
            if begin >= free:
                text[begin : begin + len(label)] = label
                free = begin + len(label) + 1
        ticks.append("".join(line))
        labels.append("".join(text))
    pad = " " * left
    return [
        f"{pad} {BREAK.join(ticks)}",
        f"{unit.unit:>{left}} {' '.join(labels)}".rstrip(),
    ]


def _unit(longest_s: float) -> Scale:
    """Return the unit of times: seconds at most, so that ticks stand at round numbers."""
    seconds = unit_scale("s", Dimension.SECONDS)
    return min(seconds, scale_for(longest_s, Dimension.SECONDS), key=lambda unit: unit.factor)


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10 ... that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def _legend(timeline: Timeline, lanes: Sequence[Track], style: Style) -> list[str]:
    """Return the legend of the letters that occur, in lines of the style's width."""
    tracks = {"compute", "gradients", *lanes}
    names = {event.name for event in timeline.events if event.track in tracks}
    marks = {mark.letter: mark for name, mark in (_SLOTS | _TRAFFIC).items() if name in names} | (
        {_OTHER.letter: _OTHER} if names - _SLOTS.keys() - _TRAFFIC.keys() else {}
    )
    batch = "B3.1: micro-batch 3, chunk 1" if timeline.order.vpp > 1 else "B3: micro-batch 3"
    plain = [batch, "blank: waiting", *(["lanes: where anything moves"] if lanes else [])]
    entries = [*_entries(marks, style), *((text, len(text)) for text in plain)]
    lines, room = [""], 0
    for text, length in entries:
        if room and room + length + 2 > style.width:
            lines.append("")
            room = 0
        lines[-1] += ("  " if room else "") + text
        room += length + (2 if room else 0)
    return lines


def _entries(marks: Mapping[str, _Mark], style: Style) -> Iterable[tuple[str, int]]:
    """Yield legend entries, and their width on screen."""
    for mark in marks.values():
        letter = f"{mark.colour}{mark.letter}{RESET}" if style.colour else mark.letter
        yield f"{letter} {mark.legend}", len(mark.legend) + 2


def _left_out(timeline: Timeline, stages: Sequence[int], panels: Sequence[_Panel]) -> list[str]:
    """Return the parts of the step that the chart leaves out, in words."""
    lines = []
    if len(stages) < timeline.order.pp:
        lines.append(f"{len(stages)} of {timeline.order.pp} stages are drawn")
    if len(panels) > 1:
        start, end = panels[0].end_s, panels[1].start_s
        unit = _unit(end)
        share = (end - start) / panels[1].end_s
        lines.append(
            f"{BREAK} the middle is left out, {significant(start / unit.factor)} to "
            f"{significant(end / unit.factor)} {unit.unit} ({100 * share:.0f} % of the step)"
        )
    return lines
