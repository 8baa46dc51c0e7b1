"""Amazon's Price List: a region's offer file, as JSON or CSV, and answers of the query API.

A product has attributes (instance type, region, system), and its terms have the price. Shared Linux
machines without further software that run on demand count. Upfront payments are spread over the
hours of the term.
"""

from __future__ import annotations

import csv
import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from trnbench.facts.catalog.text_file import refused
from trnbench.facts.prices.feed.json_stream import JsonReader
from trnbench.facts.prices.feed.reading import (
    FoundRate,
    Known,
    RatesRead,
    mapping,
    settled,
    term_text,
    usd,
)
from trnbench.facts.records import State, field

TITLE = "AWS Price List"
CURRENCY = "USD"
HOURS_PER_YEAR = 8760
WANTED: Mapping[str, str] = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "tenancy": "Shared",
    "marketoption": "OnDemand",
}
"""Required attributes of products; a missing attribute passes."""
_COLUMNS: Mapping[str, str] = {
    "operatingSystem": "Operating System",
    "preInstalledSw": "Pre Installed S/W",
    "capacitystatus": "CapacityStatus",
    "tenancy": "Tenancy",
    "marketoption": "MarketOption",
    "instanceType": "Instance Type",
    "regionCode": "Region Code",
}


class _Counted(State):
    """Rates of a list so far."""

    known: Known
    rates: list[FoundRate] = field(default_factory=list)
    other_money: Counter[str] = field(default_factory=Counter)
    ignored: int = 0

    def place(self, product: object) -> tuple[str, str] | None:
        """(instance, region) of a product that counts; None for all others."""
        attributes = mapping(product).get("attributes")
        if not isinstance(attributes, Mapping):
            return None
        sold, region = attributes.get("instanceType"), attributes.get("regionCode")
        name = self.known(sold) if isinstance(sold, str) else None
        as_wanted = all(attributes.get(key, value) == value for key, value in WANTED.items())
        if name is None or not as_wanted or not isinstance(region, str) or not region:
            self.ignored += 1
            return None
        return name, region

    def reading(self, title: str) -> RatesRead:
        money = (
            f"{count:,} rates in {currency}, not in USD, are left out"
            for currency, count in sorted(self.other_money.items())
        )
        rates, ignored = tuple(self.rates), self.ignored
        return settled(RatesRead(title=title, rates=rates, warnings=tuple(money), ignored=ignored))


def read_offer_json(file: TextIO, path: Path, known: Known, day: datetime.date) -> RatesRead:
    """Rates of an offer file; `day` is the file's date if the file states none.

    Products come before their terms; a file in the other order is read twice.
    """
    places: dict[str, tuple[str, str]] = {}
    published, title, early, products = day, TITLE, False, False
    for _ in range(2):
        counted, reader = _Counted(known=known), JsonReader(file, path)
        again = False
        for key in reader.members():
            if key == "products":
                products = True
                for sku in reader.members():
                    if (found := counted.place(reader.value())) is not None:
                        places[sku] = found
                again = early
            # Terms alone tell no place: they are skipped, and read the second time.
            elif key == "terms" and not products:
                early = True
                reader.skip(2)
            elif key == "terms":
                for _term in reader.members():
                    for sku in reader.members():
                        offers = reader.value()
                        if sku in places and isinstance(offers, dict):
                            _add(counted, places[sku], offers.values(), published)
            else:
                value = reader.value()
                if key == "publicationDate":
                    published = _day(value) or published
                elif key == "version":
                    title = f"{TITLE}, version {value}"
        if not again:
            break
        file.seek(0)
    return counted.reading(title)


def read_products(
    texts: Iterable[Mapping[str, Any]], known: Known, day: datetime.date
) -> RatesRead:
    """Rates of decoded products with their terms, in the form of the query API."""
    counted = _Counted(known=known)
    for product in texts:
        place, terms = counted.place(product.get("product")), product.get("terms")
        if place is None or not isinstance(terms, dict):
            continue
        published = _day(product.get("publicationDate")) or day
        for offers in terms.values():
            if isinstance(offers, dict):
                _add(counted, place, offers.values(), published)
    return counted.reading(TITLE)


