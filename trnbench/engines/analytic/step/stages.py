"""From blocks to pipeline stages: seconds of each class of stages, the slowest stage and node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trnbench.engines.analytic.step.blocks import (
    NOTHING,
    BlockCost,
    BlockPrices,
    total,
    weighted,
)
from trnbench.engines.analytic.step.host import HostPrices
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.program.points import Pick
from trnbench.program.slots import Purpose, Slot, SlotTimes
from trnbench.program.stages import StageClass, StageRole

ENDS = ("only", "first", "last")
"""The classes of stages that embed or predict."""


class StagePlan(Record, eq=False):
    """A class of stages over the axes of the grid, without the seconds of slots; 0 where absent."""

    role: StageRole
    index: FloatArray
    """The first such stage."""
    stages: FloatArray
    """Number of such stages."""
    blocks: Mapping[str, FloatArray]
    """Instances of each kind of block on each stage."""
    reduce_s: FloatArray
    """Seconds once a step, as in `BlockPrices`; likewise the next three."""
    gather_s: FloatArray
    sums_s: FloatArray
    update_s: FloatArray
    host_update_s: FloatArray
    """Seconds until the host has updated the stage's weights."""


def stage_plans(
    classes: Sequence[StageClass], blocks: Mapping[str, BlockPrices], along: Pick
) -> tuple[StagePlan, ...]:
    """The classes in the order of the pipeline; the only stage counts as a first one."""
    # A layout has either an only stage or a first one, so one plan serves both.
    ends = [stage for stage in classes if stage.role in ("only", "first")]
    others = [[stage] for stage in classes if stage not in ends]
    return tuple(_plan(group, blocks, along) for group in (ends, *others))


def updated_on_host(
    plans: Sequence[StagePlan], blocks: Mapping[str, BlockPrices], together: FloatArray
) -> tuple[StagePlan, ...]:
    """The classes with the seconds each waits for its host, which `together` stages share.

    Beside a stage on a node are all others of its pipeline, or inner ones, which neither embed nor
    predict. The stage with most work for the host is done when all of them are.
    """

    def once(plan: StagePlan, read: Callable[[BlockPrices], FloatArray]) -> FloatArray:
        return total(count * read(blocks[kind]) for kind, count in plan.blocks.items())

    own = [once(plan, lambda block: block.host_memory_s) for plan in plans]
    each = list(zip(plans, own, strict=True))
    stages = total(plan.stages for plan in plans)
    whole = total(plan.stages * memory_s for plan, memory_s in each)
    inner = [(plan, memory_s) for plan, memory_s in each if plan.role not in ENDS]
    within = total(plan.stages * memory_s for plan, memory_s in inner)
    within = within / np.maximum(total(plan.stages for plan, _ in inner), 1)

    def beside(memory_s: FloatArray) -> FloatArray:
        others = (whole - memory_s) / np.maximum(stages - 1, 1)
        return np.where(together < stages, within, others)

    return tuple(
        replace(
            plan,
            host_update_s=(plan.stages > 0)
            * (
                once(plan, lambda block: block.host_link_s)
                + (memory_s + (together - 1) * beside(memory_s)) / together
            ),
        )
        for plan, memory_s in each
    )


def _plan(group: Sequence[StageClass], blocks: Mapping[str, BlockPrices], along: Pick) -> StagePlan:
    """The plan of a class of stages, or of several of which a layout has at most one."""
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
        host_update_s=NOTHING,
    )


def _short(values: FloatArray) -> FloatArray:
    return values.ravel()[:1].reshape(()) if np.all(values == values.flat[0]) else values


class StageSlots(Record, eq=False):
    """Seconds of one micro-batch on each stage of a class, all its chunks, by slot."""

    index: FloatArray
    stages: FloatArray
    blocks: Mapping[str, FloatArray]
    seconds: Mapping[Slot, FloatArray]
    host: Mapping[Slot, FloatArray]
    """Part of the seconds that the device waits for the host."""
    before: Mapping[Slot, FloatArray]
    """Sum over all stages in front of the class."""


