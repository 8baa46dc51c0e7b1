"""What `claims` is asked: which claims, and at the prices of which day and region."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from trnbench.facts import parsing
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog


class ClaimsQuestion(Question):
    """Claims by their ids; all of them where none is named.

    Without a day what depends on prices is tried on every day on which one changed; without a
    region at the cheapest of those where buyers look.
    """

    claims: tuple[str, ...] = option(
        "Only these claims.", default=(), name="claim", metavar="[CLAIM]...", argument=True
    )
    price_date: datetime.date | None = option(
        "At the prices of one day; default: of every day on which one changed.",
        default=None,
        read=parsing.date,
        metavar="YYYY-MM-DD",
    )
    region: str | None = option(
        "At the prices of one region; default: the cheapest usual one.",
        default=None,
        metavar="NAME",
    )

    def settled(self, catalog: Catalog) -> ClaimsQuestion:
        """Return the question, whose region has prices."""
        if self.region is not None:
            from trnbench.money.price_terms import check_region

            check_region(catalog, self.region)
        return self

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data."""
        day = None if self.price_date is None else self.price_date.isoformat()
        return {**super().inputs(), "price_date": day}
