"""Choice of a purchase: ways to buy a run, their limits, and the order among them.

Equals (figures that agree to 7 digits) are decided by the other figure, then by fewer nodes, then
by the order of the candidates.
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
"""Criterion; `soonest` applies after a missed deadline: the cheapest among the earliest ends."""
Limit = Literal["deadline", "budget", "price"]

AS_LATE_S = DAY_S
"""Ends within the longer of these two of the earliest one are equally late to a buyer."""
AS_LATE_SHARE = 0.02
"""Two ends that lie within the longer of these of each other are equally late to a buyer."""


class Candidate(Record):
    """A run on `nodes` instances, bought in one way."""

    instance: str
    nodes: int
    option: PurchaseOption | None
    """None where nothing is on sale; times are known all the same."""
    elapsed_s: float
    cost_usd: float | None
    """None where nothing is on sale."""
    sure_elapsed_s: float | None = None
    """Time not exceeded with the asked-for confidence: compared with the deadline, if known."""
    sure_cost_usd: float | None = None
    """Cost not exceeded with the asked-for confidence: compared with the budget, if known."""


class Limits(Record):
    """Limits of a purchase; None is unlimited."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    priced: bool = True
    """True requires a price."""

    def excess(self, candidate: Candidate) -> dict[Limit, float]:
        """Ratio above 1 for each limit that a candidate breaks."""
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
        return not self.excess(candidate)


NO_LIMITS = Limits(priced=False)


def cheapest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda one: (_cost(one), _digits(one.elapsed_s), one.nodes))


def fastest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda one: (_digits(one.elapsed_s), _cost(one), one.nodes))


def soonest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates by end, but by cost among those about as early as the earliest."""
    late = as_late_s(min((one.elapsed_s for one in candidates), default=math.inf))
    return sorted(cheapest_first(candidates), key=lambda one: _digits(max(one.elapsed_s, late)))


def ranked(candidates: Iterable[Candidate], limits: Limits, order: Order) -> list[Candidate]:
    """Candidates that keep the limits, best first; by cost unless time decides."""
    kept = [candidate for candidate in candidates if limits.kept_by(candidate)]
    if order == "soonest":
        return soonest_first(kept)
    return fastest_first(kept) if order == "time" else cheapest_first(kept)


def nearest(candidates: Sequence[Candidate], limits: Limits) -> Candidate | None:
    """The candidate that breaks its worst limit least, then the cheapest.

    Where none keeps the deadline, ends about as early as the earliest count as equal. Candidates
    with a price come first; among those without, the one with the least machine time.
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
    """Latest end, seconds, that is as good to a buyer as the earliest."""
    return earliest_s + max(AS_LATE_S, AS_LATE_SHARE * earliest_s)


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates that no other beats in both time and cost, fastest first."""
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
    # Single precision keeps 7 digits.
    return float(np.float32(number))
