"""Changes of a plan: one assumption moved at a time, and the speed that breaks even."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from trnbench.facts.records import Record
from trnbench.money.market import Market, candidates, cost_of
from trnbench.money.objective import Candidate, Limits, Order, ranked

Moved = Literal["price", "speed", "failures"]
PRICE_STEPS = (0.8, 1.25)
"""Rates of Capacity Blocks have moved by as much within half a year."""
FURTHEST = 64.0
"""Largest factor by which searched speeds are above or below the predicted one."""
_STEPS = 513
_ROUNDS = 3
ENDS: tuple[Literal["low", "high"], ...] = ("low", "high")


class Change(Record):
    """One assumption moved: `factor` times the assumed value.

    Prices and speeds are moved for the plan's instance type only, failures for all.
    """

    moved: Moved
    factor: float
    same: Candidate | None
    """The plan itself under the change; None if it never ends or is not on sale then."""
    kept: bool
    """True where `same` keeps the limits."""
    best: Candidate | None
    """The best plan under the change; None if no plan keeps the limits."""


def sensitivity(
    markets: Sequence[Market],
    plan: Candidate,
    limits: Limits,
    objective: Order,
    *,
    speeds: Sequence[float],
) -> tuple[Change, ...]:
    """The best plans when price, speed and failures of a plan move to their ends.

    `speeds` are multiples of the plan's speed: the ends of its interval.
    """
    own = next(market for market in markets if market.instance.name == plan.instance)

    def instead(one: Market) -> list[Market]:
        return [one if market is own else market for market in markets]

    moves: list[tuple[Moved, float, list[Market]]] = [
        *(("price", factor, instead(own.changed(price=factor))) for factor in PRICE_STEPS),
        *(("speed", factor, instead(own.changed(speed=factor))) for factor in speeds),
    ]
    for end in ENDS:
        if _rate(own, end) != _rate(own, "value"):
            failing = [one.changed(failures_per_node_day=_rate(one, end)) for one in markets]
            moves.append(("failures", _rate(own, end) / _rate(own, "value"), failing))
    changes = []
    for moved, factor, changed in moves:
        every = [way for market in changed for way in candidates(market)]
        what = (plan.instance, plan.nodes, plan.option)
        same = next((one for one in every if (one.instance, one.nodes, one.option) == what), None)
        kept = same is not None and limits.kept_by(same)
        best = next(iter(ranked(every, limits, objective)), None)
        changes.append(Change(moved=moved, factor=factor, same=same, kept=kept, best=best))
    return tuple(changes)


def _rate(market: Market, end: Literal["low", "value", "high"]) -> float:
    return float(getattr(market.operations(int(market.nodes[0])).failures_per_node_day, end))


def break_even_speed(market: Market, nodes: int, target_usd: float) -> float | None:
    """Smallest multiple of a cluster's speed at which its cost is at most `target_usd`.

    Each speed is bought in the cheapest way. None where nothing is on sale, or at no searched
    speed.
    """

    low, high = 1 / FURTHEST, FURTHEST
    # Each round refines the grid around the first speed that is cheap enough.
    for _ in range(_ROUNDS):
        speeds = np.geomspace(low, high, _STEPS)
        costs = cost_of(market.at(nodes, speed=speeds)).cost_usd
        enough = np.flatnonzero(costs <= target_usd)
        if not len(enough):
            return None
        first = int(enough[0])
        if first == 0:
            return float(speeds[0])
        low, high = float(speeds[first - 1]), float(speeds[first])
    return high
