"""Memory of a rank of the worst stage through a step: alike slots, and the peak by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.engines.analytic.step.memory_timeline import MemoryInstant, MemoryTimeline
from trnbench.facts.units import Dimension, scale_for, show, significant
from trnbench.predict.prediction import RankMemory
from trnbench.show.report import Report, columns
from trnbench.show.row import cells
from trnbench.show.text_table import Style
from trnbench.verbs.train.answer import TrainAnswer
from trnbench.verbs.train.tables import FixedColumn, with_bars
from trnbench.verbs.train.text import headline_of, layout_of_answer

CONVENTIONS = {
    "memory_bytes": "of a rank of the worst pipeline stage while a slot runs; the largest is what "
    "`train` says the stage needs",
    "in_flight": "micro-batches of which something is kept, in whole stages",
    "start_s, end_s": "in the played schedule; absent where the layout does not run",
}


def memory_report(answers: Sequence[TrainAnswer], inputs: Mapping[str, object]) -> Report:
    """Return the report of one step's memory, a row for each slot of the worst rank."""
    answer = answers[0]
    held, memory = answer.memory_timeline, answer.memory
    summary: dict[str, object] = {
        "conventions": CONVENTIONS,
        "verdict": memory_verdict(answer),
        **cells(answer, "feasible reasons model instance setting=layout.plain"),
    }
    if held is not None and memory is not None:
        summary |= {
            **cells(held, "worst_stage=role stage"),
            **cells(memory, "memory_bytes=total_bytes low_memory_bytes=low_bytes"),
            **cells(memory, "high_memory_bytes=high_bytes memory_available_bytes=available_bytes"),
            **cells(memory, "fit_probability"),
            "peak_slot": held.peak.slot,
            "peak": [
                {"block": block or None, "category": category, "bytes": size}
                for (block, category), size in _largest_first(held.peak)
            ],
        }
    return Report(
        verb="train",
        inputs=inputs,
        rows=answer.memory_rows(),
        columns=columns(
            *("slot", "phase", "micro_batch_number", "chunk", "start_s", "end_s", "in_flight"),
            *("memory_bytes", "peak"),
        ),
        summary=summary,
        people=lambda _, style: _draw(answer, style),
    )


def memory_verdict(answer: TrainAnswer) -> str:
    """The worst rank, its bytes and its chance to fit; or the reason why it cannot fit."""
    held, memory = answer.memory_timeline, answer.memory
    no = f"NO: {'; '.join(answer.reasons)}" if answer.reasons else ""
    if held is None or memory is None:
        return no
    low, high = (
        show(size, Dimension.BYTES, digits=3) for size in (memory.low_bytes, memory.high_bytes)
    )
    needs = (
        f"a rank of {_stage(held)} holds {show(memory.total_bytes, Dimension.BYTES, digits=3)} "
        f"({low} to {high}) of {show(memory.available_bytes, Dimension.BYTES, digits=3)} at the "
        f"peak, slot {held.peak.slot}; fits with a probability of "
        f"{significant(100 * memory.fit_probability, 3)} %"
    )
    return "; ".join(filter(None, (no, needs)))


def _stage(held: MemoryTimeline) -> str:
    return "the only stage" if held.role == "only" else f"stage {held.stage} ({held.role})"


def _largest_first(peak: MemoryInstant) -> list[tuple[tuple[str, str], float]]:
    return sorted(peak.held.items(), key=lambda one: -one[1])


def _draw(answer: TrainAnswer, style: Style) -> str:
    blocks = [headline_of([answer], style), layout_of_answer(answer, style)]
    held, memory = answer.memory_timeline, answer.memory
    if held is not None and memory is not None:
        blocks += [
            style.lines(_peak_words(answer, held, memory)),
            _through_the_step(held, memory, style),
            _at_the_peak(held.peak, memory, style),
        ]
    return "\n\n".join(blocks)


def _peak_words(answer: TrainAnswer, held: MemoryTimeline, memory: RankMemory) -> list[str]:
    peak = held.peak
    row = answer.memory_rows()[peak.slot]
    when = ""
    if isinstance(row["start_s"], float):
        when = f", {show(row['start_s'], Dimension.SECONDS, digits=3)} into the step"
    chunk = f", chunk {peak.chunk}" if answer.layout.degree("vpp") > 1 else ""
    low, high = (show(size, Dimension.BYTES) for size in (memory.low_bytes, memory.high_bytes))
    return [
        f"peak memory: {show(peak.total_bytes, Dimension.BYTES)} of "
        f"{show(memory.available_bytes, Dimension.BYTES)} per rank of {_stage(held)}, in the "
        f"{peak.phase} pass of micro-batch {peak.micro_batch}{chunk}{when}",
        f"80 % interval {low} to {high}; fits with a probability of "
        f"{significant(100 * memory.fit_probability, 3)} %",
    ]


def _through_the_step(held: MemoryTimeline, memory: RankMemory, style: Style) -> str:
    """Return alike slots in the order in which they first come, with bars."""
    alike: dict[tuple[str, float, float], list[int]] = {}
    for one in held.instants:
        alike.setdefault((one.phase, one.in_flight, one.total_bytes), []).append(one.slot)
    column = FixedColumn.of(
        held.peak.total_bytes, scale_for(held.peak.total_bytes, Dimension.BYTES)
    )
    shares = [total / memory.available_bytes for _, _, total in alike]
    cells = [
        (
            phase,
            significant(in_flight, 3),
            f"{slots[0]}" if len(slots) == 1 else f"{slots[0]} .. {slots[-1]}",
            f"{len(slots)}",
            column.text(total),
            f"{100 * share:.1f}",
        )
        for ((phase, in_flight, total), slots), share in zip(alike.items(), shares, strict=True)
    ]
    headings = ("phase", "in flight", "from .. to", "slots", f"a rank ({column.scale.unit})", "%")
    return with_bars(headings, cells, shares, style)


def _at_the_peak(peak: MemoryInstant, memory: RankMemory, style: Style) -> str:
    """Return the peak by block and category, largest first, with bars."""
    column = FixedColumn.of(peak.total_bytes, scale_for(peak.total_bytes, Dimension.BYTES))
    parts = _largest_first(peak)
    shares = [size / memory.available_bytes for _, size in parts]
    cells = [
        (block or "-", category, column.text(size), f"{100 * share:.1f}")
        for ((block, category), size), share in zip(parts, shares, strict=True)
    ]
    headings = ("at the peak", "category", f"a rank ({column.scale.unit})", "%")
    return with_bars(headings, cells, shares, style)
