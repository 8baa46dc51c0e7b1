"""Break-even speed: where a cluster's bill equals a given sum."""

from __future__ import annotations

import numpy as np

from trnbench.money.market import Market, cost_of

FURTHEST = 64.0
"""Largest factor by which searched speeds are above or below the predicted one."""
STEPS = 513
ROUNDS = 3


def break_even_speed(market: Market, nodes: int, target_usd: float) -> float | None:
    """Smallest multiple of a cluster's speed at which its cost is at most `target_usd`.

    Each speed is bought in the cheapest way. None where nothing is on sale, or at no searched
    speed.
    """

    low, high = 1 / FURTHEST, FURTHEST
    # Each round refines the grid around the first speed that is cheap enough.
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
