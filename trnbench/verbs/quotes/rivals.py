"""Rivals: the plans between which a buyer decides, in common draws, and the verdict on them.

An instance type competes with its best plans: those that keep the limits and cost nearly the least
by the estimate. In a draw it costs what the cheapest of them costs there, so sizes of one cluster
are no rivals of each other, and what only the estimate puts second stays in the choice. `compare`,
`plan` and all that shows them ask this one module, with the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.money.decision import least_per_group, regret_usd
from trnbench.money.draws import DrawnPurchase, cheapest_probabilities
from trnbench.money.market import candidates
from trnbench.money.objective import Candidate, Limits, nearest, ranked
from trnbench.predict.common_draws import CommonDraws
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.draws import WorkOf, drawn_way, with_confidence
from trnbench.verbs.quotes.lead import Chance, Verdict
from trnbench.verbs.quotes.markets import Explored

NEAR = 1.03
"""Sizes that cost up to this times an instance type's least may be the best by the mean bill."""
SIZES = 2
"""At most so many sizes of an instance type are drawn."""


class Rival(Record, eq=False):
    """A plan that keeps the limits, and its time and bill draw by draw."""

    way: Candidate
    drawn: DrawnPurchase

    @property
    def mean_usd(self) -> float:
        """Mean bill; infinite where the plan has no price, or never ends in some draw."""
        return float(np.mean(bills(self.drawn)))


def bills(drawn: DrawnPurchase) -> FloatArray:
    """USD draw by draw, infinite where nothing can be bought."""
    return np.nan_to_num(drawn.cost_usd, nan=np.inf)


def best_of_market(
    explored: Explored,
    limits: Limits,
    *,
    nodes: int | None = None,
    confidence: float | None = None,
    late: bool = False,
    work_s: WorkOf | None = None,
) -> tuple[Rival, ...]:
    """The best plans of an instance type, on so many nodes if given, least mean bill first.

    Where none keeps the limits and those who are `late` will do, the nearest one.
    """
    ways = candidates(explored.market) if explored.market is not None else []
    ways = [way for way in ways if nodes in (None, way.nodes)]
    draws = CommonDraws()
    ways = with_confidence(explored, ways, confidence, work_s)
    found = rivals_of(explored, ranked(ways, limits, "cost"), draws, work_s)
    near = nearest(ways, limits) if late and not found else None
    if near is None or not math.isfinite(near.elapsed_s):
        return found
    return (Rival(way=near, drawn=drawn_way(explored, near, draws, work_s)),)


def rivals_of(
    explored: Explored,
    kept: Sequence[Candidate],
    draws: CommonDraws,
    work_s: WorkOf | None = None,
) -> tuple[Rival, ...]:
    """The plans of an instance type that may be its best, least mean bill first.

    `kept` are those that keep the limits, cheapest first. Without a price the smallest cluster is
    the only one.
    """
    kept = [way for way in kept if math.isfinite(way.elapsed_s)]
    priced = [way for way in kept if way.cost_usd is not None]
    if not priced:
        fewest = min(kept, key=lambda way: way.nodes, default=None)
        near = [] if fewest is None else [fewest]
    else:
        most = NEAR * (priced[0].cost_usd or math.inf)
        by_size = {way.nodes: way for way in reversed(priced) if (way.cost_usd or 0.0) <= most}
        near = sorted(by_size.values(), key=lambda way: way.cost_usd or math.inf)[:SIZES]
    drawn = [Rival(way=way, drawn=drawn_way(explored, way, draws, work_s)) for way in near]
    return tuple(sorted(drawn, key=lambda one: one.mean_usd))


class Judged(Record, eq=False):
    """Quotes with what the draws say of each, the verdict, and the bills it rests on."""

    quotes: tuple[Quote, ...]
    verdict: Verdict
    costs: FloatArray
    """Bills of all rivals, a row each."""

    @property
    def best(self) -> Quote | None:
        """The recommended quote."""
        place = self.verdict.recommended
        return None if place is None else self.quotes[place]


