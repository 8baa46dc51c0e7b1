"""Price files of every supported kind, recognised by their beginning.

Read here: ec2instances.info, SkyPilot's catalogue, the user's own table, and saved answers of AWS.
"""

from __future__ import annotations

import csv
import datetime
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO, get_args

from trnbench.errors import DataFileError, Fault, did_you_mean
from trnbench.facts.catalog.foreign import foreign
from trnbench.facts.catalog.text_file import open_text, refused
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.prices.feed import aws_answers
from trnbench.facts.prices.feed.json_stream import JsonReader
from trnbench.facts.prices.feed.offer_file import read_offer_csv, read_offer_json, read_products
from trnbench.facts.prices.feed.reading import (
    LEAST_USD,
    MOST_USD,
    FoundRate,
    Known,
    RatesRead,
    over_zones,
    settled,
    term_text,
    usd,
)
from trnbench.facts.records import replace
from trnbench.facts.terminal_text import control_character

OPTIONS: tuple[PurchaseOption, ...] = get_args(PurchaseOption)
OWN_COLUMNS = ("instance", "region", "purchase", "usd_per_hour", "date_from", "source")
_TERM = re.compile(r"yrTerm(?P<years>\d)(?P<offering>[A-Za-z]+)\.(?P<payment>\w+)Upfront")
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LOOKED_AT = 8192
_ANSWER = re.compile(r'"(PriceList|SpotPriceHistory|CapacityBlockOfferings|searchResults)"\s*:')
_OFFER = re.compile(r'"(offerCode|publicationDate|products|terms)"\s*:')
KINDS = (
    "an AWS offer file (JSON or CSV), a saved answer of an AWS price service, ec2instances.info's "
    "instances.json, SkyPilot's vms.csv, or a CSV with columns " + ",".join(OWN_COLUMNS)
)


def read_price_file(path: Path, instances: Mapping[str, str], day: datetime.date) -> RatesRead:
    """Rates in a file; `instances` maps names and aliases, `day` dates files without a date."""
    with foreign(path, "a list of prices"), open_text(path, what="prices") as file:
        return _read(file, path, instances, day)


def _read(file: TextIO, path: Path, instances: Mapping[str, str], day: datetime.date) -> RatesRead:
    start = file.read(_LOOKED_AT)
    file.seek(0)
    head = start.lstrip()
    known = instances.get
    answer = _ANSWER.search(head)
    if head.startswith("["):
        return read_vantage(file, path, known, day)
    if head.startswith("{") and answer is not None:
        return _answer(file, path, answer[1], instances, day)
    if head.startswith("{") and _OFFER.search(head):
        return read_offer_json(file, path, known, day)
    heading = head.splitlines()[0] if head else ""
    if heading.startswith(('"FormatVersion"', "FormatVersion")):
        return read_offer_csv(file, path, known, day)
    if "InstanceType" in heading and "SpotPrice" in heading:
        return read_skypilot(file, known, day)
    if "instance" in heading.split(","):
        return read_own(file, path, known, tuple(instances))
    raise refused(path, f"no list of prices; expected {KINDS}")


def _answer(
    file: TextIO, path: Path, key: str, instances: Mapping[str, str], day: datetime.date
) -> RatesRead:
    reader, items = JsonReader(file, path), list[Any]()
    for name in reader.members():
        if name == key:
            items += reader.items()
        else:
            reader.value()
    known = instances.get
    if key == "PriceList":
        texts = (json.loads(item) if isinstance(item, str) else item for item in items)
        try:
            return read_products(
                [product for product in texts if isinstance(product, dict)], known, day
            )
        except json.JSONDecodeError as error:
            raise refused(path, f"a text in PriceList is not valid JSON: {error.msg}") from None
    items = [item for item in items if isinstance(item, dict)]
    if key == "SpotPriceHistory":
        return aws_answers.spot_reading(items, known)
    if key == "searchResults":
        return aws_answers.savings_reading(items, known, day)
    offers, warnings = aws_answers.block_offers(items, known)
    return aws_answers.block_reading(offers, day, warnings, ignored=len(items) - len(offers))


def read_vantage(file: TextIO, path: Path, known: Known, day: datetime.date) -> RatesRead:
    """Linux rates of the instances.json of ec2instances.info."""
    rates: list[FoundRate] = []
    ignored = 0
    for machine in JsonReader(file, path).items():
        sold = machine.get("instance_type") if isinstance(machine, dict) else None
        name = known(sold) if isinstance(sold, str) else None
        pricing = machine.get("pricing") if isinstance(machine, dict) else None
        if name is None or not isinstance(pricing, dict):
            ignored += 1
            continue
        for region, systems in pricing.items():
            linux = systems.get("linux") if isinstance(systems, dict) else None
            if isinstance(linux, dict):
                rates += _vantage(linux, name, region, day)
    title, url = "ec2instances.info, instances.json", "https://instances.vantage.sh"
    return settled(RatesRead(title=title, url=url, rates=tuple(rates), ignored=ignored))


