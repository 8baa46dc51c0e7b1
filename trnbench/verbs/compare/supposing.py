"""What would be best if prices, speeds, the deadline or the length of a run were others.

Layouts are searched and steps are priced once: moves change bills, and which clusters will do. Each
number is that of `compare` with the options of `moves.moved_scenario`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S
from trnbench.money.decision import least_per_group
from trnbench.money.draws import cheapest_probabilities
from trnbench.predict.common_draws import CommonDraws
from trnbench.show.row import Interval
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.compare.moves import STEP, Steps, Supposed, WhatIfFound, discount_of
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.quotes.draws import fastest_work_s
from trnbench.verbs.quotes.markets import Explored, explore_all
from trnbench.verbs.quotes.rivals import Rival, best_of_market, bills


class World(Record, eq=False):
    """What was explored for a question, and what its draws said of each cluster."""

    question: CompareQuestion
    explored: tuple[Explored, ...]
    work_s: dict[tuple[str, int], Any]


def world_of(catalog: Catalog, question: CompareQuestion, watch: Watch) -> World:
    """The clusters of a settled question, searched."""
    explored = explore_all(catalog, question.run, watch=watch)
    return World(question=question, explored=explored, work_s={})


def supposed(world: World, steps: Steps) -> WhatIfFound:
    """The plans of a question with numbers moved, beside those without."""
    before = _plans(world, {})
    limits = world.question.limits
    late = 1 + STEP * steps.get(("deadline", ""), 0)
    return WhatIfFound(
        steps=steps,
        moved=_plans(world, steps) if steps else before,
        before=before,
        deadline_s=None if limits.deadline_s is None else late * limits.deadline_s,
    )


def _plans(world: World, steps: Steps) -> tuple[Supposed, ...]:
    best = {one.name: _best(world, one, steps) for one in world.explored}
    rivals = [(name, plan) for name, plans in best.items() for plan in plans]
    priced = [(name, bills(plan.drawn)) for name, plan in rivals if np.isfinite(plan.mean_usd)]
    by_type = least_per_group(np.array([bill for _, bill in priced]), [name for name, _ in priced])
    shares = cheapest_probabilities([*by_type.values()], [True] * len(by_type))
    chances = dict(zip(by_type, shares, strict=True))
    plans = [
        _supposed(one, best[one.name][0], chances.get(one.name, 0.0))
        for one in world.explored
        if best[one.name]
    ]
    return tuple(sorted(plans, key=lambda one: one.cost_usd.value if one.cost_usd else np.inf))


def _best(world: World, explored: Explored, steps: Steps) -> tuple[Rival, ...]:
    if explored.market is None:
        return ()

    def factor(what: str, of: str = "") -> float:
        return 1 + STEP * steps.get((what, of), 0)

    name, question = explored.name, world.question
    bought, price = question.run.bought, factor("price", name)
    if not any(text.startswith(f"{name}=") and "%" not in text for text in bought.prices):
        price *= (1 - discount_of(bought.discount, steps)) / (1 - bought.discount)
    slower = factor("tokens") / factor("speed", name)
    limits = question.limits
    if limits.deadline_s is not None:
        limits = replace(limits, deadline_s=factor("deadline") * limits.deadline_s)

    def work_s(nodes: int) -> Any:  # noqa: ANN401 - an array
        key = (name, nodes)
        if key not in world.work_s:
            world.work_s[key] = fastest_work_s(explored, nodes, CommonDraws())
        return slower * world.work_s[key]

    found: list[Rival] = []
    for nodes in question.run.node_counts if question.by_nodes else (None,):
        found += best_of_market(
            replace(explored, market=explored.market.changed(price=price, speed=1 / slower)),
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
