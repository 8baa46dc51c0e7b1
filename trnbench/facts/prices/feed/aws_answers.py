"""Answers of Amazon's price services as rates and offers, live or from a saved file."""

from __future__ import annotations

import datetime
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import Any

from trnbench.facts.prices.feed.reading import (
    FoundRate,
    Known,
    RatesRead,
    mapping,
    real,
    settled,
    term_text,
    usd,
)
from trnbench.facts.records import Record

SPOT_LEVELS = (0.1, 0.5, 0.9)
"""Quantiles over time of a zone's spot rate: low, middle, high."""
YEAR_S = 31_536_000
_REGION_OF_ZONE = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")


class CapacityOffer(Record):
    """Machines offered for a period at a total price: a Capacity Block or a training plan."""

    kind: str
    instance: str
    region: str
    zone: str | None
    size: int
    starts_at: str
    days: float
    usd: float
    """Price of the whole offer; `usd_per_hour`: per machine-hour."""
    usd_per_hour: float


def spot_reading(items: Iterable[Mapping[str, Any]], known: Known) -> RatesRead:
    """Spot rates of a price history: per region, over zones, weighted by time.

    The history lists changes: a rate holds until its zone's next change, the last until the end of
    the history. The rate is the median over zones of their median over time; the ends are the
    lowest low and the highest high of all zones.
    """
    zones: dict[tuple[str, str, str], list[tuple[datetime.datetime, float]]] = {}
    ignored = 0
    for item in items:
        name, rate = known(str(item.get("InstanceType"))), usd(item.get("SpotPrice"))
        zone, at = item.get("AvailabilityZone"), _time(item.get("Timestamp"))
        region = region_of(zone)
        linux = str(item.get("ProductDescription", "Linux/UNIX")).startswith("Linux/UNIX")
        if name is None or rate is None or at is None or region is None or not linux:
            ignored += 1
            continue
        # Names of zones differ between accounts, their ids do not.
        key = name, region, str(item.get("AvailabilityZoneId") or zone)
        zones.setdefault(key, []).append((at, rate))
    end = max((at for changes in zones.values() for at, _ in changes), default=None)
    by_region: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for (name, region, _), changes in zones.items():
        if end is not None:
            by_region.setdefault((name, region), []).append(_levels(sorted(changes), end))
    rates = [
        FoundRate(
            instance=name,
            region=region,
            option="spot",
            usd_per_hour=median(middle for _, middle, _ in levels),
            low_usd_per_hour=min(low for low, _, _ in levels),
            high_usd_per_hour=max(high for _, _, high in levels),
            zones=len(levels),
            day=end.date(),
        )
        for (name, region), levels in by_region.items()
        if end is not None
    ]
    return RatesRead(
        title="EC2 spot price history", rates=tuple(rates), kind="measured", ignored=ignored
    )


def _levels(
    changes: Sequence[tuple[datetime.datetime, float]], end: datetime.datetime
) -> tuple[float, float, float]:
    """Quantiles (low, middle, high) of a zone's rate, weighted by the time each rate held."""
    ends = [at for at, _ in changes[1:]] + [end]
    held = [(rate, (e - at).total_seconds()) for (at, rate), e in zip(changes, ends, strict=True)]
    total = sum(seconds for _, seconds in held)
    # All changes at one instant: the last rate counts alone.
    if total <= 0:
        held = held[-1:] and [(held[-1][0], 1.0)]
        total = 1.0
    rates, seconds = zip(*sorted(held), strict=True)
    passed = list(accumulate(seconds))
    low, middle, high = (rates[bisect_left(passed, level * total)] for level in SPOT_LEVELS)
    return low, middle, high


def block_offers(
    items: Iterable[Mapping[str, Any]], known: Known
) -> tuple[tuple[CapacityOffer, ...], tuple[str, ...]]:
    """Capacity Blocks on offer, and warnings about prices not in USD."""
    offers = []
    for item in items:
        ultraserver = item.get("UltraserverType")
        size = (_count(item.get("UltraserverCount")) if ultraserver else 0) or _count(
            item.get("InstanceCount")
        )
        name = known(str(ultraserver or item.get("InstanceType")))
        minutes, start = _minutes(item, "CapacityBlockDuration"), item.get("StartDate")
        offers.append(_offer("capacity-block", name, size, item, minutes=minutes, start=start))
    return _sorted(offers)


def plan_offers(
    items: Iterable[Mapping[str, Any]], known: Known
) -> tuple[tuple[CapacityOffer, ...], tuple[str, ...]]:
    """SageMaker training plans, each told by its first part, and warnings on other money."""
    offers = []
    for item in items:
        parts = item.get("ReservedCapacityOfferings")
        first = mapping(parts[0]) if isinstance(parts, list) and parts else {}
        ultraserver = first.get("UltraServerType")
        sold = str(ultraserver or first.get("InstanceType") or "").removeprefix("ml.")
        size = first.get("UltraServerCount") if ultraserver else first.get("InstanceCount")
        there = {**item, "AvailabilityZone": first.get("AvailabilityZone")}
        minutes, start = _minutes(item, "Duration"), first.get("StartTime")
        name, size = known(sold), _count(size)
        offers.append(_offer("training-plan", name, size, there, minutes=minutes, start=start))
    return _sorted(offers)


