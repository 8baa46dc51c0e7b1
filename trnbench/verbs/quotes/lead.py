"""Which of several quotes is the cheapest, and whether that is more than a chance of the draws."""

from __future__ import annotations

from typing import Literal

from trnbench.facts.records import Record
from trnbench.show.row import Interval

CLEAR = 0.8
"""The share of draws from which on the cheapest row is called so without a but."""
NAMED = 0.1
"""The share of draws from which on a row is named as one that may be the cheapest."""


class Lead(Record):
    """The cheapest of some quotes, by its place.

    `rival` is the place of the quote that it is held against, None if it is alone, and `cost` its
    cost over that one's. `shares` of the draws in which each quote is the cheapest.
    """

    winner: int
    rival: int | None
    cost: Interval | None
    shares: tuple[float, ...]

    @property
    def verdict_is(self) -> Literal["clear", "tie"]:
        """Whether the cheapest quote is the cheapest in nearly all draws."""
        return "clear" if self.shares[self.winner] >= CLEAR else "tie"

    @property
    def tied(self) -> tuple[int, ...]:
        """The others that may be the cheapest, likeliest first; none where one quote is clear."""
        if self.verdict_is == "clear":
            return ()
        named = [place for place, share in enumerate(self.shares) if share >= NAMED]
        return tuple(
            sorted(
                (place for place in named if place != self.winner),
                key=lambda place: -self.shares[place],
            )
        )


def verdict_is(lead: Lead | None) -> Literal["clear", "tie"]:
    """Return whether a verdict is clear; that nothing has a price is."""
    return "clear" if lead is None else lead.verdict_is