def judged(
    quotes: Sequence[Quote],
    drawn: Sequence[DrawnPurchase | None],
    rivals: Mapping[str, Sequence[Rival]],
    limits: Limits,
    *,
    chosen: int | None = None,
    by_time: bool = False,
) -> Judged:
    """The verdict on quotes; `chosen` is recommended, or else the one with the least mean bill.

    `by_time`: it was chosen as the fastest, and no money is risked by it.
    Where no quote keeps the limits none is recommended, and those with a price compete.
    """
    names, options = [], []
    for name, plans in rivals.items():
        for plan in plans:
            if math.isfinite(plan.mean_usd):
                names.append(name)
                options.append(bills(plan.drawn))
    if not options:
        for quote, one in zip(quotes, drawn, strict=True):
            if one is not None and quote.cost_usd is not None:
                names.append(quote.instance)
                options.append(bills(one))
    costs = np.array(options)
    by_type = least_per_group(costs, names)
    shares = cheapest_probabilities([*by_type.values()], [True] * len(by_type))
    chances = dict(zip(by_type, shares, strict=True))
    rows = tuple(
        _likely(quote, one, chances.get(quote.instance, 0.0), costs, limits)
        for quote, one in zip(quotes, drawn, strict=True)
    )
    able = [
        place
        for place, row in enumerate(rows)
        if row.feasible and row.cost_usd is not None and row.instance in by_type
    ]
    by_mean = sorted(able, key=lambda place: (_mean_usd(rows[place]), rows[place].instance))
    recommended = chosen if chosen is not None else next(iter(by_mean), None)
    best = {rows[place].instance: place for place in reversed(by_mean)}
    if recommended is not None:
        best[rows[recommended].instance] = recommended
    # A type's chance stands once, at its best row.
    rows = tuple(
        replace(row, cheapest_probability=None) if best.get(row.instance, n) != n else row
        for n, row in enumerate(rows)
    )
    found = [
        Chance(instance=name, cheapest=chances.get(name, 0.0), mean_usd=_mean_usd(rows[n]), place=n)
        for name, n in best.items()
    ]
    verdict = Verdict(
        recommended=recommended,
        chances=tuple(sorted(found, key=lambda one: (-one.cheapest, one.mean_usd, one.instance))),
        regret_usd=None if recommended is None or by_time else rows[recommended].regret_usd,
        fastest=_first_to_end(drawn, able, recommended) if by_time else None,
    )
    return Judged(quotes=rows, verdict=verdict, costs=costs)


def _first_to_end(
    drawn: Sequence[DrawnPurchase | None], able: Sequence[int], place: int | None
) -> float | None:
    """Probability that no quote of those that keep the limits ends before the one at a place."""
    ends = {n: one.elapsed_s for n in able if (one := drawn[n]) is not None}
    if place not in ends:
        return None
    return float(np.mean(ends[place] <= np.min([*ends.values()], axis=0)))


def _likely(
    quote: Quote, one: DrawnPurchase | None, share: float, costs: FloatArray, limits: Limits
) -> Quote:
    """The quote with what the draws say of it."""
    if one is None:
        return quote
    bill = None if quote.cost_usd is None else bills(one)
    mean = None if bill is None else float(np.mean(bill))
    if mean is not None and not math.isfinite(mean):
        mean = None
    regret = None if bill is None or mean is None else max(regret_usd(costs, bill), 0.0)
    return replace(
        quote,
        cheapest_probability=0.0 if bill is None else share,
        on_time_probability=on_time(one, limits),
        mean_cost_usd=mean,
        regret_usd=regret if quote.feasible else None,
    )


def on_time(drawn: DrawnPurchase, limits: Limits) -> float | None:
    """Probability of keeping the deadline and the budget; None without either."""
    held = []
    if limits.deadline_s is not None:
        held.append(drawn.elapsed_s <= limits.deadline_s)
    if limits.budget_usd is not None:
        held.append(bills(drawn) <= limits.budget_usd)
    return float(np.mean(np.all(held, axis=0))) if held else None


def _mean_usd(quote: Quote) -> float:
    if quote.mean_cost_usd is not None:
        return quote.mean_cost_usd
    return math.inf
