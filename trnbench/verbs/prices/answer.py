"""What is answered about prices: their history, and what a refresh found."""

from __future__ import annotations

import datetime
from pathlib import Path

from trnbench.facts.prices.feed.aws_answers import CapacityOffer
from trnbench.facts.prices.feed.aws_calls import AccountLimit, HeldCapacity
from trnbench.facts.prices.feed.ledger import ComparedRate
from trnbench.facts.prices.feed.reading import RatesRead
from trnbench.facts.prices.price import Price, PriceList
from trnbench.facts.records import Record


class ClaimOnDay(Record):
    """What came of a claim that turns on prices, from a day on."""

    day: datetime.date
    claim: str
    verdict: str


class PriceHistory(Record, eq=False):
    """All rates of an instance type, oldest first, and what they made of claims."""

    prices: PriceList
    rows: tuple[Price, ...]
    verdicts: tuple[ClaimOnDay, ...]


class Refresh(Record, eq=False):
    """What a refresh read, and the files as they become by it: the old text with rows at its end.

    `readings` are all that was read; `failures` are services that did not answer.
    """

    readings: tuple[RatesRead, ...]
    rates: tuple[ComparedRate, ...]
    files: tuple[tuple[Path, str], ...]
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    ignored: int = 0
    offers: tuple[CapacityOffer, ...] = ()
    limits: tuple[AccountLimit, ...] = ()
    held: tuple[HeldCapacity, ...] = ()
