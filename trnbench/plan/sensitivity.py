"""What would change a plan: one assumption moved at a time, and everything chosen anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trnbench.plan.failures import operations_of
from trnbench.plan.market import Market, every_candidate
from trnbench.plan.objective import Candidate, Limits, Order, ranked

Moved = Literal["price", "speed", "failures"]
PRICE_STEPS = (0.8, 1.25)
"""Rates of Capacity Blocks have moved by as much within half a year."""
ENDS: tuple[Literal["low", "high"], ...] = ("low", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One assumption moved: `factor` times what was assumed.

    `same` is the plan itself under the change, None if it never ends or is not on sale then, and
    `kept` whether it keeps the limits. `best` is the best plan then, None if nothing keeps them.
    Prices and speeds are moved for the plan's instance type only, failures for all.
    """

    moved: Moved
    factor: float
    same: Candidate | None
    kept: bool
    best: Candidate | None


def sensitivity(
    markets: Sequence[Market],
    plan: Candidate,
    limits: Limits,
    objective: Order,
    *,
    speeds: Sequence[float],
) -> tuple[Change, ...]:
    """Return the best plans when price, speed and failures of a plan move to their ends.

    `speeds` are multiples of the plan's speed: the ends of its interval.
    """
    own = next(market for market in markets if market.instance.name == plan.instance)
    moves: list[tuple[Moved, float, Market]] = [
        *(("price", factor, own.changed(price=factor)) for factor in PRICE_STEPS),
        *(("speed", factor, own.changed(speed=factor)) for factor in speeds),
    ]
    found = []
    for moved, factor, one in moves:
        changed = [one if market is own else market for market in markets]
        found.append(_change(moved, factor, changed, plan, limits, objective))
    for end in ENDS:
        if _rate(own, end) != _rate(own, "value"):
            factor = _rate(own, end) / _rate(own, "value")
            changed = [
                market.changed(failures_per_node_day=_rate(market, end)) for market in markets
            ]
            found.append(_change("failures", factor, changed, plan, limits, objective))
    return tuple(found)


def _change(
    moved: Moved,
    factor: float,
    markets: Sequence[Market],
    plan: Candidate,
    limits: Limits,
    objective: Order,
) -> Change:
    every = every_candidate(markets)
    what = (plan.instance, plan.nodes, plan.option)
    same = next((one for one in every if (one.instance, one.nodes, one.option) == what), None)
    best = ranked(every, limits, objective)
    return Change(
        moved=moved,
        factor=factor,
        same=same,
        kept=same is not None and limits.kept_by(same),
        best=best[0] if best else None,
    )


def _rate(market: Market, end: Literal["low", "value", "high"]) -> float:
    """Return failures of a node in a day: at best, most likely, or at worst."""
    stated = market.stated
    rate = operations_of(market.reliability, market.instance, stated=stated).failures_per_node_day
    return float(getattr(rate, end))