def read_offer_csv(file: TextIO, path: Path, known: Known, day: datetime.date) -> RatesRead:
    """Rates of an offer file in CSV: lines about the file, a heading, one line per rate."""
    rows = csv.reader(file)
    published, heading = day, None
    for row in rows:
        if row[:1] == ["SKU"]:
            heading = row
            break
        if row[:1] == ["Publication Date"] and len(row) > 1:
            published = _day(row[1]) or published
    if heading is None:
        raise refused(path, "no heading that begins with SKU: not an offer file of AWS")
    counted = _Counted(known=known)
    # A reserved rate has two lines, upfront and by the hour, which need not be neighbours.
    halves: dict[tuple[tuple[str, str], str, str], list[tuple[str, float]]] = {}
    for cells in rows:
        row_ = dict(zip(heading, cells, strict=False))
        attributes = {key: row_[name] for key, name in _COLUMNS.items() if row_.get(name)}
        place = counted.place({"attributes": attributes})
        if place is None:
            continue
        if row_.get("Currency", CURRENCY) != CURRENCY:
            counted.other_money[row_["Currency"]] += 1
            continue
        amount = usd(row_.get("PricePerUnit"))
        reserved = row_.get("TermType") == "Reserved"
        terms = _terms(row_)
        if amount is not None and (terms or not reserved):
            key = place, terms if reserved else "", row_.get("EffectiveDate") or ""
            halves.setdefault(key, []).append((row_.get("Unit", ""), amount))
    for ((name, region), terms, since), parts in halves.items():
        _rate(counted, (name, region), parts, terms, published, _day(since))
    return counted.reading(TITLE)


def _add(
    counted: _Counted, place: tuple[str, str], offers: Iterable[Any], day: datetime.date
) -> None:
    for offer in offers:
        if not isinstance(offer, dict):
            continue
        terms = _terms(mapping(offer.get("termAttributes")))
        parts = list(_parts(counted, offer.get("priceDimensions")))
        _rate(counted, place, parts, terms, day, _day(offer.get("effectiveDate")))


def _parts(counted: _Counted, dimensions: object) -> Iterator[tuple[str, float]]:
    """Yield (unit, USD) of each charge of a term."""
    for dimension in dimensions.values() if isinstance(dimensions, dict) else ():
        amounts = mapping(dimension).get("pricePerUnit")
        if not isinstance(amounts, dict):
            continue
        if CURRENCY not in amounts:
            counted.other_money[", ".join(sorted(amounts)) or "no currency"] += 1
            continue
        amount = usd(amounts[CURRENCY])
        if amount is not None:
            yield str(dimension.get("unit", "")), amount


def _rate(
    counted: _Counted,
    place: tuple[str, str],
    parts: Iterable[tuple[str, float]],
    terms: str,
    day: datetime.date,
    since: datetime.date | None,
) -> None:
    """Add a rate: the hourly charge, plus the upfront payment over the hours of the term."""
    hourly = upfront = 0.0
    for unit, amount in parts:
        if unit.casefold() in ("hrs", "hours"):
            hourly = max(hourly, amount)
        elif terms and unit.casefold() == "quantity":
            upfront = max(upfront, amount)
    years = int(terms[0]) if terms else 1
    total = hourly + upfront / (HOURS_PER_YEAR * years)
    if total > 0:
        counted.rates.append(
            FoundRate(
                instance=place[0],
                region=place[1],
                option="reserved" if terms else "on-demand",
                terms=terms or None,
                usd_per_hour=total,
                day=day,
                unchanged_since=since if since and since < day else None,
            )
        )


def _terms(about: Mapping[str, Any]) -> str:
    """The terms in the wording of price lists; empty for on-demand."""
    years = {"1yr": 1, "3yr": 3}.get(str(about.get("LeaseContractLength")).replace(" ", ""))
    if years is None:
        return ""
    kinds = (str(about.get(key)).lower() for key in ("OfferingClass", "PurchaseOption"))
    return term_text(years, *kinds)


def _day(text: object) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(str(text)[:10])
    except ValueError:
        return None
