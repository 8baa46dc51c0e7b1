"""Rates as read from one place, before they join a price list."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Any

from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import Record, replace
from trnbench.facts.units import SANE, Dimension, counted

LEAST_USD, MOST_USD = SANE[Dimension.USD_PER_HOUR]
Known = Callable[[str], str | None]
"""Maps a seller's name of an instance type to trnbench's; None for unknown types."""


class FoundRate(Record):
    """A rate of an instance type, USD per hour, as read on a day."""

    instance: str
    region: str
    option: PurchaseOption
    usd_per_hour: float
    day: datetime.date
    terms: str | None = None
    low_usd_per_hour: float | None = None
    """Rate of the cheapest zone; `high_usd_per_hour`: of the dearest of `zones`."""
    high_usd_per_hour: float | None = None
    zones: int | None = None
    unchanged_since: datetime.date | None = None
    """Earlier day from which on the seller states the same rate."""
    note: str | None = None
    source: str | None = None

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Key of the purchase: instance, region, option and terms."""
        return self.instance, self.region, self.option, self.terms or ""


class RatesRead(Record):
    """Rates read from one place, with its title and address, and the omissions."""

    title: str
    rates: tuple[FoundRate, ...]
    url: str | None = None
    kind: str = "vendor"
    warnings: tuple[str, ...] = ()
    """Omissions that a person should review."""
    ignored: int = 0
    """Number of rates of unknown machines, other systems or other tenancies."""


def settled(read: RatesRead) -> RatesRead:
    """One rate per purchase and day, with a warning where there were several.

    The rate in force last wins, then the dearest: a real bill must not exceed the list.
    """
    by_purchase: dict[tuple[object, ...], FoundRate] = {}
    warnings = dict.fromkeys(read.warnings)
    for rate in read.rates:
        key = (*rate.place, rate.day)
        other = by_purchase.setdefault(key, rate)
        if other.usd_per_hour != rate.usd_per_hour:
            # By the start of validity, then by price: the dearest of equals wins.
            first, last = sorted(
                (other, rate),
                key=lambda candidate: (
                    candidate.unchanged_since or candidate.day,
                    candidate.usd_per_hour,
                ),
            )
            by_purchase[key] = last
            warnings[
                f"{rate.instance} in {rate.region}, {rate.option}: two rates of {rate.day}, "
                f"{first.usd_per_hour:g} and {last.usd_per_hour:g} USD/h; the latter is taken"
            ] = None
    return replace(read, rates=tuple(by_purchase.values()), warnings=tuple(warnings))


def over_zones(rates: Sequence[FoundRate]) -> tuple[FoundRate, ...]:
    """Rates of single zones merged per purchase and day: the median, and both ends."""
    zones: dict[tuple[object, ...], list[FoundRate]] = {}
    for rate in rates:
        zones.setdefault((*rate.place, rate.day), []).append(rate)
    return tuple(
        replace(
            group[0],
            usd_per_hour=median(each.usd_per_hour for each in group),
            low_usd_per_hour=min(each.usd_per_hour for each in group),
            high_usd_per_hour=max(each.usd_per_hour for each in group),
            zones=len(group),
        )
        for group in zones.values()
    )


def usd(text: object) -> float | None:
    """A price above 0 in USD, from text or number, within the range of real prices; else None."""
    value = real(text)
    return value if value is not None and LEAST_USD <= value <= MOST_USD else None


def real(text: object) -> float | None:
    """A finite number, from text or number; None for anything else."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if isfinite(value) else None


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one, for a part that a seller left out."""
    return value if isinstance(value, Mapping) else {}


def term_text(years: int, *words: str) -> str:
    """The terms of a commitment in the wording of price lists, such as "3 years, no upfront"."""
    return ", ".join((counted(years, "year"), *words))
