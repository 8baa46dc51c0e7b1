"""Checks of a plan: its break-even with others, and the best of it as it is played."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.money.market import candidates
from trnbench.money.objective import Candidate, Limits, Order, cheapest_first, ranked, soonest_first
from trnbench.money.sensitivity import break_even_speed
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.plan.answer import BreakEven, Confirmed, replayed
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.markets import Explored
from trnbench.verbs.quotes.run import quote


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


def confirmed(
    count: int,
    explored: Sequence[Explored],
    kept: Sequence[Candidate],
    limits: Limits,
    objective: Order,
    *,
    watch: Watch,
) -> tuple[Confirmed, ...]:
    """Return the best `count` configurations, layouts that are not the fastest included, as played.

    `kept` are the ways to buy, best first, each in its fastest layout.
    """
    by_name = {one.name: one for one in explored}
    found: list[tuple[Candidate, int]] = []
    # No layout of a later way comes before the fastest of the earlier ones.
    for candidate in kept[:count]:
        found += _layouts(by_name[candidate.instance], candidate, count)
    rank_of = {id(way): rank for way, rank in found}
    best = ranked([way for way, _ in found], limits, objective)
    played: list[tuple[Quote, Quote]] = []
    for number, way in enumerate(best[:count]):
        if watch.cancel():
            break
        watch.progress(number, count, "configurations played")
        closed, emulated = (
            quote(by_name[way.instance], way, rank=rank_of[id(way)], engine=engine)
            for engine in ("analytic", "emulate")
        )
        played.append((closed, emulated))
    return replayed(played, "time" if objective == "time" else "cost")


def _layouts(explored: Explored, way: Candidate, most: int) -> list[tuple[Candidate, int]]:
    """Return a way to buy in its best layouts, with the rank of each."""
    market, part = explored.market, explored.main(way.nodes)
    if market is None:
        return []
    layouts = explored.searches[part].by_nodes[way.nodes].ranked[:most]
    found: list[tuple[Candidate, int]] = []
    for rank, layout in enumerate(layouts):
        speed = layouts[0].step_time_s / layout.step_time_s
        slower = market.at(way.nodes, speed=speed, part=part)
        found += [(one, rank) for one in candidates(slower) if one.option == way.option]
    return found
