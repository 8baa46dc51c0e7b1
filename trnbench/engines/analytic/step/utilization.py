"""Share of the peak that a step uses, by the three usual conventions, and its busy seconds.

MFU: FLOP the job needs (causal attention halved, nothing computed twice) over the tensor engines'
peak in the format of its matrix products; a job with adapters needs no gradients of frozen weights,
so about 4 FLOP a weight and token in place of 6. `mfu_headline`: the same over the rate that the
vendor states for that format. HFU: FLOP carried out, with recompute, copies and padding, over the
peak.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trnbench.engines.analytic.step.compute import PricedRank
from trnbench.engines.analytic.step.time import StepPrices
from trnbench.errors import GapError, InputError, unhandled
from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import EXCHANGED, MEMORY, TENSOR, VECTOR
from trnbench.program import ops
from trnbench.program.slots import StepCategory, purpose_of
from trnbench.program.step import StepProgram


class Utilization(Record, eq=False):
    """Shares of the peak, by layout; not a number where there is no time, peak or stated rate."""

    mfu: FloatArray
    mfu_headline: FloatArray
    hfu: FloatArray


def check_peak(mfu: float, calibration: str) -> None:
    """Refuse a step that is faster than its chips: a calibration that says so is at fault."""
    if mfu > 1:
        raise InputError(
            f"{calibration}: makes a step faster than its chips' peak: MFU {mfu:.0%}",
            hint="a calibration of these chips or of this stack has a number that cannot be",
        )


def utilization(
    program: StepProgram, platform: Platform, step_s: FloatArray, *, logical_size: int | None = None
) -> Utilization:
    """Utilization of steps of `step_s` seconds, for all layouts."""
    chip = platform.chip
    number_format = chip.own_format(program.recipe.linear)
    headline_flop_per_s = chip.headline_per_chip_flop_per_s.get(number_format, np.nan)
    chip_seconds = step_s * program.grid.ranks("world") / chip.ranks(logical_size)
    return Utilization(
        mfu=mfu(program, platform, step_s, logical_size=logical_size),
        mfu_headline=np.asarray(program.model_flop / (chip_seconds * headline_flop_per_s)),
        hfu=np.asarray(program.hardware_flop / (chip_seconds * _peak_flop_per_s(program, chip))),
    )


def mfu(
    program: StepProgram, platform: Platform, step_s: FloatArray, *, logical_size: int | None = None
) -> FloatArray:
    chip = platform.chip
    chip_seconds = step_s * program.grid.ranks("world") / chip.ranks(logical_size)
    return np.asarray(program.model_flop / (chip_seconds * _peak_flop_per_s(program, chip)))


def _peak_flop_per_s(program: StepProgram, chip: Chip) -> float:
    number_format = chip.own_format(program.recipe.linear)
    return chip.peak_flop_per_s(number_format) if number_format in chip.formats else np.nan


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
            if isinstance(op, ops.CollectiveOp):
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


def _computed(rank: PricedRank, op: ops.Operation) -> tuple[StepCategory, Mapping[str, float]]:
    match op:
        case ops.MatMul():
            parts = rank.product_busy(op)
            seconds = {_PART[part]: float(s) for part, s in parts.items() if part in _PART}
            return ("attention" if op.region == "core" else "matrix"), seconds
        case ops.AttentionOp():
            kernels = rank.efficiency.kernels
            share = (
                kernels.attention_backward_share if op.backward else kernels.attention_forward_share
            )
            return "attention", {TENSOR: float(rank.attention(op) * share)}
        case ops.ScanOp():
            return "attention", {MEMORY: float(rank.moved(op.bytes))}
        case ops.Elementwise():
            return "element-wise", {MEMORY: float(rank.elementwise(op))}
        case ops.Gather():
            return "element-wise", {MEMORY: float(rank.moved(op.bytes))}
        case ops.CollectiveOp():
            raise GapError(op.op, "compute of a rank")
        case _:
            unhandled(op, "parts that it keeps busy")