def stage_slots(
    plans: Sequence[StagePlan],
    pick: Pick,
    lengths: Mapping[Slot, Mapping[str, FloatArray]],
    launch_s: Mapping[Slot, FloatArray],
    host: HostPrices | None = None,
) -> tuple[StageSlots, ...]:
    """The classes from the length of each block's slots, and the seconds a stage's slot adds."""
    found: list[StageSlots] = []
    before = dict.fromkeys(lengths, NOTHING)
    # In pipeline order, so that the sum over the stages in front of a class grows along the loop.
    for plan in plans:
        blocks = {kind: pick(count) for kind, count in plan.blocks.items()}
        seconds = {slot: weighted(blocks, of_kind) for slot, of_kind in lengths.items()}
        waited = dict.fromkeys(lengths, NOTHING) if host is None else host.added(blocks, seconds)
        seconds = {slot: own + launch_s.get(slot, NOTHING) for slot, own in seconds.items()}
        if host is not None:
            seconds = {slot: own + waited[slot] for slot, own in seconds.items()}
        stages = pick(plan.stages)
        found.append(
            StageSlots(
                index=pick(plan.index),
                stages=stages,
                blocks=blocks,
                seconds=seconds,
                host=waited,
                before=before,
            )
        )
        before = {slot: before[slot] + stages * seconds[slot] for slot in before}
    return tuple(found)


class SlowestStage(Record, eq=False):
    """The stage that takes longest for a micro-batch, and sums over the stages on either side."""

    index: FloatArray
    blocks: Mapping[str, FloatArray]
    seconds: Mapping[Slot, FloatArray]
    host: Mapping[Slot, FloatArray]
    """Part of its seconds that the device waits for the host."""
    before: Mapping[Slot, FloatArray]
    after: Mapping[Slot, FloatArray]

    def exposed_s(self, costs: Mapping[str, BlockCost], purpose: Purpose) -> FloatArray:
        """Exposed seconds of a purpose's exchanges in a micro-batch."""
        return weighted(self.blocks, {kind: c.exposed_in_all(purpose) for kind, c in costs.items()})

    def hidden_s(self, costs: Mapping[str, BlockCost], purpose: Purpose) -> FloatArray:
        """Seconds of a purpose's exchanges that compute hides in a micro-batch."""
        return weighted(self.blocks, {kind: c.hidden_in_all(purpose) for kind, c in costs.items()})


def slowest_stage(stages: Sequence[StageSlots]) -> SlowestStage:
    """Slowest stage; of equal ones the first."""
    first, last = stages[0], stages[-1]
    index, seconds, before = first.index, dict(first.seconds), dict(first.before)
    host = dict(first.host)
    blocks = dict.fromkeys((kind for stage in stages for kind in stage.blocks), NOTHING)
    blocks.update(first.blocks)
    longest = total(first.seconds.values())
    # Layouts differ in which stage is slowest, so every number of the winner is selected by mask.
    for stage in stages[1:]:
        whole = total(stage.seconds.values())
        slower = (whole > longest) & (stage.stages > 0)
        longest = np.maximum(longest, whole * (stage.stages > 0))
        index = np.where(slower, stage.index, index)
        for slot in seconds:
            seconds[slot] = np.where(slower, stage.seconds[slot], seconds[slot])
            before[slot] = np.where(slower, stage.before[slot], before[slot])
            if host[slot] is not NOTHING:
                host[slot] = np.where(slower, stage.host[slot], host[slot])
        for kind in blocks:
            blocks[kind] = np.where(slower, stage.blocks.get(kind, NOTHING), blocks[kind])
    # All stages minus those before and the slowest itself: no second pass over the classes.
    after = {
        slot: last.before[slot] + last.stages * last.seconds[slot] - before[slot] - seconds[slot]
        for slot in seconds
    }
    return SlowestStage(
        index=index, blocks=blocks, seconds=seconds, host=host, before=before, after=after
    )


def slot_times(seconds: Mapping[Slot, FloatArray]) -> SlotTimes[FloatArray]:
    """Seconds by slot as a record; 0 where weight gradients have no slot of their own."""
    return SlotTimes(
        forward_s=seconds["forward"],
        backward_s=seconds["backward"],
        weight_s=seconds.get("weight", NOTHING),
    )
