"""Busy seconds of a step in closed form, by category, for comparison with the emulator's."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.analytic.step.compute import PricedRank
from trnbench.engines.analytic.step.time import StepPrices
from trnbench.errors import GapError, unhandled
from trnbench.machine.costs.instructions import EXCHANGED, MEMORY, TENSOR, VECTOR
from trnbench.program.ops import (
    AttentionOp,
    CollectiveOp,
    Elementwise,
    Gather,
    MatMul,
    Operation,
    ScanOp,
)
from trnbench.program.slots import StepCategory, purpose_of

_PART = {"tensor": TENSOR, "evacuation": VECTOR, "memory": MEMORY}


def busy(prices: StepPrices) -> Mapping[StepCategory, Mapping[str, float]]:
    """Busy seconds per step of a scalar program on the slowest stage, by category and part.

    Nothing is hidden, and nothing waits.
    """
    efficiency, placed = prices.efficiency, prices.exchanges.prices
    chip = prices.platform.chip
    gain = 1.0
    if placed.node_ranks is not None:
        gain = chip.bandwidth_gain(placed.node_ranks, placed.logical_size)
    rank = PricedRank(chip, efficiency.compute, placed.logical_size, gain)
    paced = float(efficiency.whole_factor * prices.slowdown)
    load = float(rank.expert_load(prices.program.grid))
    busy_s: dict[StepCategory, dict[str, float]] = {}
    for kind, runs in prices.slowest_blocks().items():
        block = prices.program.blocks[kind]
        for op in block.ops:
            times = runs * float(op.count) * float(prices.program.micro_batches)
            if op.phase == "optimizer" or not times:
                continue
            if isinstance(op, CollectiveOp):
                # Counts are part of what an exchange takes.
                seconds: Mapping[str, float] = {
                    EXCHANGED: float(prices.exchanges.seconds(op)) / float(op.count)
                }
                category: StepCategory = purpose_of(op.axis)
            else:
                times *= paced * (load if op.region == "experts" else 1.0)
                category, seconds = _computed(rank, op)
            parts = busy_s.setdefault(category, {})
            for name, value in seconds.items():
                parts[name] = parts.get(name, 0.0) + times * value
    return busy_s


def _computed(rank: PricedRank, op: Operation) -> tuple[StepCategory, Mapping[str, float]]:
    match op:
        case MatMul():
            parts = rank.product_busy(op)
            seconds = {_PART[part]: float(s) for part, s in parts.items() if part in _PART}
            return ("attention" if op.region == "core" else "matrix"), seconds
        case AttentionOp():
            kernels = rank.efficiency.kernels
            share = (
                kernels.attention_backward_share if op.backward else kernels.attention_forward_share
            )
            return "attention", {TENSOR: float(rank.attention(op) * share)}
        case ScanOp():
            return "attention", {MEMORY: float(rank.moved(op.bytes))}
        case Elementwise():
            return "element-wise", {MEMORY: float(rank.elementwise(op))}
        case Gather():
            return "element-wise", {MEMORY: float(rank.moved(op.bytes))}
        case CollectiveOp():
            raise GapError(op.op, "compute of a rank")
        case _:
            unhandled(op, "parts that it keeps busy")
