"""Which purchase is best: ways to buy a run, limits they must keep, and what decides among them.

Equals (figures that agree to 7 digits) are decided by the other figure, then by fewer nodes, then
by which was named first; so the order of the candidates is the last word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trnbench.spec.instance import PurchaseOption

Objective = Literal["cost", "time", "pareto"]
Limit = Literal["deadline", "budget", "price"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A run on so many instances, bought in one way.

    `option` and `cost_usd` are None where nothing is on sale; times are known all the same.
    """

    instance: str
    nodes: int
    option: PurchaseOption | None
    elapsed_s: float
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a purchase has to keep; None is no limit."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    priced: bool = True

    def excess(self, candidate: Candidate) -> dict[Limit, float]:
        """Return by how much a candidate breaks each limit that it breaks: a ratio above 1."""
        broken: dict[Limit, float] = {}
        if self.deadline_s is not None and not candidate.elapsed_s <= self.deadline_s:
            broken["deadline"] = candidate.elapsed_s / self.deadline_s
        if candidate.cost_usd is None:
            if self.priced:
                broken["price"] = math.inf
        elif self.budget_usd is not None and not candidate.cost_usd <= self.budget_usd:
            broken["budget"] = candidate.cost_usd / self.budget_usd
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


def ranked(
    candidates: Iterable[Candidate], limits: Limits, objective: Objective
) -> list[Candidate]:
    """Return the candidates that keep the limits, best first; by cost unless time is asked for."""
    kept = [candidate for candidate in candidates if limits.kept_by(candidate)]
    return fastest_first(kept) if objective == "time" else cheapest_first(kept)


def nearest(candidates: Sequence[Candidate], limits: Limits) -> Candidate | None:
    """Return the candidate that breaks its worst limit least, then the fastest.

    One with a price comes before others; of these, then, the one with the least machine time.
    """

    def order(candidate: Candidate) -> tuple[bool, float, float]:
        excess = limits.excess(candidate)
        unsold = excess.pop("price", None) is not None
        worst = max(excess.values(), default=0.0)
        machines = candidate.nodes if unsold else 1
        return unsold, _digits(worst), _digits(machines * candidate.elapsed_s)

    return min(cheapest_first(candidates), key=order, default=None)


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that no other beats in both time and cost, fastest first."""
    front: list[Candidate] = []
    least = math.inf
    for candidate in fastest_first(candidates):
        if _cost(candidate) < least:
            front.append(candidate)
            least = _cost(candidate)
    return front


def _cost(candidate: Candidate) -> float:
    return math.inf if candidate.cost_usd is None else _digits(candidate.cost_usd)


def _digits(number: float) -> float:
    return float(np.float32(number))
