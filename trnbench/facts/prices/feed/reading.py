"""Rates as they were read somewhere, before they join a price list."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Any

from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import Record, replace
from trnbench.facts.units import SANE, Dimension

LEAST_USD, MOST_USD = SANE[Dimension.USD_PER_HOUR]
Known = Callable[[str], str | None]
"""The name by which trnbench knows an instance type, from the seller's; None for all others."""


class FoundRate(Record):
    """A rate of an instance type, USD an hour, as read on a day.

    `low_usd_per_hour` and `high_usd_per_hour` are of the cheapest and the dearest of `zones`.
    `unchanged_since`: an earlier day from which on the seller says that it holds.
    """

    instance: str
    region: str
    option: PurchaseOption
    usd_per_hour: float
    day: datetime.date
    terms: str | None = None
    low_usd_per_hour: float | None = None
    high_usd_per_hour: float | None = None
    zones: int | None = None
    unchanged_since: datetime.date | None = None
    note: str | None = None
    source: str | None = None

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What it is a rate of."""
        return self.instance, self.region, self.option, self.terms or ""


class RatesRead(Record):
    """What was read in one place: its title and address, the rates, and what was left out.

    `warnings` are worth a person's thought; `ignored` counts rates of machines trnbench does not
    know, of other systems or tenancies.
    """

    title: str
    rates: tuple[FoundRate, ...]
    url: str | None = None
    kind: str = "vendor"
    warnings: tuple[str, ...] = ()
    ignored: int = 0


def settled(rates: Iterable[FoundRate]) -> tuple[tuple[FoundRate, ...], tuple[str, ...]]:
    """Return one rate for each place and day, and warnings where there were several.

    Of several the one in force last, then the dearest: nobody shall find it costs more.
    """
    found: dict[tuple[object, ...], FoundRate] = {}
    warnings: dict[str, None] = {}
    for rate in rates:
        key = (*rate.place, rate.day)
        other = found.setdefault(key, rate)
        if other.usd_per_hour != rate.usd_per_hour:
            first, last = sorted(
                (other, rate), key=lambda one: (one.unchanged_since or one.day, one.usd_per_hour)
            )
            found[key] = last
            warnings[
                f"{rate.instance} in {rate.region}, {rate.option}: two rates of {rate.day}, "
                f"{first.usd_per_hour:g} and {last.usd_per_hour:g} USD/h; the latter is taken"
            ] = None
    return tuple(found.values()), tuple(warnings)


def over_zones(rates: Sequence[FoundRate]) -> tuple[FoundRate, ...]:
    """Return rates of single zones as one for each place and day: the median, and both ends."""
    zones: dict[tuple[object, ...], list[FoundRate]] = {}
    for rate in rates:
        zones.setdefault((*rate.place, rate.day), []).append(rate)
    return tuple(
        replace(
            group[0],
            usd_per_hour=median(one.usd_per_hour for one in group),
            low_usd_per_hour=min(one.usd_per_hour for one in group),
            high_usd_per_hour=max(one.usd_per_hour for one in group),
            zones=len(group),
        )
        for group in zones.values()
    )


def usd(text: object) -> float | None:
    """Return USD above 0 that stand there as text or number, as anything real costs, or None."""
    value = real(text)
    return value if value is not None and LEAST_USD <= value <= MOST_USD else None


def real(text: object) -> float | None:
    """Return the finite number that stands there as text or number; None for anything else."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if isfinite(value) else None


def mapping(value: object) -> Mapping[str, Any]:
    """Return a value if it is an object of JSON, else an empty one: a seller's left-out part."""
    return value if isinstance(value, Mapping) else {}
