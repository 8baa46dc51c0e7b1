"""At which speed a cluster's bill comes to a given sum."""

from __future__ import annotations

import numpy as np

from trnbench.money.market import Market, cost_of

FURTHEST = 64.0
"""Speeds are looked at up to this many times faster and slower than predicted."""
STEPS = 513
ROUNDS = 3


def break_even_speed(market: Market, nodes: int, target_usd: float) -> float | None:
    """Return the least multiple of a cluster's speed at which it costs no more than a sum.

    Bought in the cheapest way at each speed. None where nothing is on sale, or no speed will do.
    """

    low, high = 1 / FURTHEST, FURTHEST
    for _ in range(ROUNDS):
        speeds = np.geomspace(low, high, STEPS)
        costs = cost_of(market.at(nodes, speed=speeds)).cost_usd
        enough = np.flatnonzero(costs <= target_usd)
        if not len(enough):
            return None
        first = int(enough[0])
        if first == 0:
            return float(speeds[0])
        low, high = float(speeds[first - 1]), float(speeds[first])
    return high
