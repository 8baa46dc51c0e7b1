"""Answer of `plan`: the purchase, its alternatives, and the assumptions that would change it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trnbench.facts.records import Record
from trnbench.money import Objective
from trnbench.money.market import QuotaRequest
from trnbench.money.sensitivity import Change
from trnbench.predict.assumption import Assumption
from trnbench.predict.search.result import Tally
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.capacity import CapacityCheck
from trnbench.verbs.quotes.lead import Verdict
from trnbench.verbs.quotes.tipping import Tipping

if TYPE_CHECKING:
    from trnbench.verbs.fleet.answer import SpotRisk


class Asked(Record):
    """Limits of a plan and its objective; `assumed_deadline`: nobody gave one.

    `confidence`: in which share of the draws limits are to be kept, None by the estimate.
    """

    objective: Objective
    deadline_s: float | None
    budget_usd: float | None
    assumed_deadline: bool
    confidence: float | None = None


class Ways(Record):
    """Number of ways to buy that were tried, and number that each limit rejected."""

    looked: int
    kept: int
    rejected: Mapping[str, int]


class BreakEven(Record):
    """At which MFU an instance type's best plan costs as much as another plan.

    `mfu` is what is predicted; None stands for a speed that no machine of the type comes near.
    """

    instance: str
    nodes: int
    mfu: float
    break_even_mfu: float | None
    against: str
    against_usd: float


class Confirmed(Record):
    """A configuration in closed form and as the emulator plays it; `rank`: its place as played.

    The first is 1. Places go by what decides in the plan: cost, or time where that was asked for.
    """

    closed: Quote
    played: Quote
    rank: int = 1

    @property
    def apart(self) -> float:
        """By what part of the closed form's step the played one differs from it."""
        closed, played = self.closed.step.step, self.played.step.step
        if closed is None or played is None:
            return 0.0
        return played.step_time_s / closed.step_time_s - 1


def replayed(pairs: Sequence[tuple[Quote, Quote]], objective: Objective) -> tuple[Confirmed, ...]:
    """Return configurations, best first in closed form, with their places as played."""

    def deciding(quote: Quote) -> float:
        cost, elapsed = quote.cost_usd, quote.elapsed_s
        by_time = objective == "time" or cost is None
        figure = elapsed if by_time else cost
        return math.inf if figure is None else figure.value

    order = sorted(range(len(pairs)), key=lambda number: deciding(pairs[number][1]))
    return tuple(
        Confirmed(closed=closed, played=played, rank=order.index(number) + 1)
        for number, (closed, played) in enumerate(pairs)
    )


class PlanAnswer(Record):
    """A plan. `best` is None where nothing keeps what was asked; `nearest` is what comes nearest.

    `binding` says in words what stands in the way of it, and `left_out` why an instance type has
    no part in the choice. `front` has the ways that no other beats in both time and money, fastest
    first, and the best one of each instance type; `verdict` is on them, in common draws. `spot`:
    the best as played, if on spot machines. `quotas`: what to request for the best, by purchase
    option. `command` gives the same answer again.
    """

    model: str
    asked: Asked
    best: Quote | None
    nearest: Quote | None
    binding: tuple[str, ...]
    front: tuple[Quote, ...]
    left_out: Mapping[str, str]
    changes: tuple[Change, ...]
    break_even: tuple[BreakEven, ...]
    quotas: Mapping[str, QuotaRequest | None]
    confirmed: tuple[Confirmed, ...]
    looked: Mapping[str, Tally]
    ways: Ways
    assumed: tuple[Assumption, ...]
    command: str
    verdict: Verdict = Verdict()
    sensitivity: tuple[Tipping, ...] | None = None
    """Moves of inputs that change the type chosen, nearest first; None where nobody asked."""
    spot: SpotRisk | None = None
    capacity: tuple[CapacityCheck, ...] = ()
    """Capacity Blocks on offer, where they were asked for."""
    draws: int = 0
    seed: int = 0
    unseen: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.unseen and not any(tally.unseen for tally in self.looked.values())
