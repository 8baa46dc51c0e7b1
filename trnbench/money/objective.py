"""Which purchase is best: ways to buy a run, limits they must keep, and what decides among them.

Equals (figures that agree to 7 digits) are decided by the other figure, then by fewer nodes, then
by which was named first; so the order of the candidates is the last word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S

Order = Literal["cost", "time", "pareto", "soonest"]
"""What decides; `soonest` is what a missed deadline leaves: the cheapest of the earliest ends."""
Limit = Literal["deadline", "budget", "price"]

AS_LATE_S = DAY_S
AS_LATE_SHARE = 0.02
"""Two ends that lie within the longer of these of each other are equally late to a buyer."""


class Candidate(Record):
    """A run on so many instances, bought in one way.

    `option` and `cost_usd` are None where nothing is on sale; times are known all the same. Limits
    are kept by `sure_elapsed_s` and `sure_cost_usd` where these are known: what is not exceeded
    with the confidence that was asked for.
    """

    instance: str
    nodes: int
    option: PurchaseOption | None
    elapsed_s: float
    cost_usd: float | None
    sure_elapsed_s: float | None = None
    sure_cost_usd: float | None = None


class Limits(Record):
    """What a purchase has to keep; None is no limit."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    priced: bool = True

    def excess(self, candidate: Candidate) -> dict[Limit, float]:
        """Return by how much a candidate breaks each limit that it breaks: a ratio above 1."""
        broken: dict[Limit, float] = {}
        end_s = _or(candidate.sure_elapsed_s, candidate.elapsed_s)
        if self.deadline_s is not None and not end_s <= self.deadline_s:
            broken["deadline"] = end_s / self.deadline_s
        if candidate.cost_usd is None:
            if self.priced:
                broken["price"] = math.inf
            return broken
        cost_usd = _or(candidate.sure_cost_usd, candidate.cost_usd)
        if self.budget_usd is not None and not cost_usd <= self.budget_usd:
            broken["budget"] = cost_usd / self.budget_usd
        return broken

    def kept_by(self, candidate: Candidate) -> bool:
        """Tell whether a candidate keeps every limit."""
        return not self.excess(candidate)


NO_LIMITS = Limits(priced=False)


def cheapest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates from the cheapest on, those without a price last."""
    return sorted(candidates, key=lambda one: (_cost(one), _digits(one.elapsed_s), one.nodes))


def fastest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates from the earliest end on."""
    return sorted(candidates, key=lambda one: (_digits(one.elapsed_s), _cost(one), one.nodes))


def soonest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates from the earliest end on, the cheapest first of those as late as that."""
    late = as_late_s(min((one.elapsed_s for one in candidates), default=math.inf))
    return sorted(cheapest_first(candidates), key=lambda one: _digits(max(one.elapsed_s, late)))


def ranked(candidates: Iterable[Candidate], limits: Limits, order: Order) -> list[Candidate]:
    """Return the candidates that keep the limits, best first; by cost unless time is asked for."""
    kept = [candidate for candidate in candidates if limits.kept_by(candidate)]
    if order == "soonest":
        return soonest_first(kept)
    return fastest_first(kept) if order == "time" else cheapest_first(kept)


def nearest(candidates: Sequence[Candidate], limits: Limits) -> Candidate | None:
    """Return the candidate that breaks its worst limit least, then the cheapest.

    Where none keeps the deadline, those that end about as early as the earliest are equally late.
    One with a price comes before others; of these, then, the one with the least machine time.
    """
    sold = [one for one in candidates if one.cost_usd is not None] if limits.priced else []
    ends = (_or(one.sure_elapsed_s, one.elapsed_s) for one in sold or candidates)
    earliest = min(ends, default=math.inf)
    in_time = limits.deadline_s is None or earliest <= limits.deadline_s
    late = -math.inf if in_time else as_late_s(earliest)

    def order(candidate: Candidate) -> tuple[bool, float, float]:
        end_s = max(_or(candidate.sure_elapsed_s, candidate.elapsed_s), late)
        excess = limits.excess(replace(candidate, sure_elapsed_s=end_s))
        unsold = excess.pop("price", None) is not None
        worst = max(excess.values(), default=0.0)
        machine_s = candidate.nodes * candidate.elapsed_s if unsold else 0.0
        return unsold, _digits(worst), _digits(machine_s)

    return min(cheapest_first(candidates), key=order, default=None)


def as_late_s(earliest_s: float) -> float:
    """Return the latest end, s, that is as good to a buyer as the earliest."""
    return earliest_s + max(AS_LATE_S, AS_LATE_SHARE * earliest_s)


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that no other beats in both time and cost, fastest first."""
    front: list[Candidate] = []
    least = math.inf
    for candidate in fastest_first(candidates):
        if _cost(candidate) < least:
            front.append(candidate)
            least = _cost(candidate)
    return front


def _or(sure: float | None, central: float) -> float:
    return central if sure is None else sure


def _cost(candidate: Candidate) -> float:
    return math.inf if candidate.cost_usd is None else _digits(candidate.cost_usd)


def _digits(number: float) -> float:
    return float(np.float32(number))
