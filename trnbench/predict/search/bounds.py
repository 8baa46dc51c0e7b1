"""Seconds that no step of some layouts falls short of, from what computes alone.

A stage of a pipeline with p stages takes at least the mean of all stages. So with T, the seconds
that one micro-batch computes and is launched on all stages together, m micro-batches take at least

    gpipe         T (m + (p - 1) / v) / p         the last one passes all other stages, too
    1f1b          T (m + p - 1 - min(p - 1, m - 1) / 2) / p
    interleaved   as gpipe where m = p, else T m / p
    zb-h1         T m / p

and the update of the weights, again of the mean stage.

1F1B: the slowest stage S runs all m, waits for the b seconds of the stages before it and, for those
behind it (a seconds), min(a, r) with r >= 2 a - w S and w = min(p - 1, m - 1). That is never less
than a - w S / 2, so the whole is at least T + (m - 1 - w / 2) S, where S >= T / p.

All else (exchanges, messages, slow nodes, a host that is late) adds seconds, and is left out: these
bounds need no group of ranks to be placed.
"""

from __future__ import annotations

import numpy as np

from trnbench.engines.analytic.step.blocks import NOTHING
from trnbench.engines.analytic.step.compute import Products, compute_time
from trnbench.facts.arrays import FloatArray
from trnbench.facts.memo import Memo
from trnbench.facts.workload.layout import Schedule
from trnbench.predict.search.question import SearchQuestion
from trnbench.program.job_passes import TRAIN
from trnbench.program.job_phases import JobPhase, phases_of
from trnbench.program.points import Points
from trnbench.program.schedule import splits_backward
from trnbench.program.slots import slot_of
from trnbench.program.step import StepProgram

ROUNDED = 1 - 1e-9
"""Part of a bound that rounding leaves for certain."""


class Floors:
    """Bounds of the layouts of a question's programs, from operations that are priced once."""

    def __init__(self, question: SearchQuestion, products: Products) -> None:
        self.question, self._products = question, products
        self._blocks: Memo[tuple[object, str], tuple[FloatArray, FloatArray]] = Memo()

    def seconds(self, program: StepProgram, points: Points, like: object) -> FloatArray:
        """Seconds that the step of each layout takes at least; 0 where nothing can compute it.

        Programs with an equal `like` have the same blocks.
        """
        phases = phases_of(program)
        writes = phases[0].generation is not None
        counted = (one for one in phases if one.generation is None)
        each = [
            one.times * self._phase_s(one, points, like)
            for one in counted
            if writes or one.name == TRAIN
        ]
        least_s = np.nan_to_num(ROUNDED * sum(each, NOTHING), nan=0.0)
        return np.broadcast_to(least_s, len(points))

    def _phase_s(self, phase: JobPhase, points: Points, like: object) -> FloatArray:
        program, efficiency, pick = phase.program, self.question.efficiency, points.pick
        stack, grid = efficiency.stack, program.grid
        computed = self._blocks.of((like, phase.name), lambda: self._stages_s(program))
        whole_s, update_s = map(pick, computed)
        pp, once_s = pick(grid.pp), NOTHING
        if program.trains:
            launched_s = stack.micro_batch_s + (pp > 1) * stack.piped_micro_batch_s
            whole_s = whole_s + pp * efficiency.whole_factor * launched_s
            once_s = np.asarray(efficiency.whole_factor * stack.step_s)
        micro_batches = grid.micro_batches_of(pick)
        passes = least_passes(program.layout.schedule, pp, pick(grid.vpp), micro_batches)
        return np.asarray((whole_s * passes + update_s) / pp + once_s)

    def _stages_s(self, program: StepProgram) -> tuple[FloatArray, FloatArray]:
        """Seconds that all stages together compute for one micro-batch, and for an update."""
        efficiency, question = self.question.efficiency, self.question
        computed = compute_time(
            program,
            question.platform.chip,
            efficiency.compute,
            logical_size=question.logical_size,
            known=self._products,
        )
        split = splits_backward(program.layout.schedule)
        whole_s, update_s = NOTHING, NOTHING
        for kind, block in computed.blocks.items():
            # Sums first: they span few axes, and the number of blocks spans others.
            of_slots, of_update = NOTHING, NOTHING
            for (phase, _), seconds in block.parts.items():
                if slot_of(phase, split=split) is None:
                    of_update = of_update + seconds
                else:
                    of_slots = of_slots + seconds
            blocks = efficiency.whole_factor * program.instances(kind)
            blocks = blocks if np.ptp(blocks) else blocks.ravel()[0]
            whole_s, update_s = whole_s + blocks * of_slots, update_s + blocks * of_update
        return whole_s, update_s


def least_passes(
    schedule: Schedule, pp: FloatArray, vpp: FloatArray, micro_batches: FloatArray
) -> FloatArray:
    """Number of mean stages' slots that a pipeline takes at least, one after the other."""
    match schedule:
        case "gpipe":
            return np.asarray(micro_batches + (pp - 1) / vpp)
        case "1f1b":
            waited = np.minimum(pp - 1, micro_batches - 1) / 2
            return np.asarray(micro_batches + pp - 1 - waited)
        case "interleaved":
            return np.asarray(micro_batches + (micro_batches == pp) * (pp - 1) / vpp)
        case _:
            return micro_batches
