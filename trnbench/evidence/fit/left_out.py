"""Rows of a fit as they are predicted where their configuration has no part in it.

A calibration keeps one entry a fitted row: `ID: RATIO LOW HIGH CLASS`. The ratio is the time by a
fit without the row's configuration over that of the fit with all rows; low and high are the ends of
the 80 % interval over the former, from the parameters and the scatter that the others tell; the
class is what the others say of the row's settings. Kernels timed alone have no class: the scatter
between kernels of a chip is given, and its numbers are as uncertain as without the row's kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from trnbench.evidence.comparison import Comparison, Contrast, RowClass
from trnbench.evidence.fit.calibrate import SCATTERED, FittedRow, spread_of, steps_of
from trnbench.evidence.fit.problem import KERNEL, STEP, Measured
from trnbench.facts.calibration.coverage import DEGREES, Covered, Spread, together, widest
from trnbench.facts.calibration.population import KindOfSoftware, OfKind
from trnbench.facts.records import Record, replace
from trnbench.predict.ranges import END


class LeftOut(Record):
    """A row by the rows of other configurations, over its prediction by all rows."""

    ratio: float
    low: float | None = None
    """Ends of the 80 % interval, over the time that is predicted without the row."""
    high: float | None = None
    rests_on: RowClass | None = None

    @property
    def text(self) -> str:
        ends = () if self.low is None or self.high is None else (self.low, self.high)
        numbers = " ".join(f"{number:.4g}" for number in (self.ratio, *ends))
        return numbers if self.rests_on is None else f"{numbers} {self.rests_on}"


def covered(rows: Sequence[Measured]) -> Covered | None:
    """Reach of the steps among measured rows; None without any."""
    found = [(row, row.layout) for row in rows if row.layout is not None]
    if not found:
        return None
    layouts = [layout for _, layout in found]
    tokens = [int(one.global_batch * one.sample_tokens) for one in layouts]
    return Covered(
        jobs=tuple(sorted({one.job for one in layouts})),
        cp=max(int(one.cp) for one in layouts),
        ep=max(int(one.ep) for one in layouts),
        vpp=max(int(one.vpp) for one in layouts),
        tp_nodes=max(-(-int(layout.tp) // row.node_ranks) for row, layout in found),
        nodes=max(row.nodes for row, _ in found),
        sequence=max(int(one.sequence) for one in layouts),
        micro_batch=max(int(one.micro_batch) for one in layouts),
        least_tokens=min(tokens),
        most_tokens=max(tokens),
    )


def left_out(rows: Sequence[FittedRow], unseen: Spread | None) -> Iterator[str]:
    """Entries of a stack's steps, or of a chip's kernels; `unseen`: scatter of unseen stacks."""
    steps = [one for one in rows if one.row.quantity == STEP]
    for one in steps or rows:
        ratio = (1 + one.without_configuration) / (1 + one.fitted)
        if one.row.quantity == KERNEL:
            up = END * math.hypot(math.sqrt(one.expected), one.row.scatter)
            alone = LeftOut(ratio=ratio, low=math.exp(-up), high=math.exp(up))
            yield f"{one.row.id}: {alone.text}"
        elif one in steps:
            others = [row for row in steps if row.row.configuration != one.row.configuration]
            rests_on, spread = _judged(one.row, others, unseen)
            down, up = (
                math.hypot(END * math.sqrt(one.expected), math.log(end))
                for end in (spread.low, spread.high)
            )
            known = LeftOut(ratio=ratio, low=math.exp(-down), high=math.exp(up), rests_on=rests_on)
            yield f"{one.row.id}: {known.text}"


def _judged(
    row: Measured, others: Sequence[FittedRow], unseen: Spread | None
) -> tuple[RowClass, Spread]:
    """What other rows of a stack are to a row, and their scatter about times like its own."""
    before, chip = row.efficiency.stack, row.efficiency.chip
    elsewhere = widest(*filter(None, (before.spread, before.unseen, unseen)))
    alone = (chip.between_chips,) if row.chips == 1 and chip.between_chips is not None else ()
    covers = covered([one.row for one in others])
    if covers is None or row.layout is None:
        return "carried over", widest(elsewhere, *alone)
    known = _spread_by(row, others)
    if row.family not in {one.row.family for one in others}:
        return "carried over", widest(known, elsewhere, *alone)
    layout, amounts = row.layout, row.efficiency.beyond_rows
    past = {
        "degrees": covers.degrees_beyond(
            {name: int(getattr(layout, name)) for name in DEGREES}, row.node_ranks
        ),
        "sizes": covers.sizes_beyond(
            nodes=row.nodes,
            sequence=int(layout.sequence),
            micro_batch=int(layout.micro_batch),
            tokens=int(layout.global_batch * layout.sample_tokens),
        ),
        "kinds": () if layout.job in covers.jobs else (layout.job,),
    }
    beyond = [name for name, words in past.items() if words]
    if amounts is not None:
        known = together(known, *(getattr(amounts, name) for name in beyond))
    return "beyond rows" if beyond else "inside rows", widest(known, *alone)


def _spread_by(row: Measured, others: Sequence[FittedRow]) -> Spread:
    told = steps_of(others)
    large = [one for one in told if not one.row.small] or told
    small = [one for one in told if one.row.small]
    if row.small and small != large and len(small) >= SCATTERED:
        return widest(spread_of(large), spread_of(small))
    return spread_of(large)


@cache
def entries(told: tuple[str, ...]) -> Mapping[str, LeftOut]:
    """Rows by id, from a calibration's entries."""
    return dict(map(_entry, told))


