"""The documented case of stochastic rounding: adding small steps to a large sum."""

from __future__ import annotations

import numpy as np

from trnbench.engines.execute.numbers.rounding import round_to
from trnbench.engines.execute.numbers.rounding_rules import RoundingRule
from trnbench.errors import InputError
from trnbench.facts.numbers.formats import NumberFormat, format_named
from trnbench.facts.records import Record


class AccumulateDemo(Record):
    """Where `count` additions of `step` to `start` end: exactly, and rounded after each."""

    format: str
    start: float
    step: float
    count: int
    exact: float
    nearest: float
    stochastic: float


def accumulate_demo(
    *,
    format: NumberFormat | str = "fp16",
    start: float = 1024.0,
    step: float = 0.5,
    count: int = 2048,
    seed: int = 0,
) -> AccumulateDemo:
    """Sums; the documented case (the defaults) stays at 1024 to nearest even.

    At 1024 fp16 steps by 1: half a step ties to even and is lost each time, while stochastic
    rounding takes the step half of the times and ends near the exact 2048.
    """
    if count < 0:
        raise InputError(f"count must not be negative, found {count}")
    target = format_named(format) if isinstance(format, str) else format
    return AccumulateDemo(
        format=target.name,
        start=start,
        step=step,
        count=count,
        exact=start + step * count,
        nearest=_accumulate(target, start, step, count, "rne", seed),
        stochastic=_accumulate(target, start, step, count, "sr", seed),
    )


def _accumulate(
    format: NumberFormat, start: float, step: float, count: int, rounding: RoundingRule, seed: int
) -> float:
    rng = np.random.default_rng(seed)
    total = round_to(start, format)
    for _ in range(count):
        total = round_to(total + np.float32(step), format, rounding=rounding, rng=rng)
    return float(total)
