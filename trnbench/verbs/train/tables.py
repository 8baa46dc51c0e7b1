"""Uses of a training step's time and memory, as tables with bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnbench.engines.analytic.step.memory_parts import CATEGORIES
from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, Scale, counted, scale_for, show
from trnbench.facts.workload.partial_layout import shown_degrees
from trnbench.predict.prediction import RankMemory, StepFigures
from trnbench.show.report import Report, columns, draw_rows, fitting_columns
from trnbench.show.row import Row
from trnbench.show.text_table import Style, draw, text_table, width_of, without_last_column
from trnbench.verbs.train.answer import TrainAnswer, phase_row

if TYPE_CHECKING:
    from trnbench.verbs.quotes.answer import Quote

BAR = "#"
LONGEST_BAR = 40
DIGITS = 4
PHASE_COLUMNS = 4
"""Of phases: name, time, share and memory; parts of it where there is room."""


def step_scale(step_time_s: float) -> Scale:
    """Return the unit of a step's times: people compare steps in seconds, not in minutes."""
    return scale_for(min(step_time_s, 1.0), Dimension.SECONDS)


def time_table(case: Sequence[TrainAnswer], style: Style) -> str:
    """Return a step by category: with bars, or both engines beside each other."""
    steps = [answer.step for answer in case if answer.step is not None]
    first = steps[0]
    names = [
        name
        for name in first.exposed_s
        if any(step.exposed_s.get(name) or step.hidden_s.get(name) for step in steps)
    ]
    total = first.step_time_s
    column = FixedColumn.of(total, step_scale(total))
    if len(steps) > 1:
        return _beside([answer.engine for answer in case], steps, names, column, style)
    shares = [first.exposed_s[name] / total for name in names]
    cells = [
        (
            name,
            column.text(first.exposed_s[name]),
            f"{100 * share:.1f}",
            column.text(first.hidden_s.get(name, 0.0)),
        )
        for name, share in zip(names, shares, strict=True)
    ]
    cells.append(("step", column.text(total), "100.0", ""))
    unit = column.scale.unit
    return with_bars(("time", f"exposed ({unit})", "%", f"hidden ({unit})"), cells, shares, style)


def _beside(
    engines: Sequence[str],
    steps: Sequence[StepFigures],
    names: Sequence[str],
    column: FixedColumn,
    style: Style,
) -> str:
    """Return both engines beside each other; the difference is in % of the first one's step."""
    first, second = steps
    total = first.step_time_s
    hiding = [
        (engine, step)
        for engine, step in zip(engines, steps, strict=True)
        if any(step.hidden_s.values())
    ]
    rows = [
        (
            name,
            *(column.text(step.exposed_s.get(name, 0.0)) for step in steps),
            _signed((second.exposed_s.get(name, 0.0) - first.exposed_s[name]) / total),
            *(column.text(step.hidden_s.get(name, 0.0)) for _, step in hiding),
        )
        for name in names
    ]
    rows.append(
        (
            "step",
            *(column.text(step.step_time_s) for step in steps),
            _signed(second.step_time_s / total - 1),
            *("" for _ in hiding),
        )
    )
    heads = (*engines, "difference", *(f"{engine}, hidden" for engine, _ in hiding))
    table = style.table((f"time ({column.scale.unit})", *(f">{head}" for head in heads)), rows)
    return f"{table}\ndifference: in % of the step of the {engines[0]} engine"


class FixedColumn(Record):
    """A column of numbers with one prefix and one number of decimals, nothing where they are 0."""

    scale: Scale
    decimals: int

    @classmethod
    def of(cls, largest: float, scale: Scale) -> FixedColumn:
        """Return the column that shows its largest number with four digits."""
        digits = math.floor(math.log10(largest / scale.factor))
        return cls(scale=scale, decimals=max(DIGITS - 1 - digits, 0))

    def text(self, value: float) -> str:
        """Return a number of the column."""
        if not value:
            return "-"
        shown = f"{value / self.scale.factor:,.{self.decimals}f}"
        least = f"{10.0**-self.decimals:.{self.decimals}f}"
        return f"<{least}" if float(shown.replace(",", "")) == 0 else shown


def _signed(share: float) -> str:
    rounded = round(100 * share, 2)
    return f"{rounded:+.2f} %" if rounded else "0.00 %"


