"""Quotes in common random draws: which is cheapest how often, and what is kept with confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.draws import (
    DrawnPurchase,
    Purchase,
    cheapest_probabilities,
    level_of,
    outcome,
    ratio_ends,
)
from trnbench.money.market import Market
from trnbench.money.objective import Candidate
from trnbench.money.purchase import Tariff
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.step import drawn_times_s
from trnbench.show.row import Interval
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.lead import Lead
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


def with_probabilities(
    quotes: Sequence[Quote], found: Sequence[DrawnPurchase | None], deadline_s: float | None
) -> tuple[Quote, ...]:
    """Quotes with what the common draws say of each.

    That is the share of draws in which it is the cheapest, the share in which it keeps the
    deadline, and the mean of its bill.
    """
    costs = [
        None if one is None or quote.cost_usd is None else one.cost_usd
        for quote, one in zip(quotes, found, strict=True)
    ]
    shares = cheapest_probabilities(costs, [quote.feasible for quote in quotes])
    return tuple(
        replace(
            quote,
            cheapest_probability=share,
            on_time_probability=None if one is None else _on_time(one, deadline_s),
            mean_cost_usd=None if cost is None else float(np.mean(cost)),
        )
        for quote, share, one, cost in zip(quotes, shares, found, costs, strict=True)
    )


def _on_time(drawn: DrawnPurchase, deadline_s: float | None) -> float | None:
    return None if deadline_s is None else float(np.mean(drawn.elapsed_s <= deadline_s))


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


def lead_of(
    quotes: Sequence[Quote], drawn: Sequence[DrawnPurchase | None], baseline: str | None = None
) -> Lead | None:
    """Return the cheapest row, and the baseline or else the next cheapest to hold it against."""
    priced = [place for place, row in enumerate(quotes) if row.cost_usd is not None]
    able = [place for place in priced if quotes[place].feasible] or priced
    order = sorted(able, key=lambda place: _usd(quotes[place]))
    if not order:
        return None
    winner, *others = order
    based = [place for place in others if quotes[place].instance == baseline]
    rival = None
    if others:
        is_base = quotes[winner].instance == baseline
        rival = others[0] if is_base or not based else based[0]
    cost = None if rival is None else cost_ratio(quotes, drawn, winner, rival)
    shares = tuple(row.cheapest_probability for row in quotes)
    return Lead(winner=winner, rival=rival, cost=cost, shares=shares)


def _usd(row: Quote) -> float:
    return math.inf if row.cost_usd is None else row.cost_usd.value


def with_confidence(
    explored: Explored, ways: Sequence[Candidate], confidence: float | None
) -> list[Candidate]:
    """Return purchases at the time and cost not exceeded with this confidence, if any is given."""
    if confidence is None or explored.market is None:
        return [*ways]
    draws = CommonDraws()
    work: dict[int, FloatArray] = {}
    sure = []
    for way in ways:
        if way.nodes not in work:
            layouts = explored.layouts(way.nodes)
            if layouts is None:
                raise ValueError(f"no layout on {way.nodes} nodes of {explored.name}")
            work[way.nodes] = drawn_work_s(explored, way.nodes, layouts, draws)
        purchase = _purchase(explored.market, way.nodes, way.option, work[way.nodes])
        found = outcome(purchase, draws)
        cost = None if way.cost_usd is None else level_of(found.cost_usd, confidence)
        sure.append(
            replace(way, sure_elapsed_s=level_of(found.elapsed_s, confidence), sure_cost_usd=cost)
        )
    return sure


def drawn_work_s(
    explored: Explored, nodes: int, layouts: Sequence[PartialLayout], draws: CommonDraws
) -> FloatArray:
    """Return seconds of pure training, draw by draw."""
    setup = replace(explored.setup, nodes=nodes)
    total = np.zeros(draws.count)
    for portion, layout in zip(explored.portions, layouts, strict=True):
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
