"""Seconds that no step of some layouts falls short of, from compute and tensor parallelism alone.

A stage of a pipeline with p stages takes at least the mean of all stages. So with T, the seconds
that one micro-batch computes, waits for tensor ranks and is launched on all stages together, m
micro-batches take at least

    gpipe         T (m + (p - 1) / v) / p         the last one passes all other stages, too
    1f1b          T (m + p - 1 - min(p - 1, m - 1) / 2) / p
    interleaved   as gpipe where m = p, else T m / p
    zb-h1         T m / p

1F1B: the slowest stage S runs all m, waits for the b seconds of the stages before it and, for those
behind it (a seconds), min(a, r) with r >= 2 a - w S and w = min(p - 1, m - 1). That is never less
than a - w S / 2, so the whole is at least T + (m - 1 - w / 2) S, where S >= T / p.

All else (other exchanges, messages, the update, slow nodes, a host that is late) adds seconds, and
is left out: of all groups of ranks only tensor ones, which are few, need to be placed.

Of a row of micro-batch sizes, T (m + w) is at least the least T / size of the row's sizes times the
samples of a replica, and the least T times the least waits w.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from trnbench.engines.analytic.step.blocks import NOTHING
from trnbench.engines.analytic.step.compute import Products, compute_time
from trnbench.engines.analytic.step.exchanges import Exchanges
from trnbench.facts.arrays import FloatArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Schedule
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.rows import Rows
from trnbench.predict.search.space import Variant
from trnbench.program.block import Block
from trnbench.program.job_passes import TRAIN
from trnbench.program.job_phases import JobPhase, phases_of
from trnbench.program.points import Points
from trnbench.program.schedule import splits_backward
from trnbench.program.slots import Slot, slot_of
from trnbench.program.step import StepProgram

ROUNDED = 1 - 1e-9
"""Part of a bound that rounding leaves for certain."""


class Floors:
    """Bounds of the layouts of a question's programs, from operations that are priced once.

    `exchanges` are those of programs with an equal variant, on the same grid.
    """

    def __init__(
        self,
        question: SearchQuestion,
        products: Products,
        exchanges: Callable[[Variant], Exchanges],
    ) -> None:
        self.question, self._products, self._exchanges = question, products, exchanges
        self._stages: Memo[tuple[Variant, str, bool], _Stages] = Memo()

    def seconds(self, program: StepProgram, points: Points, like: Variant) -> FloatArray:
        """Seconds that the step of each layout takes at least; 0 where nothing can compute it.

        Programs with an equal `like` have the same blocks.
        """

        def of_phase(phase: JobPhase) -> FloatArray:
            grid, schedule = phase.program.grid, phase.program.layout.schedule
            whole_s = self._of_phase(phase, like).seconds(points.pick)
            pp, micro_batches = points.pick(grid.pp), grid.micro_batches_of(points.pick)
            whole_s = whole_s + self._launched_s(phase.program, pp)
            passes = micro_batches + least_waits(schedule, pp, points.pick(grid.vpp), micro_batches)
            return np.asarray(whole_s * passes / pp + self._once_s(phase.program))

        return np.broadcast_to(self._of_phases(program, of_phase), len(points))

    def of_rows(self, program: StepProgram, rows: Rows, like: Variant) -> FloatArray:
        """Seconds that each layout of a row takes at least."""
        first, last = rows.first, rows.last

        def of_phase(phase: JobPhase) -> FloatArray:
            grid, schedule = phase.program.grid, phase.program.layout.schedule
            whole_s = self._of_phase(phase, like).whole_s
            # The least of all micro-batches up to the last one.
            each_s, shortest_s = map(_least_yet, (whole_s / grid.micro_batch, whole_s))
            pp, samples = first.pick(grid.pp), first.pick(grid.global_batch) / first.pick(grid.dp)
            launched_s = self._launched_s(phase.program, pp)
            computed_s = last.pick(each_s) * samples
            computed_s = computed_s + launched_s * grid.micro_batches_of(last.pick)
            # Layouts with fewer micro-batches wait longer, but those that are interleaved.
            most = grid.micro_batches_of(first.pick)
            waits = least_waits(schedule, pp, first.pick(grid.vpp), most)
            waits = waits * (schedule != "interleaved")
            waited_s = (last.pick(shortest_s) + launched_s) * waits
            return np.asarray((computed_s + waited_s) / pp + self._once_s(phase.program))

        return np.broadcast_to(self._of_phases(program, of_phase), len(first))

    def _of_phases(
        self, program: StepProgram, of_phase: Callable[[JobPhase], FloatArray]
    ) -> FloatArray:
        phases = phases_of(program)
        writes = phases[0].generation is not None
        counted = (one for one in phases if one.generation is None)
        each = [one.times * of_phase(one) for one in counted if writes or one.name == TRAIN]
        return np.nan_to_num(ROUNDED * sum(each, NOTHING), nan=0.0)

    def _of_phase(self, phase: JobPhase, like: Variant) -> _Stages:
        # The ZeRO stage changes exchanges among replicas and the update alone: no bound has these.
        key = like.changed(zero=None), phase.name, splits_backward(phase.program.layout.schedule)

        def found() -> _Stages:
            blocks = {kind: block.without_updates for kind, block in phase.program.blocks.items()}
            program = replace(phase.program, blocks=blocks)
            return self._stages_s(program, self._exchanges(like))

        return self._stages.of(key, found)

    def _launched_s(self, program: StepProgram, pp: FloatArray) -> FloatArray:
        """Seconds in which the slots of a micro-batch are launched on all stages."""
        efficiency, stack = self.question.efficiency, self.question.stack
        launched_s = stack.micro_batch_s + (pp > 1) * stack.piped_micro_batch_s
        return pp * efficiency.whole_factor * launched_s if program.trains else NOTHING

    def _once_s(self, program: StepProgram) -> FloatArray:
        efficiency = self.question.efficiency
        once_s = efficiency.whole_factor * efficiency.stack.step_s
        return np.asarray(once_s) if program.trains else NOTHING

    def _stages_s(self, program: StepProgram, exchanges: Exchanges) -> _Stages:
        """Seconds that all stages together take for one micro-batch."""
        efficiency, question = self.question.efficiency, self.question
        computed = compute_time(
            program,
            question.platform.chip,
            efficiency.compute,
            logical_size=question.logical_size,
            known=self._products,
        )
        split, factor = splits_backward(program.layout.schedule), efficiency.whole_factor
        parts: list[tuple[FloatArray, FloatArray]] = []
        for kind, block in computed.blocks.items():
            # Sums first: they span few axes, and the number of blocks spans others.
            of_slots: dict[Slot, FloatArray] = {}
            for (phase, _), seconds in block.parts.items():
                if (slot := slot_of(phase, split=split)) is not None:
                    of_slots[slot] = of_slots.get(slot, NOTHING) + factor * seconds
            sent = self._sent_s(program.blocks[kind], exchanges.of(program), split=split)
            hidden = efficiency.stack.overlaps.tensor
            each = NOTHING
            for slot in {**of_slots, **sent}:
                taken, sent_s = of_slots.get(slot, NOTHING), sent.get(slot, NOTHING)
                each = each + taken + (sent_s - hidden * np.minimum(sent_s, taken))
            blocks = program.instances(kind)
            parts.append((blocks if np.ptp(blocks) else np.asarray(blocks.ravel()[0]), each))
        return _Stages(parts)

    def _sent_s(self, block: Block, exchanges: Exchanges, *, split: bool) -> dict[Slot, FloatArray]:
        """Seconds of a block's exchanges between tensor ranks, by slot; 0 where none is known."""
        sent: dict[Slot, FloatArray] = {}
        ops = [op for op in block.collectives if op.axis == "tp"]
        priced = exchanges.seconds_of(ops) if ops else {}
        for op in ops:
            if (slot := slot_of(op.phase, split=split)) is not None:
                sent[slot] = sent.get(slot, NOTHING) + np.nan_to_num(priced[op], nan=0.0)
        return sent


class _Stages(tuple[tuple[FloatArray, FloatArray], ...]):
    """Blocks of each kind on all stages, and the seconds of one: both span few axes of a grid."""

    def seconds(self, pick: Callable[[FloatArray], FloatArray]) -> FloatArray:
        return sum((pick(blocks) * pick(each_s) for blocks, each_s in self), NOTHING)

    @cached_property
    def whole_s(self) -> FloatArray:
        return self.seconds(np.asarray)


def least_waits(
    schedule: Schedule, pp: FloatArray, vpp: FloatArray, micro_batches: FloatArray
) -> FloatArray:
    """Slots of the mean stage that a pipeline waits at least, beside those of its micro-batches."""
    match schedule:
        case "gpipe":
            return np.asarray((pp - 1) / vpp)
        case "1f1b":
            return np.asarray(pp - 1 - np.minimum(pp - 1, micro_batches - 1) / 2)
        case "interleaved":
            return np.asarray((micro_batches == pp) * (pp - 1) / vpp)
        case _:
            return NOTHING


def _least_yet(seconds: FloatArray) -> FloatArray:
    """The least of the numbers up to each micro-batch size, the last axis."""
    return np.minimum.accumulate(seconds, axis=-1) if seconds.ndim else seconds
