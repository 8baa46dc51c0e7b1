"""Purchase of a run: options that are written once, for every verb that has a bill."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.verbs.asking.question import Question, option

IF_ASKED = "?"
"""Ends an own price that counts only where its instance is asked about, as those of a file do."""


def today() -> datetime.date:
    return datetime.datetime.now(tz=datetime.UTC).date()


class Buying(Question):
    """Terms of a purchase; prices are those of `price_date`, on terms as in `PriceTerms`."""

    purchase: tuple[str, ...] = option(
        "on-demand, capacity-block, reserved, savings-plan, spot (interruptible), quote; "
        "default: the cheapest of the first three.",
        metavar="OPTION,...",
    )
    region: str | None = option("Region, e.g. us-east-2; default: the cheapest main one.")
    price_date: datetime.date = option(
        "Prices as known on this day; default: today.", factory=today, read=parsing.date
    )
    discount: float = option(
        "Negotiated discount off published rates: 18%.", default=0.0, read=parsing.share
    )
    prices: tuple[str, ...] = option(
        "Own price, USD per instance-hour: trn2.48xlarge=30, or a change of the published ones: "
        "trn2.48xlarge=-20% (repeatable); with a ? behind it, only where that instance is asked "
        "about.",
        name="price",
        several="repeated",
        metavar="NAME=USD|-20%",
    )
    assumed_prices: tuple[str, ...] = option(
        "Assumed price, a multiple of another instance's (repeatable).",
        name="assume_price",
        several="repeated",
        metavar="'A=4x B'",
    )

    def used(self, catalog: Catalog, instances: Sequence[str]) -> Buying:
        """Return the terms with the prices of these instances.

        Others are refused, unless they are for any run.
        """
        from trnbench.money.price_terms import parse_assumption, parse_own_price, parse_price_change

        compared = {catalog.find("instances", name).name for name in instances}
        prices = [text.removesuffix(IF_ASKED) for text in self.prices]
        own = [(parse_price_change(text) or parse_own_price(text))[0] for text in prices]
        used = [catalog.find("instances", name).name in compared for name in own]
        asked = zip(self.prices, own, strict=True)
        given = [("--price", name) for text, name in asked if not text.endswith(IF_ASKED)]
        given += [("--assume-price", parse_assumption(text)[0]) for text in self.assumed_prices]
        for asked_by, name in given:
            if catalog.find("instances", name).name not in compared:
                raise InputError(f"{asked_by} names {name}, which is not among --on")
        return self.but(
            prices=tuple(text for text, known in zip(prices, used, strict=True) if known)
        )
