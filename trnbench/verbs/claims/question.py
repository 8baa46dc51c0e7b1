"""Question of `claims`: which claims, and at the prices of which day and region."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from trnbench.facts import parsing
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog


class ClaimsQuestion(Question):
    """Try claims of performance and cost on the specs, the price lists and the model.

    A claim holds, holds only if (a figure, machine, run or price is chosen), does not hold, or is
    undecided. Claims about prices are tried on every day on which one changed; announced price cuts
    and discounts on their own days.
    """

    claims: tuple[str, ...] = option(
        "Only these claims.", name="claim", metavar="[CLAIM]...", argument=True
    )
    price_date: datetime.date | None = option(
        "At the prices of one day; default: of every day on which one changed.", read=parsing.date
    )
    region: str | None = option(
        "At the prices of one region; default: the cheapest usual one.", metavar="NAME"
    )

    def settled(self, catalog: Catalog) -> ClaimsQuestion:
        """Return the question, whose region has prices."""
        if self.region is not None:
            from trnbench.money.price_terms import check_region

            check_region(catalog, self.region)
        return self
