"""At which MFU an instance type's best plan costs as much as another's."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.money.market import candidates
from trnbench.money.objective import (
    Candidate,
    Limits,
    Order,
    cheapest_first,
    ranked,
    soonest_first,
)
from trnbench.money.sensitivity import break_even_speed
from trnbench.verbs.plan.answer import BreakEven
from trnbench.verbs.quotes.markets import Explored


def break_even(
    explored: Sequence[Explored],
    chosen: Candidate | None,
    limits: Limits,
    objective: Order,
    baseline: str | None,
) -> tuple[BreakEven, ...]:
    """Return it for each instance type, against the baseline's best plan.

    Without a baseline, against the plan; and for the plan itself, against the cheapest other.
    """
    best = _best_plans(explored, limits)
    if chosen is not None and objective in ("time", "soonest"):
        best[chosen.instance] = chosen
    against = baseline or (chosen.instance if chosen else None)
    if against not in best:
        return ()
    others = [best[name] for name in best if name != against]
    rows = [(other, best[against]) for other in others]
    if baseline is None and others:
        rows.insert(0, (best[against], cheapest_first(others)[0]))
    by_name = {one.name: one for one in explored}
    return tuple(_row(by_name[own.instance], own, other) for own, other in rows)


def _best_plans(explored: Sequence[Explored], limits: Limits) -> dict[str, Candidate]:
    """Return the cheapest plan of each type that is on sale; the soonest where none is in time."""
    best = {}
    for one in explored:
        ways = [] if one.market is None else candidates(one.market)
        sold = [way for way in ways if way.cost_usd is not None]
        kept = ranked(sold, limits, "cost") or soonest_first(sold)
        if kept:
            best[one.name] = kept[0]
    return best


def _row(explored: Explored, own: Candidate, other: Candidate) -> BreakEven:
    target = other.cost_usd or 0.0
    fastest = explored.searches[explored.main(own.nodes)].by_nodes[own.nodes].best
    if explored.market is None or fastest is None:
        raise ValueError(f"{own.instance} does not run the model")
    speed = break_even_speed(explored.market, own.nodes, target)
    return BreakEven(
        instance=own.instance,
        nodes=own.nodes,
        mfu=fastest.mfu,
        break_even_mfu=None if speed is None else speed * fastest.mfu,
        against=f"{other.nodes:,} x {other.instance}",
        against_usd=target,
    )
