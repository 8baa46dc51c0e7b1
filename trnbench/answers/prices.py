"""What is answered about prices: their history, and what a refresh found."""

from __future__ import annotations

import datetime
from pathlib import Path

from trnbench.prices.feed.aws_answers import CapacityOffer
from trnbench.prices.feed.aws_calls import AccountLimit, HeldCapacity
from trnbench.prices.feed.ledger import ComparedRate
from trnbench.prices.feed.reading import RatesRead
from trnbench.prices.price import Price, PriceList
from trnbench.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOnDay:
    """What came of a claim that turns on prices, from a day on."""

    day: datetime.date
    claim: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceHistory:
    """All rates of an instance type, oldest first, and what they made of claims."""

    prices: PriceList
    rows: tuple[Price, ...]
    verdicts: tuple[ClaimOnDay, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refresh:
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
