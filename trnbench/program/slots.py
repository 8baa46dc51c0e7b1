"""Place of a block's work in a step: slot, purpose of an exchange, category of a figure.

Both engines read these tables; there are no prices here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from trnbench.errors import GapError, unhandled
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp, Phase

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
    """Purpose of exchanges along an axis inside a block."""
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
        op.region == "" for op in block.phase(phase)
    )


def has_experts(block: Block, phase: Phase) -> bool:
    """True when a phase computes on tokens that were sorted by expert."""
    return any(op.region == "experts" for op in block.phase(phase))
