"""Whether a layout fits: how likely it is, and what a careful search leaves free.

Model: the platform's reserve and what the allocator loses of passing memory are each known by a
value and the ends of an 80 % interval, and are independent. The chance to fit is the share of
common draws of both in which the worst stage needs no more than the reserve leaves.
"""

from __future__ import annotations

import numpy as np

from trnbench.analytic.step.memory import memory, reserve_bytes
from trnbench.calibration.training_stack import TrainingStack
from trnbench.catalog.provenance import Evidence
from trnbench.hardware.instance import Platform
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import Range
from trnbench.program.step import StepProgram


def fit_probability(
    program: StepProgram,
    platform: Platform,
    stack: TrainingStack,
    *,
    logical_size: int | None = None,
) -> float:
    """Return how likely it is that the one layout of a program fits in a rank's memory."""
    draws = CommonDraws()
    none, all_of_it = (
        memory(program, platform, fragmentation_ratio=ratio, logical_size=logical_size)
        for ratio in (0.0, 1.0)
    )
    lost = draws.of("fragmentation", fragmentation_range(stack))
    needed = np.max(
        [
            float(low.total_bytes) + lost * (float(high.total_bytes) - float(low.total_bytes))
            for low, high in zip(none.stages, all_of_it.stages, strict=True)
        ],
        axis=0,
    )
    reserved = draws.of("reserve", reserve_range(platform, logical_size))
    return float(np.mean(needed <= none.capacity_bytes - reserved))


def fragmentation_range(stack: TrainingStack) -> Range:
    """Return which share of passing memory an allocator loses."""
    return _range(stack.fragmentation, stack.provenance.evidence.get("fragmentation"))


def reserve_range(platform: Platform, logical_size: int | None = None) -> Range:
    """Return the bytes of its memory that a rank cannot use."""
    chip = platform.chip
    stated = _range(chip.reserve.per_rank_bytes, chip.provenance.evidence.get("reserve.per_rank"))
    share = reserve_bytes(platform, logical_size) / (stated.value or 1.0)
    return Range(
        value=stated.value * share,
        low=stated.low * share,
        high=stated.high * share,
        linear=stated.linear,
    )


def _range(value: float, evidence: Evidence | None) -> Range:
    low = value if evidence is None or evidence.low is None else evidence.low
    high = value if evidence is None or evidence.high is None else evidence.high
    return Range(value=value, low=low, high=high, linear=low <= 0)
