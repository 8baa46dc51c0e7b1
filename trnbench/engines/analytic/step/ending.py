"""Seconds that the end of a step adds: gradients summed, weights updated, weights gathered.

Model. Gradients of a chunk of layers exist from the start of its last slot on, weights are due by
the end of the chunk's first forward slot. The share of a transfer that may overlap has that long;
the excess, and the rest of the transfer, lengthen the step. Gradients take turns on the network
with the exchanges of the last slots between nodes. With v chunks on each of p stages the first
chunk to finish has (v - 1) p slots more for its gradients than the last one, which has just one;
weights likewise, in the opposite order. A stage behind the first is done earlier by the slots that
drain in front of it, and starts later by those that fill it: its transfers have that much more
time. All stages wait for the slowest sum of gradients, since a norm over all gradients clips them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.engines.analytic.step.blocks import NOTHING, weighted
from trnbench.engines.analytic.step.stages import StagePlan, StageSlots
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.program.points import Pick
from trnbench.program.slots import Slot


class StepEnding(Record, eq=False):
    """Seconds that follow the last slot of a pipeline."""

    update_s: FloatArray
    """The optimizer of the stage with most weights."""
    exposed_s: FloatArray
    """Exchanges of gradients and weights that nothing hides."""
    hidden_s: FloatArray
    """Exchanges that overlap, on the stage with most of them."""


class OverlapWindow(Record, eq=False):
    """The slots that transfers at a step's end may overlap with."""

    stages: FloatArray
    chunks: FloatArray
    """Chunks on each stage."""
    send_s: FloatArray
    """One message between stages."""
    share: FloatArray
    """Share of a transfer that may overlap."""
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
        slots = (self.chunks - 1) * self.stages + 1
        return np.maximum(early / self.chunks - slot, early - slots * slot)

    def late(self, seconds: FloatArray) -> FloatArray:
        """Seconds that may not overlap."""
        return np.asarray((1 - self.share) * seconds)

    def way(self, slots_s: FloatArray, messages: FloatArray) -> FloatArray:
        """Seconds of one chunk's slots on consecutive stages, with messages between them."""
        return np.asarray(slots_s / self.chunks + messages * self.send_s)


def ending(
    plans: Sequence[StagePlan],
    stages: Sequence[StageSlots],
    pick: Pick,
    slowdown: FloatArray,
    crossing: Mapping[str, FloatArray],
    window: OverlapWindow,
) -> StepEnding:
    """The end of the step; `crossing` is each kind of block's `crossing_s`."""
    reduced, rest, update, moved = NOTHING, NOTHING, NOTHING, NOTHING
    for plan, stage in zip(plans, stages, strict=True):
        reduce_s, gather_s, sums_s = pick(plan.reduce_s), pick(plan.gather_s), pick(plan.sums_s)
        # A slow node's chips are slow; its host updates what it always does.
        update_s = pick(plan.update_s) * slowdown + pick(plan.host_update_s)
        # Exchanges between nodes occupy the network in this slot, so gradients cannot use that
        # time.
        free_s = _last_slot(stage.seconds) - weighted(stage.blocks, crossing)
        waited = np.maximum(window.beyond(reduce_s, free_s), 0)
        # Later stages are done earlier: they may reduce while the drain passes the stages before.
        drained = window.way(_drained(stage.before), stage.index)
        reduced = np.maximum(reduced, window.late(reduce_s) + waited - drained)
        filled = window.way(stage.before["forward"], stage.index)
        awaited = np.maximum(window.beyond(gather_s, stage.seconds["forward"]) - filled, 0)
        rest = np.maximum(rest, update_s + sums_s + window.late(gather_s) + awaited)
        update = np.maximum(update, update_s)
        moved = np.maximum(moved, reduce_s + sums_s + gather_s)
    # The slowest reduction and the slowest rest need not be one stage's: the norm over all
    # gradients lies between them.
    exposed = reduced + (rest - update)
    return StepEnding(update_s=update, exposed_s=exposed, hidden_s=np.maximum(moved - exposed, 0))


def _last_slot(seconds: Mapping[Slot, FloatArray]) -> FloatArray:
    return seconds.get("weight", seconds["backward"])


def _drained(before: Mapping[Slot, FloatArray]) -> FloatArray:
    # Weight slots fill the drain of the pipeline, as far as they last.
    if "weight" in before:
        return np.maximum(before["backward"] - before["weight"], 0)
    return before["backward"]
