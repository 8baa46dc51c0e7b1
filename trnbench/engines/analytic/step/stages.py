"""From blocks to pipeline stages, the slowest of them, and the end of the step.

End of the step. Gradients of a chunk of layers exist from the start of its last slot on, weights
are due by the end of the chunk's first forward slot. The share of a transfer that may overlap has
that long; the excess, and the rest of the transfer, lengthen the step. Gradients take turns on the
network with the exchanges of the last slots between nodes. With v chunks on each of p stages the
first chunk to finish has (v - 1) p slots more for its gradients than the last one, which has just
one; weights likewise, in the opposite order. A stage behind the first is done earlier by the slots
that drain in front of it, and starts later by those that fill it: its transfers have that much more
time. All stages wait for the slowest sum of gradients, since a norm over all gradients clips them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Literal, TypeAlias

import numpy as np

from trnbench.engines.analytic.step.blocks import (
    NOTHING,
    BlockCost,
    BlockPrices,
    Once,
    plus,
    repeated,
    total,
    weighted,
)
from trnbench.engines.analytic.step.host import HostPrices
from trnbench.facts.arrays import BoolArray, FloatArray, some
from trnbench.facts.records import Record, replace
from trnbench.program.points import Pick
from trnbench.program.slots import ENDINGS, Purpose, Slot, SlotTimes
from trnbench.program.stages import StageClass, StageRole

ENDS = ("only", "first", "last")  # The classes of stages that embed or predict
ROUNDED = 1 + 1e-9  # By less two equal stages differ that were summed in another order

_ONCE: tuple[Once, ...] = (*ENDINGS, "update")
_Slots: TypeAlias = Mapping[Slot, FloatArray]


class StagePlan(Record, eq=False):
    """A class of stages over the axes of the grid, without the seconds of slots; 0 where absent."""

    role: StageRole
    index: FloatArray  # The first such stage
    stages: FloatArray  # Number of such stages
    blocks: Mapping[str, FloatArray]  # Instances of each kind of block on each stage
    once: Mapping[Once | Literal["host update"], FloatArray]
    """As in `BlockPrices`; `host update`: until the host has updated the stage's weights."""


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

    def once(plan: StagePlan, what: Once) -> FloatArray:
        return total(count * blocks[kind].once[what] for kind, count in plan.blocks.items())

    own = [once(plan, "host memory") for plan in plans]
    each = list(zip(plans, own, strict=True))
    stages = total(plan.stages for plan in plans)
    whole = total(plan.stages * memory_s for plan, memory_s in each)
    inner = [(plan, memory_s) for plan, memory_s in each if plan.role not in ENDS]
    within = total(plan.stages * memory_s for plan, memory_s in inner)
    within = within / np.maximum(total(plan.stages for plan, _ in inner), 1)

    def beside(memory_s: FloatArray) -> FloatArray:
        others = (whole - memory_s) / np.maximum(stages - 1, 1)
        return np.where(together < stages, within, others)

    def updated_s(plan: StagePlan, memory_s: FloatArray) -> FloatArray:
        shared_s = (memory_s + (together - 1) * beside(memory_s)) / together
        return (plan.stages > 0) * (once(plan, "host link") + shared_s)

    return tuple(
        replace(plan, once={**plan.once, "host update": updated_s(plan, memory_s)})
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

    return StagePlan(
        role=group[-1].role,
        index=along(group[-1].index),
        stages=along(_short(total(stage.multiplicity for stage in group))),
        blocks=counts,
        once={
            what: total(
                count * blocks[kind].once[what]
                for kind, count in counts.items()
                if what in blocks[kind].once
            )
            for what in _ONCE
        },
    )


def _short(values: FloatArray) -> FloatArray:
    return values.ravel()[:1].reshape(()) if np.all(values == values.flat[0]) else values


class StageSlots(Record, eq=False):
    """Seconds of one micro-batch on each stage of a class, all its chunks, by slot."""

    index: FloatArray
    stages: FloatArray
    blocks: Mapping[str, FloatArray]
    seconds: Mapping[Slot, FloatArray]
    host: Mapping[Slot, FloatArray]  # Part of the seconds that the device waits for the host
    before: Mapping[Slot, FloatArray]  # Sum over all stages in front of the class


def stage_slots(
    plans: Sequence[StagePlan],
    pick: Pick,
    lengths: Mapping[Slot, Mapping[str, FloatArray]],
    launch_s: Mapping[Slot, FloatArray],
    host: HostPrices | None = None,
) -> tuple[StageSlots, ...]:
    """The classes from the length of each block's slots, and the seconds a stage's slot adds."""
    found: list[StageSlots] = []
    # In pipeline order, so that the sum over the stages in front of a class grows along the loop.
    for plan in plans:
        blocks = {kind: pick(count) for kind, count in plan.blocks.items()}
        seconds = {slot: weighted(blocks, of_kind) for slot, of_kind in lengths.items()}
        waited = dict.fromkeys(lengths, NOTHING) if host is None else host.added(blocks, seconds)
        seconds = {
            slot: own + launch_s[slot] if slot in launch_s else own for slot, own in seconds.items()
        }
        if host is not None:
            seconds = {slot: own + waited[slot] for slot, own in seconds.items()}
        found.append(
            StageSlots(
                index=pick(plan.index),
                stages=pick(plan.stages),
                blocks=blocks,
                seconds=seconds,
                host=waited,
                before=_up_to(found[-1]) if found else dict.fromkeys(lengths, NOTHING),
            )
        )
    return tuple(found)


def _up_to(last: StageSlots) -> _Slots:
    """Sum over all stages of a class and in front of it."""
    return {
        slot: plus(last.before[slot], repeated(last.stages, seconds))
        for slot, seconds in last.seconds.items()
    }


class SlowestStage(Record, eq=False):
    """The stage that takes longest for a micro-batch, and sums over the stages on either side.

    Layouts differ in which stage that is; what is asked of it is selected by mask.
    """

    classes: Sequence[StageSlots]
    slower: Sequence[BoolArray]
    """Of each class but the first one, where it takes longer than those before it."""
    whole: Mapping[Slot, FloatArray]
    """Sum over all stages."""

    def of(self, numbers: Iterable[FloatArray]) -> FloatArray:
        """A number of the slowest stage, given those of each class."""
        found, *others = numbers
        for mask, number in zip(self.slower, others, strict=True):
            found = found if number is found else np.where(mask, number, found)
        return found

    def _by_slot(self, each: Sequence[_Slots]) -> _Slots:
        return {slot: self.of(of_class[slot] for of_class in each) for slot in self.whole}

    @cached_property
    def index(self) -> FloatArray:
        return self.of(stage.index for stage in self.classes)

    @cached_property
    def seconds(self) -> _Slots:
        return self._by_slot([stage.seconds for stage in self.classes])

    @cached_property
    def host(self) -> _Slots:
        return self._by_slot([stage.host for stage in self.classes])

    @cached_property
    def before(self) -> _Slots:
        return self._by_slot([stage.before for stage in self.classes])

    @property
    def after(self) -> _Slots:
        # All stages minus those before and the slowest itself: no second pass over the classes.
        return {
            slot: whole - self.before[slot] - self.seconds[slot]
            for slot, whole in self.whole.items()
        }

    @cached_property
    def blocks(self) -> Mapping[str, FloatArray]:
        each = [stage.blocks for stage in self.classes]
        kinds = dict.fromkeys(kind for blocks in each for kind in blocks)
        return {kind: self.of(blocks.get(kind, NOTHING) for blocks in each) for kind in kinds}

    def exposed_s(self, costs: Mapping[str, BlockCost], purpose: Purpose) -> FloatArray:
        return weighted(self.blocks, {kind: c.exposed_in_all(purpose) for kind, c in costs.items()})

    def hidden_s(self, costs: Mapping[str, BlockCost], purpose: Purpose) -> FloatArray:
        return weighted(self.blocks, {kind: c.hidden_in_all(purpose) for kind, c in costs.items()})


def slowest_stage(stages: Sequence[StageSlots]) -> SlowestStage:
    """Slowest stage; of equal ones the first."""
    first, *others = stages
    longest = total(first.seconds.values())
    classes, slower = [first], []
    for stage in others:
        whole = total(stage.seconds.values())
        mask = (whole > longest * ROUNDED) & (stage.stages > 0)
        # Most classes are slower nowhere.
        if mask.any():
            longest = np.where(mask, whole, longest)
            classes.append(stage)
            slower.append(mask)
    return SlowestStage(classes=classes, slower=slower, whole=_up_to(stages[-1]))


def slot_times(seconds: Mapping[Slot, FloatArray]) -> SlotTimes[FloatArray]:
    """Seconds by slot as a record; 0 where weight gradients have no slot of their own."""
    return SlotTimes(
        forward_s=seconds["forward"],
        backward_s=seconds["backward"],
        weight_s=seconds.get("weight", NOTHING),
    )


class StepEnding(Record, eq=False):
    """Seconds that follow the last slot of a pipeline."""

    update_s: FloatArray  # The optimizer of the stage with most weights
    exposed_s: FloatArray  # Exchanges of gradients and weights that nothing hides
    exchanges: Sequence[Sequence[FloatArray]]  # All of these of each class of stages

    @property
    def hidden_s(self) -> FloatArray:
        """Exchanges that overlap, on the stage with most of them."""
        moved_s = reduce(np.maximum, map(total, self.exchanges))
        return np.maximum(moved_s - self.exposed_s, 0)


class OverlapWindow(Record, eq=False):
    """The slots that transfers at a step's end may overlap with."""

    stages: FloatArray
    chunks: FloatArray  # Chunks on each stage
    send_s: FloatArray  # One message between stages
    share: FloatArray  # Share of a transfer that may overlap
    interleaved: bool

    def beyond(self, seconds: FloatArray, slot_s: FloatArray) -> FloatArray:
        """Seconds of the overlapping share that a stage's own slots, `slot_s`, do not cover.

        Interleaved, either the last chunk's transfer exceeds its one slot, or all chunks' transfers
        exceed the (v - 1) p + 1 slots that they have.
        """
        early = self.share * seconds
        if not self.interleaved:
            return np.asarray(early - slot_s)
        slot = slot_s / self.chunks
        return np.maximum(early / self.chunks - slot, early - self._slots * slot)

    @cached_property
    def _slots(self) -> FloatArray:
        return (self.chunks - 1) * self.stages + 1

    def late(self, seconds: FloatArray) -> FloatArray:
        return np.asarray((1 - self.share) * seconds)

    def way(self, slots_s: FloatArray, messages: FloatArray) -> FloatArray:
        if slots_s is NOTHING:  # No stage lies in front of the first one.
            return NOTHING
        slot_s = slots_s / self.chunks if self.interleaved else slots_s
        return np.asarray(slot_s + messages * self.send_s)


def ending(
    plans: Sequence[StagePlan],
    stages: Sequence[StageSlots],
    pick: Pick,
    slowdown: FloatArray,
    crossing: Callable[[], Mapping[str, FloatArray]],
    window: OverlapWindow,
) -> StepEnding:
    """The end of the step; `crossing` finds each kind of block's `crossing_s`."""
    reduced, rest, update = NOTHING, NOTHING, NOTHING
    exchanges: list[tuple[FloatArray, ...]] = []
    for plan, stage in zip(plans, stages, strict=True):
        once = {what: s if s is NOTHING else pick(s) for what, s in plan.once.items()}
        reduce_s, gather_s, sums_s = once["reduce"], once["gather"], once["sums"]
        exchanges.append((reduce_s, sums_s, gather_s))
        # A slow node's chips are slow; its host updates what it always does.
        update_s = once["update"] * slowdown
        if "host update" in once:
            update_s = update_s + once["host update"]
        rest_s = update_s + sums_s
        if some(reduce_s):
            last_slot_s = stage.seconds.get("weight", stage.seconds["backward"])
            # Exchanges between nodes occupy the network in this slot, so gradients cannot use that
            # time.
            free_s = last_slot_s - weighted(stage.blocks, crossing())
            waited = np.maximum(window.beyond(reduce_s, free_s), 0)
            # Later stages are done earlier: they may reduce while the drain passes the stages
            # before.
            drained = window.way(_drained(stage.before), stage.index)
            reduced = np.maximum(reduced, window.late(reduce_s) + waited - drained)
        if some(gather_s):
            filled = window.way(stage.before["forward"], stage.index)
            awaited = np.maximum(window.beyond(gather_s, stage.seconds["forward"]) - filled, 0)
            rest_s = rest_s + window.late(gather_s) + awaited
        rest = np.maximum(rest, rest_s)
        update = np.maximum(update, update_s)
    # The slowest reduction and the slowest rest need not be one stage's: the norm over all
    # gradients lies between them.
    return StepEnding(update_s=update, exposed_s=reduced + (rest - update), exchanges=exchanges)


def _drained(before: Mapping[Slot, FloatArray]) -> FloatArray:
    # Weight slots fill the drain of the pipeline, as far as they last.
    if "weight" in before:
        return np.maximum(before["backward"] - before["weight"], 0)
    return before["backward"]
