"""The best configurations of a plan, played in the emulator and ranked again."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.money.market import candidates
from trnbench.money.objective import Candidate, Limits, Order, ranked
from trnbench.verbs.plan.answer import Confirmed, replayed
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.markets import Explored
from trnbench.verbs.quotes.run import quote
from trnbench.verbs.quotes.searching import Watch


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
