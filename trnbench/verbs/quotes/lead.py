"""Outcome of a choice: the leader, its certainty, the risk of deciding now, a first pilot."""

from __future__ import annotations

from typing import Literal

from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import Record
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.show.row import Row, cells

CLEAR = 0.8
"""The probability of being cheapest from which on a lead is called clear."""
NAMED = 0.1
"""The probability of being cheapest from which on an instance type is named."""
RISKED = 0.02
"""A clear lead is worth a measurement if deciding now risks this share of the bill."""


class Pilot(Record):
    """A short run on few machines that tells how fast an undecided instance type is.

    `hours` and `cost_usd` are of launch, compilation and `steps` training steps of `layout`, bought
    by `option`. `regret_after_usd` is what deciding then still risks.
    """

    instance: str
    nodes: int
    steps: int
    hours: float
    cost_usd: float
    regret_after_usd: float
    layout: PartialLayout
    option: PurchaseOption

    def row(self) -> Row:
        told = cells(self, "instance nodes steps hours cost_usd regret_after_usd purchase=option")
        return {**told, "layout": self.layout.given}


class Chance(Record):
    """Standing of an instance type: probability of being cheapest, mean bill of its best row.

    `place` is that of the row among the quotes.
    """

    instance: str
    cheapest: float
    mean_usd: float
    place: int


class Verdict(Record):
    """Quote to take, as a place among several; None where none will do.

    `chances` of the instance types, likeliest first. `regret_usd`: what deciding now loses on
    average against the best choice. `pilots` are worth more than they cost, the best one first.
    `fastest`: where time decides, the probability that no other quote ends before the recommended.
    """

    recommended: int | None = None
    chances: tuple[Chance, ...] = ()
    regret_usd: float | None = None
    pilots: tuple[Pilot, ...] = ()
    fastest: float | None = None

    @property
    def verdict_is(self) -> Literal["clear", "tie", "none"]:
        """`clear` where the recommended quote is the cheapest, or fastest, in most draws."""
        if self.recommended is None:
            return "none"
        likely = self.fastest
        if likely is None:
            likely = 1.0 if self.leading is None else self.leading.cheapest
        return "clear" if likely >= CLEAR else "tie"

    @property
    def leading(self) -> Chance | None:
        """The chance of the recommended quote's instance type."""
        return next((one for one in self.chances if one.place == self.recommended), None)

    @property
    def named(self) -> tuple[Chance, ...]:
        """The instance types between which the choice lies, likeliest first."""
        if self.verdict_is == "clear":
            return (self.leading,) if self.leading else ()
        return tuple(
            one for one in self.chances if one.cheapest >= NAMED or one.place == self.recommended
        )
