"""The question what would be best if prices, speeds, the deadline or the length were others.

Layouts are searched and steps are priced once: moves change bills, and which clusters will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trnbench.facts.parsing import count_text, share_text, time_text
from trnbench.facts.records import Record, replace
from trnbench.show.row import Interval

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.charts.record import BarChart
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.asking.option import Given
    from trnbench.verbs.compare.question import CompareQuestion
    from trnbench.verbs.quotes.markets import Explored
    from trnbench.verbs.quotes.rivals import Rival

STEP = 0.05
"""Share by which one step moves a number."""
LEAST, MOST = -18, 60
"""Steps as far as a number is moved."""
Steps = Mapping[tuple[str, str], int]
"""Steps of 5 % by what is moved, and the instance type where it is of one."""
DAY_S = 86400.0


class Supposed(Record):
    """The best plan of an instance type: its days, its mean bill, and its chance in the draws."""

    instance: str
    nodes: int
    days: Interval
    cost_usd: Interval | None
    cheapest: float


class WhatIfFound(Record):
    """Plans as the steps have them and as they were, the least mean bill first."""

    steps: Steps
    moved: tuple[Supposed, ...]
    before: tuple[Supposed, ...]
    deadline_s: float | None


class _World(Record, eq=False):
    """What was explored for a question, and what its draws said of each cluster."""

    question: CompareQuestion
    explored: tuple[Explored, ...]
    work_s: dict[tuple[str, int], Any]


_WORLDS: dict[CompareQuestion, _World] = {}
"""The question that was asked last, in the process that answers."""


def _world(catalog: Catalog, scenario: Given, hooks: WorkHooks) -> _World:
    from trnbench.tui.questions.scenarios import compare_question, watch_of
    from trnbench.verbs.quotes.markets import explore_all

    question = compare_question(scenario).settled(catalog)
    if question not in _WORLDS:
        explored = explore_all(catalog, question.run, watch=watch_of(hooks))
        found = _World(question=question, explored=explored, work_s={})
        if hooks.ended():
            return found
        _WORLDS.clear()
        _WORLDS[question] = found
    return _WORLDS[question]


def what_if(catalog: Catalog, scenario: Given, steps: Steps, hooks: WorkHooks) -> WhatIfFound:
    """The plans of a scenario with numbers moved, beside those without."""
    world = _world(catalog, scenario, hooks)
    before = _plans(world, {})
    limits = world.question.limits
    late = 1 + STEP * steps.get(("deadline", ""), 0)
    return WhatIfFound(
        steps=steps,
        moved=_plans(world, steps) if steps else before,
        before=before,
        deadline_s=None if limits.deadline_s is None else late * limits.deadline_s,
    )


def sensitivity_chart(catalog: Catalog, scenario: Given, hooks: WorkHooks) -> BarChart:
    """How far each input must move before another type is best, as `compare --sensitivity`."""
    from trnbench.verbs.compare.tipping import tipping_chart, tippings

    world = _world(catalog, scenario, hooks)

    def tell(done: int, total: int) -> None:
        hooks.progress(done, total, "inputs")

    return tipping_chart(tippings(world.question, world.explored, tell))


def _plans(world: _World, steps: Steps) -> tuple[Supposed, ...]:
    import numpy as np

    from trnbench.money.decision import least_per_group
    from trnbench.money.draws import cheapest_probabilities
    from trnbench.verbs.quotes.rivals import bills

    best = {one.name: _best(world, one, steps) for one in world.explored}
    rivals = [(name, plan) for name, plans in best.items() for plan in plans]
    priced = [(name, bills(plan.drawn)) for name, plan in rivals if np.isfinite(plan.mean_usd)]
    by_type = least_per_group(np.array([bill for _, bill in priced]), [name for name, _ in priced])
    shares = cheapest_probabilities([*by_type.values()], [True] * len(by_type))
    chances = dict(zip(by_type, shares, strict=True))
    plans = [
        _supposed(name, found[0], chances.get(name, 0.0)) for name, found in best.items() if found
    ]
    return tuple(sorted(plans, key=lambda one: one.cost_usd.value if one.cost_usd else np.inf))


def _best(world: _World, explored: Explored, steps: Steps) -> tuple[Rival, ...]:
    from trnbench.predict.common_draws import CommonDraws
    from trnbench.verbs.quotes.draws import fastest_work_s
    from trnbench.verbs.quotes.rivals import best_of_market

    if explored.market is None:
        return ()

    def factor(what: str, of: str = "") -> float:
        return 1 + STEP * steps.get((what, of), 0)

    name, question = explored.name, world.question
    discount = question.run.bought.discount
    price = factor("price", name) * (1 - discount_of(discount, steps)) / (1 - discount)
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


def discount_of(now: float, steps: Steps) -> float:
    """A discount with its steps, from none to nearly all."""
    return round(min(max(now + STEP * steps.get(("discount", ""), 0), 0.0), 0.95), 6)


def _supposed(name: str, plan: Rival, chance: float) -> Supposed:
    import numpy as np

    from trnbench.verbs.quotes.rivals import bills

    cost, days = bills(plan.drawn), plan.drawn.elapsed_s / DAY_S
    low, high = (float(np.quantile(days, share)) for share in (0.1, 0.9))
    spent = None
    if np.isfinite(plan.mean_usd):
        least, most = (float(np.quantile(cost, share)) for share in (0.1, 0.9))
        spent = Interval(value=plan.mean_usd, low=least, high=most)
    return Supposed(
        instance=name,
        nodes=plan.way.nodes,
        days=Interval(value=float(np.mean(days)), low=low, high=high),
        cost_usd=spent,
        cheapest=chance,
    )


def moved_scenario(scenario: Given, steps: Steps, deadline_s: float | None) -> dict[str, Any]:
    """The options that ask for the moved numbers; own prices in USD are moved themselves."""
    given = dict(scenario)
    prices = {text.partition("=")[0].strip(): text for text in given.get("price") or ()}
    for (what, of), count in steps.items():
        change = f"{round(100 * STEP * count):+d}%"
        match what:
            case "price" if "%" in prices.get(of, ""):
                was = 1 + float(prices[of].partition("=")[2].strip(" %")) / 100
                prices[of] = f"{of}={100 * (was * (1 + STEP * count) - 1):+.6g}%"
            case "price" if of in prices:
                usd = float(prices[of].partition("=")[2])
                prices[of] = f"{of}={usd * (1 + STEP * count):.6g}"
            case "price":
                prices[of] = f"{of}={change}"
            case "speed":
                given["speed"] = (*(given.get("speed") or ()), f"{of}={change}")
            case "tokens":
                length = "tokens" if given.get("tokens") else "samples"
                given[length] = count_text(given[length] * (1 + STEP * count))
            case "deadline" if deadline_s is not None:
                given["deadline"] = time_text(deadline_s * (1 + STEP * count))
            case _:
                given["discount"] = share_text(discount_of(given.get("discount") or 0.0, steps))
    return {**given, "price": tuple(prices.values())} if prices else given
