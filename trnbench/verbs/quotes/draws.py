"""Quotes in common random draws: their time and cost, and what is kept with confidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.memo import Memo
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.draws import DrawnPurchase, Purchase, level_of, outcome, ratio_ends
from trnbench.money.market import Market
from trnbench.money.objective import Candidate
from trnbench.money.purchase import Tariff
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.step import drawn_times_s
from trnbench.show.row import Interval
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.markets import Explored


def outcomes(
    explored: Mapping[str, Explored], quotes: Sequence[Quote], draws: CommonDraws
) -> tuple[DrawnPurchase | None, ...]:
    """Return the time and cost of each quote draw by draw; None for one that cannot run."""
    return tuple(_outcome(explored.get(one.instance), one, draws) for one in quotes)


def _outcome(explored: Explored | None, quote: Quote, draws: CommonDraws) -> DrawnPurchase | None:
    if explored is None or explored.market is None or quote.elapsed_s is None:
        return None
    if not np.isfinite(quote.elapsed_s.value):
        return None
    option = quote.bill.tariff.option if quote.bill else None
    layouts = tuple(step.layout for step in quote.steps)
    work_s = drawn_work_s(explored, quote.nodes, layouts, draws)
    return outcome(_purchase(explored.market, quote.nodes, option, work_s), draws)


def time_ratio(
    quotes: Sequence[Quote], drawn: Sequence[DrawnPurchase | None], place: int, base: int
) -> Interval | None:
    """Return the time of one row over that of another, with its interval in common draws."""
    one, other = quotes[place].elapsed_s, quotes[base].elapsed_s
    draws, base_draws = drawn[place], drawn[base]
    if one is None or other is None or draws is None or base_draws is None:
        return None
    return _ratio(one, other, ratio_ends(draws.elapsed_s, base_draws.elapsed_s))


def cost_ratio(
    quotes: Sequence[Quote], drawn: Sequence[DrawnPurchase | None], place: int, base: int
) -> Interval | None:
    """Return the cost of one row over that of another, with its interval in common draws."""
    one, other = quotes[place].cost_usd, quotes[base].cost_usd
    draws, base_draws = drawn[place], drawn[base]
    if one is None or other is None or draws is None or base_draws is None:
        return None
    return _ratio(one, other, ratio_ends(draws.cost_usd, base_draws.cost_usd))


def _ratio(one: Interval, other: Interval, ends: tuple[float, float]) -> Interval:
    """Return a ratio of two figures with its ends in common draws; it lies between them."""
    value = one.value / other.value
    return Interval(value=value, low=min(ends[0], value), high=max(ends[1], value))


WorkOf: TypeAlias = Callable[[int], FloatArray]
"""Seconds of pure training draw by draw, by the number of nodes."""


def with_confidence(
    explored: Explored,
    ways: Sequence[Candidate],
    confidence: float | None,
    work_s: WorkOf | None = None,
) -> list[Candidate]:
    """Return purchases at the time and cost not exceeded with this confidence, if any is given."""
    if confidence is None or explored.market is None:
        return [*ways]
    draws, known = CommonDraws(), Memo[int, FloatArray]()
    of_nodes = work_s or partial(fastest_work_s, explored, draws=draws)
    sure = []
    for way in ways:
        work = known.of(way.nodes, partial(of_nodes, way.nodes))
        found = outcome(_purchase(explored.market, way.nodes, way.option, work), draws)
        cost = None if way.cost_usd is None else level_of(found.cost_usd, confidence)
        sure.append(
            replace(way, sure_elapsed_s=level_of(found.elapsed_s, confidence), sure_cost_usd=cost)
        )
    return sure


def drawn_way(
    explored: Explored, way: Candidate, draws: CommonDraws, work_s: WorkOf | None = None
) -> DrawnPurchase:
    """Time and cost of a way to buy, draw by draw, in the fastest layouts."""
    if explored.market is None:
        raise ValueError(f"no clusters of {explored.name}")
    work = (work_s or partial(fastest_work_s, explored, draws=draws))(way.nodes)
    return outcome(_purchase(explored.market, way.nodes, way.option, work), draws)


def fastest_work_s(explored: Explored, nodes: int, draws: CommonDraws) -> FloatArray:
    """Seconds of pure training in the fastest layouts, draw by draw."""
    layouts = explored.layouts(nodes)
    if layouts is None:
        raise ValueError(f"no layout on {nodes} nodes of {explored.name}")
    return drawn_work_s(explored, nodes, layouts, draws)


def drawn_work_s(
    explored: Explored, nodes: int, layouts: Sequence[PartialLayout], draws: CommonDraws
) -> FloatArray:
    """Return seconds of pure training, draw by draw."""
    total = np.zeros(draws.count)
    for portion, layout in zip(explored.portions, layouts, strict=True):
        setup = explored.setup_on(nodes, portion)
        step_s = drawn_times_s(setup, layout.complete(), draws, row=f"{explored.name} {nodes}")
        total = total + portion.samples / layout.degree("global_batch") * step_s
    return total


def _purchase(
    market: Market, nodes: int, option: PurchaseOption | None, work_s: FloatArray
) -> Purchase:
    tariffs: list[Tariff] = [one for one in market.offers.tariffs if one.option == option]
    return Purchase(
        name=f"{nodes} x {market.instance.name}",
        market=market,
        nodes=nodes,
        tariff=tariffs[0] if tariffs else None,
        work_s=work_s,
    )