def _sorted(
    offers: Sequence[CapacityOffer | str | None],
) -> tuple[tuple[CapacityOffer, ...], tuple[str, ...]]:
    warnings = dict.fromkeys(offer for offer in offers if isinstance(offer, str))
    return tuple(offer for offer in offers if isinstance(offer, CapacityOffer)), tuple(warnings)


def _minutes(item: Mapping[str, Any], prefix: str) -> float:
    hours, minutes = real(item.get(f"{prefix}Hours")), real(item.get(f"{prefix}Minutes"))
    return 60.0 * (hours or 0.0) + (minutes or 0.0)


def _count(value: object) -> int:
    return int(real(value) or 0)


def _offer(
    kind: str,
    name: str | None,
    size: int,
    item: Mapping[str, Any],
    *,
    minutes: float,
    start: object,
) -> CapacityOffer | str | None:
    fee, zone, at = usd(item.get("UpfrontFee")), item.get("AvailabilityZone"), _time(start)
    region, currency = region_of(zone), item.get("CurrencyCode", "USD")
    if name is None or fee is None or size < 1 or minutes <= 0 or at is None or region is None:
        return None
    if currency != "USD":
        return f"{kind} of {name}: in {currency}, not in USD; left out"
    return CapacityOffer(
        kind=kind,
        instance=name,
        region=region,
        zone=str(zone),
        size=size,
        starts_at=at.isoformat(),
        days=minutes / 1440,
        usd=fee,
        usd_per_hour=fee / (size * minutes / 60),
    )


def block_reading(
    offers: Sequence[CapacityOffer],
    day: datetime.date,
    warnings: tuple[str, ...],
    *,
    ignored: int = 0,
) -> RatesRead:
    """Cheapest Capacity Block rate per instance and region."""
    cheapest: dict[tuple[str, str], CapacityOffer] = {}
    for offer in offers:
        other = cheapest.setdefault((offer.instance, offer.region), offer)
        if offer.usd_per_hour < other.usd_per_hour:
            cheapest[offer.instance, offer.region] = offer
    rates = tuple(
        FoundRate(
            instance=offer.instance,
            region=offer.region,
            option="capacity-block",
            usd_per_hour=offer.usd_per_hour,
            day=day,
            note=f"{offer.size} for {offer.days:g} days from {offer.starts_at[:10]}",
        )
        for offer in cheapest.values()
    )
    title = "EC2 Capacity Block offerings"
    return RatesRead(title=title, rates=rates, warnings=warnings, ignored=ignored)


def savings_reading(
    items: Iterable[Mapping[str, Any]], known: Known, day: datetime.date
) -> RatesRead:
    """Rates of savings plans on shared Linux machines."""
    rates: list[FoundRate] = []
    other_money: dict[str, None] = {}
    ignored = 0
    for item in items:
        entries = item.get("properties")
        properties = map(mapping, entries if isinstance(entries, list) else ())
        about = {str(entry.get("name")): str(entry.get("value")) for entry in properties}
        plan = mapping(item.get("savingsPlanOffering"))
        name = known(about.get("instanceType") or str(item.get("usageType", "")).split(":")[-1])
        years = round((real(plan.get("durationSeconds")) or 0) / YEAR_S)
        rate, region = usd(item.get("rate")), about.get("region")
        linux = about.get("productDescription", "Linux/UNIX") == "Linux/UNIX"
        shared = about.get("tenancy", "shared") == "shared"
        hourly = str(item.get("unit", "Hrs")) == "Hrs"
        usual = linux and shared and hourly
        if name is None or rate is None or region is None or years < 1 or not usual:
            ignored += 1
        elif plan.get("currency", "USD") != "USD":
            other_money[f"savings plans in {plan['currency']}, not in USD, are left out"] = None
        else:
            payment = str(plan.get("paymentOption", "")).lower()
            rates.append(
                FoundRate(
                    instance=name,
                    region=region,
                    option="savings-plan",
                    terms=term_text(years, payment, f"{plan.get('planType', 'unnamed')} plan"),
                    usd_per_hour=rate,
                    day=day,
                )
            )
    title, warnings = "AWS Savings Plans offering rates", tuple(other_money)
    read = RatesRead(title=title, rates=tuple(rates), warnings=warnings, ignored=ignored)
    return settled(read)


def region_of(zone: object) -> str | None:
    """Region of a zone: us-east-2 of us-east-2b, us-east-1 of us-east-1-dfw-2a."""
    matched = _REGION_OF_ZONE.match(zone) if isinstance(zone, str) else None
    return matched[0] if matched else None


def _time(value: object) -> datetime.datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            return None
    if not isinstance(value, datetime.datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
