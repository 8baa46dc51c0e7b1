"""At which speed a cluster's bill comes to a given sum."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.plan.market import Market, cost_of

FURTHEST = 64.0
"""Speeds are looked at up to this many times faster and slower than predicted."""
STEPS = 513
ROUNDS = 3


class _Costs(Protocol):
    def __call__(self, speeds: FloatArray) -> FloatArray: ...


def break_even_speed(market: Market, nodes: int, target_usd: float) -> float | None:
    """Return the least multiple of a cluster's speed at which it costs no more than a sum.

    Bought in the cheapest way at each speed. None where nothing is on sale, or no speed will do.
    """

    def costs(speeds: FloatArray) -> FloatArray:
        return cost_of(market.at(nodes, speed=speeds)).cost_usd

    return _least(costs, target_usd)


def _least(costs: _Costs, target_usd: float) -> float | None:
    """Return where falling costs come down to a target, by ever finer steps."""
    low, high = 1 / FURTHEST, FURTHEST
    for _ in range(ROUNDS):
        speeds = np.geomspace(low, high, STEPS)
        enough = np.flatnonzero(costs(speeds) <= target_usd)
        if not len(enough):
            return None
        first = int(enough[0])
        if first == 0:
            return float(speeds[0])
        low, high = float(speeds[first - 1]), float(speeds[first])
    return high
