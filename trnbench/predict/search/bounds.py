"""Seconds that no step of some layouts falls short of, from compute and tensor parallelism alone.

A stage of a pipeline with p stages takes at least the mean of all stages. So with T, the seconds
that one micro-batch computes, waits for tensor ranks and is launched on all stages together, m
micro-batches take at least

    gpipe         T (m + (p - 1) / v) / p       the last one passes all other stages, too
    1f1b          T (m + p - 1) / p             from m = p + 1 on; before, T / (1 - (m - 1) / 2 p)
    interleaved   as gpipe where m = p, else less by T n / v (4 n + p), with n = m v - 1
    zb-h1         T m / p

Let the slowest stage take S, and the d stages behind it together q S, q <= d.

1F1B: S waits for all stages before it, and for those behind it at least max(0, 2 q - w) S where
that is below q S, with w = min(d, m - 1). The whole is then T + (m - 1 - h) S, with h = 0 or
min(q, w - q), and T <= (p - d + q) S: least at q = w / 2 for m <= p, and at q = d for more.

Interleaved: the whole is at least T / v + (n - q) S / v, the way that keeps to S, and at least
T / v + n q S / d v, the way that keeps to the last stage. The larger of the two is least where they
are equal, and then for d = p / 2.

The slowest node's compute is longer by a factor. All else (other exchanges, messages, the update, a
host that is late) adds seconds, and is left out: of all groups of ranks only tensor ones, which are
few, need to be placed.

Of a row of micro-batch sizes, T (m + w) is at least the least T / size of the row's sizes times the
samples of a replica, and the least T times the least waits w.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from trnbench.engines.analytic.step.blocks import NOTHING
from trnbench.engines.analytic.step.compute import Products, compute_time
from trnbench.engines.analytic.step.exchanges import Exchanges
from trnbench.engines.analytic.step.host import slot_factor
from trnbench.facts.arrays import FloatArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Schedule
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.rows import Rows
from trnbench.predict.search.space import ALONG, Variant
from trnbench.program.block import Block
from trnbench.program.job_passes import TRAIN
from trnbench.program.job_phases import JobPhase, phases_of
from trnbench.program.points import Pick, Points
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
            pp, micro_batches = points.pick(grid.pp), grid.micro_batches_of(points.pick)
            stages = self._of_phase(phase, like)
            slower = points.pick(stages.slowest_node) - 1
            whole_s = stages.seconds(points.pick) + slower * stages.longer_s(points.pick)
            whole_s = whole_s + self._launched_s(phase.program, points.pick)
            waits = least_waits(schedule, pp, points.pick(grid.vpp), micro_batches, micro_batches)
            passes = micro_batches + waits
            return np.asarray(whole_s * passes / pp + self._once_s(phase.program))

        return np.broadcast_to(self._of_phases(program, of_phase), len(points))

    def of_rows(self, program: StepProgram, rows: Rows, like: Variant) -> FloatArray:
        """Seconds that each layout of a row takes at least."""
        first, last = rows.first, rows.last

        def of_phase(phase: JobPhase) -> FloatArray:
            grid, schedule = phase.program.grid, phase.program.layout.schedule
            stages = self._of_phase(phase, like)
            whole_s = stages.whole_s
            # The least of all micro-batches up to the last one.
            each_s, shortest_s = map(_least_yet, (whole_s / grid.micro_batch, whole_s))
            pp, samples = first.pick(grid.pp), first.pick(grid.global_batch) / first.pick(grid.dp)
            launched_s = self._launched_s(phase.program, first.pick)
            fewest, most = (grid.micro_batches_of(end.pick) for end in (last, first))
            computed_s = last.pick(each_s) * samples + launched_s * fewest
            waits = least_waits(schedule, pp, first.pick(grid.vpp), fewest, most)
            waited_s = (last.pick(shortest_s) + launched_s) * waits
            whole_s = (computed_s + waited_s) * first.pick(stages.slowdown)
            return np.asarray(whole_s / pp + self._once_s(phase.program))

        return np.broadcast_to(self._of_phases(program, of_phase), len(first))

    def _of_phases(
        self, program: StepProgram, of_phase: Callable[[JobPhase], FloatArray]
    ) -> FloatArray:
        phases = phases_of(program)
        writes = phases[0].generation is not None
        counted = (one for one in phases if one.generation is None)
        each = [one.times * of_phase(one) for one in counted if writes or one.name == TRAIN]
        return np.fmax(ROUNDED * sum(each, NOTHING), 0.0)  # also of NaN

    def _of_phase(self, phase: JobPhase, like: Variant) -> _Stages:
        # The ZeRO stage changes exchanges among replicas and the update alone: no bound has these.
        key = like.changed(zero=None), phase.name, splits_backward(phase.program.layout.schedule)

        def found() -> _Stages:
            blocks = {kind: block.without_updates for kind, block in phase.program.blocks.items()}
            program = replace(phase.program, blocks=blocks)
            return self._stages_s(program, self._exchanges(like))

        return self._stages.of(key, found)

    def _launched_s(self, program: StepProgram, pick: Pick) -> FloatArray:
        """Seconds in which the slots of a micro-batch are launched on all stages."""
        if not program.trains:
            return NOTHING
        efficiency, stack, pp = self.question.efficiency, self.question.stack, pick(program.grid.pp)
        launched_s = stack.micro_batch_s + (pp > 1) * stack.piped_micro_batch_s
        slots = pp * slot_factor(stack.host, pick(program.grid.vpp))
        return np.asarray(slots * efficiency.whole_factor * launched_s)

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
        hidden = efficiency.stack.overlaps.tensor
        parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        for kind, block in computed.blocks.items():
            # Sums first: they span few axes, and the number of blocks spans others.
            of_slots: dict[Slot, FloatArray] = {}
            for (phase, _), seconds in block.parts.items():
                if (slot := slot_of(phase, split=split)) is not None:
                    of_slots[slot] = of_slots.get(slot, NOTHING) + factor * seconds
            sent = self._sent_s(program.blocks[kind], exchanges.of(program), split=split)
            each, late = NOTHING, NOTHING
            for slot in {**of_slots, **sent}:
                taken, sent_s = of_slots.get(slot, NOTHING), sent.get(slot, NOTHING)
                each = each + taken + (sent_s - hidden * np.minimum(sent_s, taken))
                # What takes longer to compute hides as much more, if anything is left to hide.
                late = late + taken * (1 - hidden * (sent_s > taken))
            instances = program.instances(kind)
            blocks = instances if np.ptp(instances) else np.asarray(instances.ravel()[0])
            parts.append((blocks, each, late))
        return _Stages(parts, exchanges.of(program).slowest_node())

    def _sent_s(self, block: Block, exchanges: Exchanges, *, split: bool) -> dict[Slot, FloatArray]:
        """Seconds of a block's exchanges between tensor ranks, by slot; 0 where none is known."""
        sent: dict[Slot, FloatArray] = {}
        ops = [op for op in block.collectives if op.axis == "tp"]
        priced = exchanges.seconds_of(ops) if ops else {}
        for op in ops:
            if (slot := slot_of(op.phase, split=split)) is not None:
                sent[slot] = sent.get(slot, NOTHING) + np.fmax(priced[op], 0.0)
        return sent