def memory_table(memory: RankMemory, style: Style) -> str:
    """Return the memory of a rank of the worst stage, by category, with bars."""
    available, total = memory.available_bytes, memory.total_bytes
    held = {name: size for name, size in memory.by_category.items() if size}
    column = FixedColumn.of(total, scale_for(total, Dimension.BYTES))
    cells: list[tuple[str, ...]] = [
        (name, column.text(size), f"{100 * size / available:.1f}") for name, size in held.items()
    ]
    cells.append(("all", column.text(total), f"{100 * total / available:.1f}"))
    shares = [size / available for size in held.values()]
    drawn = with_bars(("memory", f"per rank ({column.scale.unit})", "%"), cells, shares, style)
    stage = (
        "the only pipeline stage" if memory.stage == "only" else f"the worst stage ({memory.stage})"
    )
    note = (
        f"per rank of {stage}; % of {show(available, Dimension.BYTES)} available: "
        f"{show(memory.capacity_bytes, Dimension.BYTES)} less "
        f"{show(memory.reserve_bytes, Dimension.BYTES)} reserved"
    )
    return f"{drawn}\n{style.wrap(note)}"


def phases_table(answer: TrainAnswer, style: Style) -> str:
    """Return the phases of a job's step: time, share of the step, memory of a rank by category."""
    step = answer.step
    rows = [phase_row(one, step) for one in answer.phases]
    held = [one.memory for one in answer.phases if one.memory is not None]
    largest = {name: max(one.by_category.get(name, 0.0) for one in held) for name in CATEGORIES}
    names = sorted((name for name in CATEGORIES if largest[name]), key=lambda one: -largest[one])
    size = FixedColumn.of(
        max(one.total_bytes for one in held),
        scale_for(max(one.total_bytes for one in held), Dimension.BYTES),
    )
    time = FixedColumn.of(step.step_time_s, step_scale(step.step_time_s)) if step else None

    def cells(row: Row) -> tuple[str, ...]:
        sizes = [row[f"memory_{name}_bytes"] for name in names]
        listed = [size.text(one) if isinstance(one, float) else "" for one in sizes]
        whole, taken, share = (row[k] for k in ("memory_bytes", "phase_time_s", "phase_share"))
        return (
            str(row["job_phase"]),
            time.text(taken) if time and isinstance(taken, float) else "",
            f"{100 * share:.1f}" if isinstance(share, float) else "",
            size.text(whole) if isinstance(whole, float) else "",
            *listed,
        )

    unit = f" ({time.scale.unit})" if time else ""
    heads = (f"time{unit}", "%", f"memory ({size.scale.unit})", *names)
    table = text_table(("phase", *(f">{head}" for head in heads)), map(cells, rows))
    while width_of(table) > style.width and len(table.headings) > PHASE_COLUMNS:
        table = without_last_column(table)
    return draw(table, style)


def phase_blocks(quotes: Sequence[Quote], style: Style) -> list[str]:
    """Return the parts of runs that have several, and the phases of their jobs, a table each."""
    blocks = []
    for quote in quotes:
        where = f"{quote.instance}, {counted(quote.nodes, 'node')}"
        if len(quote.steps) > 1:
            blocks.append(style.titled(f"{where}, part by part:", parts_table(quote, style)))
        if quote.step.phases:
            phases = phases_table(quote.step, style)
            blocks.append(style.titled(f"{where}, per rank and step:", phases))
    return blocks


def parts_table(quote: Quote, style: Style) -> str:
    """Return the parts of a run: length, layout, step, memory, and their days and cost."""
    rows = tuple(answer.row() for answer in quote.steps)
    degrees = shown_degrees([answer.layout for answer in quote.steps])
    shown = (
        *columns("sequence", "global_batch"),
        *columns(*degrees, "micro_batch", "recompute", spare=True),
        *columns("step_time_s", "tokens_per_s"),
        *columns("mfu", spare=True),
        *columns("memory_bytes"),
    )
    if quote.feasible or quote.elapsed_s is not None:
        shown = (*shown, *columns("days"))
        shown = (*shown, *(columns("cost_usd") if quote.cost_usd else ()))
    table = Report(verb="train", inputs={}, rows=rows, columns=shown)
    drawn = draw_rows(replace(table, columns=fitting_columns(table, style)), style)
    peak = quote.memory_peak_bytes
    if peak is None:
        return drawn
    most = f"a rank holds at most {show(peak, Dimension.BYTES)}"
    cost = " and cost" if quote.cost_usd else ""
    shares = f"; days{cost} of a part: its share of the run's" if quote.elapsed_s else ""
    return f"{drawn}\n{style.faint(style.wrap(most + shares))}"


def with_bars(
    headings: tuple[str, ...],
    cells: Sequence[tuple[str, ...]],
    shares: Sequence[float],
    style: Style,
) -> str:
    """Return a table with a bar for every share; rows without one are sums."""
    heads = (headings[0], *(f">{head}" for head in headings[1:]))
    room = min(LONGEST_BAR, style.width - width_of(text_table(heads, cells)) - 2)
    longest = max(shares, default=1.0) or 1.0
    bars = [BAR * round(room * share / longest) for share in shares]
    bars += [""] * (len(cells) - len(bars))
    rows = ((*row, bar) for row, bar in zip(cells, bars, strict=True))
    return style.table((*heads, ""), rows)
