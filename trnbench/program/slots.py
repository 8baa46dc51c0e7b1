"""Place of a block's work in a step: slot, purpose of an exchange, category of a figure, launches.

Both engines read these tables; there are no prices here. `SlotTimes` is the record in which they
hand the seconds of a micro-batch to a pipeline's closed form and to the schedule emulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Literal, TypeAlias, TypeVar, get_args

from numpy.typing import ArrayLike

from trnbench.errors import GapError, unhandled
from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.records import Record, replace
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp, Phase
from trnbench.program.tensor import array

Slot = Literal["forward", "backward", "weight"]
Purpose = Literal["tensor", "context", "expert", "data"]
"""Reason for an exchange inside a block; `data` are weights and gradients kept in slices."""
EndOfStep = Literal["reduce", "gather", "sums"]
"""Exchange at the end of a step: gradients reduced over replicas, weights gathered, gradients
summed over other ranks."""
ComputeCategory = Literal["matrix", "attention", "element-wise", "gather", "fixed"]
ComputePart = Literal["matrix", "attention", "element-wise", "fixed"]
StepCategory = Literal[
    "matrix",
    "attention",
    "element-wise",
    "tensor",
    "context",
    "expert",
    "pipeline",
    "bubble",
    "data",
    "optimizer",
    "generation",
    "host",
    "fixed",
]
SLOTS: tuple[Slot, ...] = get_args(Slot)
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
ENDINGS: tuple[EndOfStep, ...] = get_args(EndOfStep)
PARTS: tuple[ComputePart, ...] = get_args(ComputePart)
STEP_CATEGORIES: tuple[StepCategory, ...] = get_args(StepCategory)
PASSES: tuple[Phase, ...] = ("F", "recompute", "B_input")
"""Phases that go through a whole block."""

PART_OF: Mapping[ComputeCategory, ComputePart] = {
    "matrix": "matrix",
    "attention": "attention",
    "element-wise": "element-wise",
    "gather": "element-wise",
    "fixed": "fixed",
}
_PURPOSE_OF: Mapping[str, Purpose] = {
    "tp": "tensor",
    "kv_copies": "tensor",
    "expert_tp": "tensor",
    "cp": "context",
    "cp_inside": "context",
    "cp_outside": "context",
    "ep": "expert",
    "data": "data",
    "expert_data": "data",
    "shard": "data",
    "expert_shard": "data",
    "copies": "data",
}
_SUMMED = ("tp", "kv_copies", "tied")
"""Axes over which gradients are summed at the end of a step, with or without replicas."""


def purpose_of(axis: str) -> Purpose:
    if axis not in _PURPOSE_OF:
        raise GapError(axis, "purpose among the exchanges of a step")
    return _PURPOSE_OF[axis]


def slot_of(phase: Phase, *, split: bool) -> Slot | None:
    """Slot in which a phase runs; None for work once a step.

    Schedules that do not split the backward run weight gradients in the backward slot.
    """
    match phase:
        case "F":
            return "forward"
        case "recompute" | "B_input":
            return "backward"
        case "B_weight":
            return "weight" if split else "backward"
        case "optimizer":
            return None
        case _:
            unhandled(phase, "slot of a step")


def ending_of(op: CollectiveOp) -> EndOfStep:
    """Kind of an exchange that runs once, at the end of a step."""
    if op.axis in _SUMMED:
        return "sums"
    if purpose_of(op.axis) != "data":
        raise GapError(op.axis, "exchange at the end of a step")
    match op.op:
        case "all-gather":
            return "gather"
        case "reduce-scatter" | "all-reduce":
            return "reduce"
        case _:
            raise GapError(op.op, "price at the end of a step")


def is_whole(block: Block, phase: Phase) -> bool:
    """True when a phase goes through the whole block; most recompute repeats parts of it."""
    again = phase == "recompute"
    return (not again or block.passes.recompute == "full") and any(
        op.region == "" and op.phase == phase for op in block.ops
    )


def has_experts(block: Block, phase: Phase) -> bool:
    """True when a phase computes on tokens that were sorted by expert."""
    return any(op.region == "experts" for op in block.phase(phase))


class Launches(Record, eq=False):
    """Launches of a slot of a block."""

    passes: int  # passes through the whole layer
    exchanges: FloatArray  # collectives
    members: FloatArray  # ranks of these collectives, summed over them
    dispatches: FloatArray  # passes that send tokens to experts on other ranks


_NONE = Launches(passes=0, exchanges=array(0), members=array(0), dispatches=array(0))


def dispatched(block: Block) -> CollectiveOp | None:
    """The exchange that sends tokens to experts; None in blocks without one."""
    return next((op for op in block.collectives if op.copies), None)


def launches(block: Block, *, split: bool) -> dict[Slot, Launches]:
    """Launches of each slot of a block."""
    # Recompute is a pass of its own only where the whole block is repeated.
    by_slot: dict[Slot, Launches] = {}
    for phase in PASSES:
        slot = slot_of(phase, split=split)
        if slot is not None and is_whole(block, phase):
            earlier = by_slot.get(slot, _NONE)
            sent = dispatched(block)
            by_slot[slot] = replace(
                earlier,
                passes=earlier.passes + 1,
                dispatches=earlier.dispatches + (array(0) if sent is None else sent.count),
            )
    for op in block.collectives:
        slot = slot_of(op.phase, split=split)
        if slot is not None:
            earlier = by_slot.get(slot, _NONE)
            by_slot[slot] = replace(
                earlier,
                exchanges=earlier.exchanges + op.count,
                members=earlier.members + op.count * op.ranks,
            )
    return by_slot


Lane: TypeAlias = Literal["links", "network"]
"""Carrier of a message: links inside an instance, or the network between instances."""
LANES: tuple[Lane, ...] = get_args(Lane)

Seconds = TypeVar("Seconds", bound=ArrayLike, covariant=True)


class SlotTimes(Record, Generic[Seconds], eq=False):
    """Seconds of one micro-batch in its forward, its backward and its weight-gradient slot."""

    forward_s: Seconds
    backward_s: Seconds  # input gradients, and recompute for them
    weight_s: Seconds  # weight gradients; part of the backward slot unless the schedule splits it

    @property
    def back_s(self: SlotTimes[FloatArray]) -> FloatArray:
        """Both slots behind the forward one."""
        return self.backward_s + self.weight_s if some(self.weight_s) else self.backward_s

    @property
    def all_s(self: SlotTimes[FloatArray]) -> FloatArray:
        return self.forward_s + self.back_s
