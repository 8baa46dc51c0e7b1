"""What would be best if prices, speeds, the deadline or the length of a run were others.

Layouts are searched and steps are priced once: moves change bills, and which clusters will do. Each
number is that of `compare` with the options of `moves.moved_scenario`.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S
from trnbench.money.draws import DrawnPurchase
from trnbench.money.market import candidates
from trnbench.money.objective import Limits, nearest
from trnbench.predict.common_draws import CommonDraws
from trnbench.show.row import Interval
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.compare.moves import STEP, Steps, Supposed, WhatIfFound, discount_of
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.quotes.draws import WorkOf, drawn_way, fastest_work_s
from trnbench.verbs.quotes.markets import Explored, explore_all
from trnbench.verbs.quotes.rivals import Judged, Rival, best_of_market, bills, judged
from trnbench.verbs.quotes.run import blank_quote, bought_quote
from trnbench.verbs.quotes.verdict import Wanted, verdict_text, was_text


class World(Record, eq=False):
    """What was explored for a question, and what its draws said of each cluster."""

    question: CompareQuestion
    explored: tuple[Explored, ...]
    work_s: dict[tuple[str, int], FloatArray]


def world_of(catalog: Catalog, question: CompareQuestion, watch: Watch) -> World:
    """The clusters of a settled question, searched."""
    explored = explore_all(catalog, question.run, watch=watch)
    return World(question=question, explored=explored, work_s={})


def supposed(world: World, steps: Steps) -> WhatIfFound:
    """The plans of a question with numbers moved, and their verdict, beside those without."""
    limits = _limits(world, steps)
    found, moved = _judged(world, steps, limits)
    was, before = _judged(world, {}, _limits(world, {})) if steps else (found, moved)
    asked = Wanted(limits=limits, confidence=world.question.run.confidence)
    told = verdict_text(found.verdict, found.quotes, asked)
    return WhatIfFound(
        steps=steps,
        moved=moved,
        before=before,
        deadline_s=limits.deadline_s,
        verdict=f"{told} {was_text(found, was)}".strip(),
    )


def _factor(steps: Steps, what: str, of: str = "") -> float:
    return 1 + STEP * steps.get((what, of), 0)


def _limits(world: World, steps: Steps) -> Limits:
    limits, factor = world.question.limits, _factor(steps, "deadline")
    deadline_s = None if limits.deadline_s is None else factor * limits.deadline_s
    return replace(limits, deadline_s=deadline_s)


def _judged(world: World, steps: Steps, limits: Limits) -> tuple[Judged, tuple[Supposed, ...]]:
    """The verdict on the best plan of each instance type, and the plans, least mean bill first."""
    rivals: dict[str, tuple[Rival, ...]] = {}
    quotes, plans = [], []
    drawn: list[DrawnPurchase | None] = []
    for one in world.explored:
        if one.market is None:
            quotes.append(blank_quote(one, one.nearest_nodes, ()).refused(("no layout fits",)))
            drawn.append(None)
            continue
        slower = _factor(steps, "tokens") / _factor(steps, "speed", one.name)
        price = _price(world, one.name, steps)
        market = one.market.changed(price=price, speed=1 / slower)
        moved = replace(one, market=market)
        work_s = _work_of(world, one, slower)
        found = _best(world, moved, limits, work_s)
        if found:
            best, rivals[one.name] = found[0], found
            quotes.append(bought_quote(moved, best.way))
            plans.append((one, best))
        else:
            ways = candidates(market)
            near = nearest(ways, limits) or ways[0]
            best = Rival(way=near, drawn=drawn_way(moved, near, CommonDraws(), work_s))
            quotes.append(bought_quote(moved, near).refused(("misses the deadline",)))
        drawn.append(best.drawn)
    told = judged(quotes, drawn, rivals, limits)
    chances = {one.instance: one.cheapest_probability or 0.0 for one in told.quotes}
    made = (_supposed(one, plan, chances[one.name]) for one, plan in plans)
    ranked = sorted(made, key=lambda one: one.cost_usd.value if one.cost_usd else np.inf)
    return told, tuple(ranked)


def _price(world: World, name: str, steps: Steps) -> float:
    """Factor of an instance type's rate; own prices in USD have no discount."""
    bought, price = world.question.run.bought, _factor(steps, "price", name)
    if any(text.startswith(f"{name}=") and "%" not in text for text in bought.prices):
        return price
    return price * (1 - discount_of(bought.discount, steps)) / (1 - bought.discount)


def _work_of(world: World, explored: Explored, slower: float) -> WorkOf:
    def work_s(nodes: int) -> FloatArray:
        key = (explored.name, nodes)
        if key not in world.work_s:
            world.work_s[key] = fastest_work_s(explored, nodes, CommonDraws())
        return slower * world.work_s[key]

    return work_s


def _best(world: World, moved: Explored, limits: Limits, work_s: WorkOf) -> tuple[Rival, ...]:
    question = world.question
    found: list[Rival] = []
    for nodes in question.run.node_counts if question.by_nodes else (None,):
        found += best_of_market(
            moved,
            limits,
            nodes=nodes,
            confidence=question.run.confidence,
            late=question.deadline_s is None,
            work_s=work_s,
        )
    return tuple(sorted(found, key=lambda one: one.mean_usd))


def _supposed(explored: Explored, plan: Rival, chance: float) -> Supposed:
    cost, days = bills(plan.drawn), plan.drawn.elapsed_s / DAY_S
    low, high = (float(np.quantile(days, share)) for share in (0.1, 0.9))
    spent = None
    if np.isfinite(plan.mean_usd):
        least, most = (float(np.quantile(cost, share)) for share in (0.1, 0.9))
        spent = Interval(value=plan.mean_usd, low=least, high=most)
    tariffs = explored.market.offers.tariffs if explored.market is not None else ()
    rates = (one.usd_per_hour for one in tariffs if one.option == plan.way.option)
    return Supposed(
        instance=explored.name,
        nodes=plan.way.nodes,
        days=Interval(value=float(np.mean(days)), low=low, high=high),
        cost_usd=spent,
        cheapest=chance,
        usd_per_hour=next(rates, None),
    )
