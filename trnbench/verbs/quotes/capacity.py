"""Capacity Blocks on offer right now, asked of AWS for the rows that would be bought as such."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.records import Record
from trnbench.facts.units import money_text
from trnbench.show.row import Row, cells
from trnbench.verbs.quotes.answer import Quote

if TYPE_CHECKING:
    from trnbench.facts.prices.feed.aws_answers import CapacityOffer
    from trnbench.facts.prices.feed.aws_calls import Connect


class CapacityCheck(Record):
    """Blocks of one size and length that AWS offers in a region, earliest first."""

    instance: str
    region: str
    machines: int
    days: int
    asked_at: str
    """Minute of asking, UTC."""
    offers: tuple[CapacityOffer, ...] = ()
    failure: str = ""
    """Refusal by AWS in words; empty where it answered."""

    @property
    def text(self) -> str:
        """The check as a line."""
        what = f"{self.machines:,} x {self.instance} for {self.days} days in {self.region}"
        when = f"(asked {self.asked_at})"
        if self.failure:
            return f"{what}: AWS does not say: {self.failure} {when}"
        if not self.offers:
            return f"{what}: no Capacity Block is on offer {when}"
        first = self.offers[0]
        price = f"{money_text(first.usd)} from {first.starts_at} in {first.zone}"
        return f"{what}: {len(self.offers):,} on offer, the first for {price} {when}"

    def row(self) -> Row:
        return cells(self, "instance region machines days asked_at failure") | {
            "offers": [cells(one, "zone starts_at days usd usd_per_hour") for one in self.offers]
        }


def capacity_checks(
    catalog: Catalog,
    quotes: Iterable[Quote],
    *,
    to: Connect | None = None,
    now: datetime.datetime | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[CapacityCheck, ...]:
    """What AWS offers of each block that a quote buys; a refusal is told in words."""
    from trnbench.facts.prices.feed.aws_calls import AwsQuestion, blocks_on_offer, connect

    now = now or datetime.datetime.now(tz=datetime.UTC)
    known = {name: one[0].name for name, one in catalog.users("instances").items()}
    found: dict[tuple[str, str, int, int], CapacityCheck] = {}
    for quote in quotes:
        bill = quote.bill
        if bill is None or bill.tariff.option != "capacity-block" or bill.tariff.region is None:
            continue
        to = to or connect()
        for size in sorted({*bill.block_sizes} or {quote.nodes}):
            key = quote.instance, bill.tariff.region, size, max(bill.blocks_days, default=1)
            if key in found:
                continue
            asked = AwsQuestion(
                instances=[load_instance(catalog, quote.instance)],
                regions=(key[1],),
                quotas=(),
                known=known.get,
                now=now,
            )
            told = blocks_on_offer(asked, to, machines=size, days=key[3], pause=pause)
            found[key] = CapacityCheck(
                instance=quote.instance,
                region=key[1],
                machines=size,
                days=key[3],
                asked_at=f"{now:%Y-%m-%d %H:%M} UTC",
                offers=tuple(sorted(told.offers, key=lambda one: one.starts_at)),
                failure="; ".join(one.partition(": ")[2] for one in told.failures),
            )
    return tuple(found.values())