def _entry(text: str) -> tuple[str, LeftOut]:
    name, _, words = text.rpartition(": ")
    ratio, *more = words.split(maxsplit=3)
    if not more:
        return name, LeftOut(ratio=float(ratio))
    low, high, *rests_on = more
    return name, LeftOut(
        ratio=float(ratio),
        low=float(low),
        high=float(high),
        rests_on=rests_on[0] if rests_on else None,  # type: ignore[arg-type]
    )


def without_its_family(row: Comparison, kind: KindOfSoftware | None, family: str) -> Comparison:
    """A row of a family as the other families of its kind tell its level and interval."""
    if kind is None:
        return row
    if kind.memory is not None and row.memory.predicted is not None:
        size, low, high = _by_others(row.memory, kind.memory, family)
        held = {"memory_predicted_bytes": size, "memory_low_bytes": low, "memory_high_bytes": high}
        row = replace(row, **held)
    if family not in kind.without or row.predicted_s is None:
        return row
    time_s, low_s, high_s = _by_others(row.time, kind, family)
    return replace(row, predicted_s=time_s, low_s=low_s, high_s=high_s, left_out=True)


def _by_others(
    known: Contrast, kind: OfKind, family: str
) -> tuple[float | None, float | None, float | None]:
    """A predicted number and its ends as the families but one tell them."""
    other, before = kind.without.get(family), known.predicted
    if other is None or before is None:
        return known[1:]
    value = before * other.level / kind.level
    if known.low is None or known.high is None:
        return value, None, None
    low, high = (
        # Uncertain numbers reach as far as before, the scatter as far as the others tell.
        math.hypot(
            math.sqrt(max(math.log(end / before) ** 2 - math.log(scatter) ** 2, 0.0)),
            math.log(told),
        )
        for end, scatter, told in (
            (known.low, kind.spread.low, other.low),
            (known.high, kind.spread.high, other.high),
        )
    )
    return value, value * math.exp(-low), value * math.exp(high)


def without_its_configuration(
    row: Comparison, told: tuple[str, ...], memory: tuple[str, ...] = ()
) -> Comparison:
    """A fitted row as the fit without its configuration predicts it, where entries tell so."""
    held = entries(memory).get(row.id)
    if held is not None and row.memory_predicted_bytes is not None:
        middle = row.memory_predicted_bytes * held.ratio
        low, high = held.low or 1.0, held.high or 1.0
        row = replace(
            row,
            memory_predicted_bytes=middle,
            memory_low_bytes=middle * low,
            memory_high_bytes=middle * high,
        )
    known = entries(told).get(row.id) if row.fitted else None
    if known is None or row.predicted_s is None:
        return row
    time_s = row.predicted_s * known.ratio
    low_s, high_s = row.low_s, row.high_s
    if known.low is not None and known.high is not None:
        low_s, high_s = time_s * known.low, time_s * known.high
    elif low_s is not None and high_s is not None:
        low_s, high_s = low_s * known.ratio, high_s * known.ratio
    return replace(
        row,
        predicted_s=time_s,
        low_s=low_s,
        high_s=high_s,
        rests_on=known.rests_on or row.rests_on,
        left_out=True,
    )
