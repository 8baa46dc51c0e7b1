"""Where a training step's time and memory go, as tables with bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trnbench.answers.train import TrainAnswer
from trnbench.predict.prediction import RankMemory, StepFigures
from trnbench.report.text_table import Style, TextTable, draw, width_of, wrap
from trnbench.units import Dimension, Scale, scale_for, show

BAR = "#"
LONGEST_BAR = 40
DIGITS = 4


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
    column = _Fixed.of(total, step_scale(total))
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
    return _with_bars(("time", f"exposed ({unit})", "%", f"hidden ({unit})"), cells, shares, style)


def _beside(
    engines: Sequence[str],
    steps: Sequence[StepFigures],
    names: Sequence[str],
    column: _Fixed,
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
    table = TextTable(
        headings=(
            f"time ({column.scale.unit})",
            *engines,
            "difference",
            *(f"{engine}, hidden" for engine, _ in hiding),
        ),
        rows=tuple(rows),
        right=(False, *(True for _ in rows[0][1:])),
    )
    return f"{draw(table, style)}\ndifference: in % of the step of the {engines[0]} engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed:
    """A column of numbers with one prefix and one number of decimals, nothing where they are 0."""

    scale: Scale
    decimals: int

    @classmethod
    def of(cls, largest: float, scale: Scale) -> _Fixed:
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
    column = _Fixed.of(total, scale_for(total, Dimension.BYTES))
    cells: list[tuple[str, ...]] = [
        (name, column.text(size), f"{100 * size / available:.1f}") for name, size in held.items()
    ]
    cells.append(("all", column.text(total), f"{100 * total / available:.1f}"))
    shares = [size / available for size in held.values()]
    drawn = _with_bars(("memory", f"a rank ({column.scale.unit})", "%"), cells, shares, style)
    stage = "the only stage" if memory.stage == "only" else f"the worst stage ({memory.stage})"
    note = (
        f"a rank of {stage}; % of {show(available, Dimension.BYTES)} available: "
        f"{show(memory.capacity_bytes, Dimension.BYTES)} less "
        f"{show(memory.reserve_bytes, Dimension.BYTES)} of reserve"
    )
    return f"{drawn}\n{wrap(note, style.width, '')}"


def _with_bars(
    headings: tuple[str, ...],
    cells: Sequence[tuple[str, ...]],
    shares: Sequence[float],
    style: Style,
) -> str:
    """Return a table with a bar for every share; rows without one are sums."""
    right = (False, *(True for _ in headings[1:]))
    bare = TextTable(headings=headings, rows=tuple(cells), right=right)
    room = min(LONGEST_BAR, style.width - width_of(bare) - 2)
    longest = max(shares, default=1.0) or 1.0
    bars = [BAR * round(room * share / longest) for share in shares]
    bars += [""] * (len(cells) - len(bars))
    table = TextTable(
        headings=(*headings, ""),
        rows=tuple((*row, bar) for row, bar in zip(cells, bars, strict=True)),
        right=(*right, False),
    )
    return draw(table, style)