def _vantage(
    linux: Mapping[str, Any], name: str, region: str, day: datetime.date
) -> Iterator[FoundRate]:
    demand, spot = usd(linux.get("ondemand")), usd(linux.get("spot_avg"))
    rate_of = partial(FoundRate, instance=name, region=region, day=day)
    if demand is not None:
        yield rate_of(option="on-demand", usd_per_hour=demand)
    if spot is not None:
        low, high = usd(linux.get("spot_min")) or spot, usd(linux.get("spot_max")) or spot
        yield rate_of(
            option="spot",
            usd_per_hour=spot,
            low_usd_per_hour=min(low, spot),
            high_usd_per_hour=max(high, spot),
            note="an average over zones and time",
        )
    reserved = linux.get("reserved")
    for key, text in reserved.items() if isinstance(reserved, dict) else ():
        match, rate = _TERM.fullmatch(key), usd(text)
        if match and rate is not None:
            words = match["offering"].lower(), f"{match['payment'].lower()} upfront"
            terms = term_text(int(match["years"]), *words)
            yield rate_of(option="reserved", terms=terms, usd_per_hour=rate)


def read_skypilot(file: TextIO, known: Known, day: datetime.date) -> RatesRead:
    """Rates of SkyPilot's vms.csv: one line per zone, by column name."""
    rates: dict[PurchaseOption, list[FoundRate]] = {"on-demand": [], "spot": []}
    ignored = 0
    for row in csv.DictReader(file):
        name, region = known(row.get("InstanceType") or ""), row.get("Region")
        if name is None or not region:
            ignored += 1
            continue
        for column, (option, several) in zip(("Price", "SpotPrice"), rates.items(), strict=True):
            rate = usd(row.get(column))
            if rate is not None:
                several.append(
                    FoundRate(
                        instance=name, region=region, option=option, usd_per_hour=rate, day=day
                    )
                )
    reading = RatesRead(
        title="SkyPilot's catalogue, vms.csv",
        url="https://github.com/skypilot-org/skypilot-catalog",
        rates=tuple(rates["on-demand"]),
        ignored=ignored,
    )
    # Several rates of a zone's machine are a contradiction; those of several zones are not.
    reading = settled(reading)
    return replace(reading, rates=(*reading.rates, *over_zones(rates["spot"])))


def read_own(file: TextIO, path: Path, known: Known, names: tuple[str, ...]) -> RatesRead:
    """Rates of the user's own table, or an error with every fault."""
    reader = csv.DictReader(file)
    heading = [name.strip() for name in reader.fieldnames or ()]
    missing = [name for name in OWN_COLUMNS if name not in heading]
    if missing or len(heading) != len(OWN_COLUMNS):
        more = [name for name in heading if name not in OWN_COLUMNS]
        odd = f"; unknown: {', '.join(map(repr, more))}" if more else ""
        raise refused(path, f"expected the columns {','.join(OWN_COLUMNS)}{odd}")
    reader.fieldnames = heading
    rates: dict[tuple[object, ...], FoundRate] = {}
    faults: list[Fault] = []
    for row in reader:
        place = f"line {reader.line_num}"
        cells = {name: (row.get(name) or "").strip() for name in OWN_COLUMNS}
        rate, wrong = _own(cells, known, names)
        if row.get(None) is not None:
            wrong.append("more cells than columns")
        faults += [Fault(place, message) for message in wrong]
        if rate is None or wrong:
            continue
        other = rates.setdefault((*rate.place, rate.day), rate)
        if other.usd_per_hour != rate.usd_per_hour:
            message = f"a second rate of {rate.instance} on {rate.day}"
            faults.append(Fault(place, message))
    if faults:
        raise DataFileError(str(path), faults, hint="every line needs all six cells")
    return RatesRead(title="a table of one's own", rates=tuple(rates.values()))


def _own(
    cells: Mapping[str, str], known: Known, names: tuple[str, ...]
) -> tuple[FoundRate | None, list[str]]:
    wrong = [f"{name} is empty" for name, text in cells.items() if not text]
    name = known(cells["instance"])
    if cells["instance"] and name is None:
        near = did_you_mean(cells["instance"], names)
        wrong.append(f"unknown instance {cells['instance']!r}{near}")
    option = next(
        (known_option for known_option in OPTIONS if known_option == cells["purchase"]), None
    )
    if cells["purchase"] and option is None:
        near = did_you_mean(cells["purchase"], OPTIONS)
        wrong.append(f"unknown purchase option {cells['purchase']!r}{near}")
    if cells["region"] and not _REGION.fullmatch(cells["region"]):
        wrong.append(f"{cells['region']!r} is not the name of a region")
    rate = usd(cells["usd_per_hour"])
    if cells["usd_per_hour"] and rate is None:
        wrong.append(
            f"usd_per_hour {cells['usd_per_hour']!r:.40} is not a number from {LEAST_USD:g} to "
            f"{MOST_USD:g}"
        )
    wrong += [
        f"{name} has the control character {character}; remove it"
        for name, text in cells.items()
        if (character := control_character(text))
    ]
    try:
        day = datetime.date.fromisoformat(cells["date_from"]) if cells["date_from"] else None
    except ValueError:
        day = None
        wrong.append(f"date_from {cells['date_from']!r} is not a date such as 2026-11-21")
    if wrong or name is None or option is None or rate is None or day is None:
        return None, wrong
    rate_of = partial(FoundRate, instance=name, region=cells["region"], source=cells["source"])
    return rate_of(option=option, usd_per_hour=rate, day=day), wrong
