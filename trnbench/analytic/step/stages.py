"""From blocks to pipeline stages: seconds of each class of stages, the slowest stage and node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from trnbench.analytic.step.blocks import NOTHING, BlockCost, BlockPrices, Purpose, Slot, total
from trnbench.arrays import FloatArray
from trnbench.program.points import Pick
from trnbench.program.slot_times import SlotTimes
from trnbench.program.stages import StageClass, StageRole

_RANK_SHIFT, _COUNT_SHIFT = 3 / 8, 1 / 4
"""Blom's constants."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagePlan:
    """A class of stages over the axes of the grid, without what depends on slots.

    `index`: the first such stage; `stages`: how many there are; `blocks`: how often each runs which
    kind. Seconds once a step as in `BlockPrices`. All 0 where a layout has no such stage.
    """

    role: StageRole
    index: FloatArray
    stages: FloatArray
    blocks: Mapping[str, FloatArray]
    reduce_s: FloatArray
    gather_s: FloatArray
    sums_s: FloatArray
    update_s: FloatArray


def stage_plans(
    classes: Sequence[StageClass], blocks: Mapping[str, BlockPrices], along: Pick
) -> tuple[StagePlan, ...]:
    """Return the classes in the order of the pipeline; the only stage counts as a first one."""
    ends = [stage for stage in classes if stage.role in ("only", "first")]
    others = [[stage] for stage in classes if stage not in ends]
    return tuple(_plan(group, blocks, along) for group in (ends, *others))


def _plan(group: Sequence[StageClass], blocks: Mapping[str, BlockPrices], along: Pick) -> StagePlan:
    """Return a class of stages, or several of which a layout has at most one."""
    kinds = dict.fromkeys(kind for stage in group for kind in stage.blocks)
    counts = {
        kind: along(
            _short(total((s.multiplicity > 0) * s.blocks[kind] for s in group if kind in s.blocks))
        )
        for kind in kinds
    }

    def once(read: Callable[[BlockPrices], FloatArray]) -> FloatArray:
        return total(counts[kind] * read(blocks[kind]) for kind in kinds)

    return StagePlan(
        role=group[-1].role,
        index=along(group[-1].index),
        stages=along(_short(total(stage.multiplicity for stage in group))),
        blocks=counts,
        reduce_s=once(lambda block: block.reduce_s),
        gather_s=once(lambda block: block.gather_s),
        sums_s=once(lambda block: block.sums_s),
        update_s=once(lambda block: block.update_s),
    )


def _short(values: FloatArray) -> FloatArray:
    """Return one number for many that are all the same."""
    return values.ravel()[:1].reshape(()) if np.all(values == values.flat[0]) else values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageSlots:
    """Seconds of one micro-batch on each stage of a class, all its chunks, by slot.

    `before`: the same summed over all stages in front of the class.
    """

    index: FloatArray
    stages: FloatArray
    blocks: Mapping[str, FloatArray]
    seconds: Mapping[Slot, FloatArray]
    before: Mapping[Slot, FloatArray]


def stage_slots(
    plans: Sequence[StagePlan],
    pick: Pick,
    lengths: Mapping[Slot, Mapping[str, FloatArray]],
    launch_s: Mapping[Slot, FloatArray],
) -> tuple[StageSlots, ...]:
    """Return the classes from the length of each block's slots, and what a stage's slot adds."""
    found: list[StageSlots] = []
    before = dict.fromkeys(lengths, NOTHING)
    for plan in plans:
        blocks = {kind: pick(count) for kind, count in plan.blocks.items()}
        seconds = {
            slot: weighted(blocks, of_kind) + launch_s.get(slot, NOTHING)
            for slot, of_kind in lengths.items()
        }
        stages = pick(plan.stages)
        found.append(
            StageSlots(
                index=pick(plan.index),
                stages=stages,
                blocks=blocks,
                seconds=seconds,
                before=before,
            )
        )
        before = {slot: before[slot] + stages * seconds[slot] for slot in before}
    return tuple(found)


def weighted(counts: Mapping[str, FloatArray], seconds: Mapping[str, FloatArray]) -> FloatArray:
    """Return the seconds of all blocks of a stage together."""
    return total(
        count * seconds[kind] for kind, count in counts.items() if seconds[kind] is not NOTHING
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlowestStage:
    """The stage that takes longest for a micro-batch, and sums over the stages on either side."""

    index: FloatArray
    blocks: Mapping[str, FloatArray]
    seconds: Mapping[Slot, FloatArray]
    before: Mapping[Slot, FloatArray]
    after: Mapping[Slot, FloatArray]

    def exposed_s(self, costs: Mapping[str, BlockCost], purpose: Purpose) -> FloatArray:
        """Return the exposed seconds of a purpose's exchanges in a micro-batch."""
        return weighted(self.blocks, {kind: c.exposed_in_all(purpose) for kind, c in costs.items()})

    def hidden_s(self, costs: Mapping[str, BlockCost], purpose: Purpose) -> FloatArray:
        """Return the seconds of a purpose's exchanges that compute hides in a micro-batch."""
        return weighted(self.blocks, {kind: c.hidden_in_all(purpose) for kind, c in costs.items()})


def slowest_stage(stages: Sequence[StageSlots]) -> SlowestStage:
    """Return the slowest stage; of equal ones the first."""
    first, last = stages[0], stages[-1]
    index, seconds, before = first.index, dict(first.seconds), dict(first.before)
    blocks = dict.fromkeys((kind for stage in stages for kind in stage.blocks), NOTHING)
    blocks.update(first.blocks)
    longest = total(first.seconds.values())
    for stage in stages[1:]:
        whole = total(stage.seconds.values())
        slower = (whole > longest) & (stage.stages > 0)
        longest = np.maximum(longest, whole * (stage.stages > 0))
        index = np.where(slower, stage.index, index)
        for slot in seconds:
            seconds[slot] = np.where(slower, stage.seconds[slot], seconds[slot])
            before[slot] = np.where(slower, stage.before[slot], before[slot])
        for kind in blocks:
            blocks[kind] = np.where(slower, stage.blocks.get(kind, NOTHING), blocks[kind])
    after = {
        slot: last.before[slot] + last.stages * last.seconds[slot] - before[slot] - seconds[slot]
        for slot in seconds
    }
    return SlowestStage(index=index, blocks=blocks, seconds=seconds, before=before, after=after)


def slot_times(seconds: Mapping[Slot, FloatArray]) -> SlotTimes[FloatArray]:
    """Return seconds by slot as a record; 0 where weight gradients have no slot of their own."""
    return SlotTimes(
        forward_s=seconds["forward"],
        backward_s=seconds["backward"],
        weight_s=seconds.get("weight", NOTHING),
    )


def expected_maximum(count: FloatArray) -> FloatArray:
    """Return the mean of the largest of so many standard normal draws; 0 for one.

    Blom's closed form E[max] = q((n - 3/8) / (n + 1/4)), q the standard normal quantile (Blom,
    Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    counts = np.asarray(count, dtype=np.float64)
    values, where = np.unique(counts, return_inverse=True)
    quantile = NormalDist().inv_cdf
    found = [quantile((n - _RANK_SHIFT) / (n + _COUNT_SHIFT)) for n in values.tolist()]
    return np.asarray(np.array(found)[where].reshape(counts.shape))


def slowest_node(scatter: FloatArray | float, nodes: FloatArray) -> FloatArray:
    """Return the time of the slowest of so many nodes over a typical one's, at least 1.

    Nodes differ by a relative scatter, normally distributed.
    """
    return np.asarray(1 + scatter * expected_maximum(nodes))