class _Stages:
    """Seconds of all stages: blocks of each kind, and the seconds of one, which span few axes.

    Of these some become longer with the slowest node's compute.
    """

    def __init__(
        self,
        blocks: Sequence[tuple[FloatArray, FloatArray, FloatArray]],
        slowest_node: FloatArray,
    ) -> None:
        self._blocks, self.slowest_node = blocks, slowest_node

    def seconds(self, pick: Pick) -> FloatArray:
        """Seconds of all stages where all nodes are alike."""
        return sum((pick(count) * pick(each_s) for count, each_s, _ in self._blocks), NOTHING)

    def longer_s(self, pick: Pick) -> FloatArray:
        """Seconds of these that take longer on a slow node, by as much as its compute."""
        return sum((pick(count) * pick(late_s) for count, _, late_s in self._blocks), NOTHING)

    @cached_property
    def whole_s(self) -> FloatArray:
        return self.seconds(np.asarray)

    @cached_property
    def slowdown(self) -> FloatArray:
        """Factor at least by which the slowest node makes them longer."""
        whole_s, longer_s = self.whole_s, self.longer_s(np.asarray)
        share = np.divide(longer_s, whole_s, out=np.zeros(whole_s.shape), where=whole_s > 0)
        others = tuple(axis for axis in range(share.ndim) if axis != ALONG["tp"])
        return np.asarray(1 + (self.slowest_node - 1) * share.min(axis=others, keepdims=True))


def least_waits(
    schedule: Schedule, pp: FloatArray, vpp: FloatArray, fewest: FloatArray, most: FloatArray
) -> FloatArray:
    """Slots of the mean stage that a pipeline waits at least, beside those of its micro-batches.

    The least of all numbers of micro-batches from the `fewest` to the `most`.
    """
    match schedule:
        case "gpipe":
            return np.asarray((pp - 1) / vpp)
        case "1f1b":
            # They fall up to (2 - sqrt 2) p more micro-batches than one, and rise up to p more.
            ends = (np.minimum(micro_batches - 1, pp) for micro_batches in (fewest, most))
            more = np.clip((2 - np.sqrt(2)) * pp, *ends)
            return np.asarray(pp / (1 - more / (2 * pp)) - more - 1)
        case "interleaved":
            turns = most * vpp - 1
            unequal = (fewest < most) | (most != pp)
            return np.asarray((pp - 1 - unequal * pp * turns / (4 * turns + pp)) / vpp)
        case _:
            return NOTHING


def _least_yet(seconds: FloatArray) -> FloatArray:
    """The least of the numbers up to each micro-batch size, the last axis."""
    return np.minimum.accumulate(seconds, axis=-1) if seconds.ndim else seconds
