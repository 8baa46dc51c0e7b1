"""Price lists of third parties:

ec2instances.info, SkyPilot's catalogue, and the user's own table.
"""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO, get_args

from trnbench.errors import DataFileError, Fault, did_you_mean
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.prices.feed.json_stream import JsonReader
from trnbench.facts.prices.feed.reading import (
    LEAST_USD,
    MOST_USD,
    FoundRate,
    Known,
    RatesRead,
    over_zones,
    settled,
    usd,
)
from trnbench.facts.records import replace
from trnbench.facts.terminal_text import control_character

OPTIONS: tuple[PurchaseOption, ...] = get_args(PurchaseOption)
OWN_COLUMNS = ("instance", "region", "purchase", "usd_per_hour", "date_from", "source")
_TERM = re.compile(r"yrTerm(?P<years>\d)(?P<offering>[A-Za-z]+)\.(?P<payment>\w+)Upfront")
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_vantage(file: TextIO, path: Path, known: Known, day: datetime.date) -> RatesRead:
    """Linux rates of the instances.json of ec2instances.info."""
    rates: list[FoundRate] = []
    ignored = 0
    for one in JsonReader(file, path).items():
        sold = one.get("instance_type") if isinstance(one, dict) else None
        name = known(sold) if isinstance(sold, str) else None
        pricing = one.get("pricing") if isinstance(one, dict) else None
        if name is None or not isinstance(pricing, dict):
            ignored += 1
            continue
        for region, systems in pricing.items():
            linux = systems.get("linux") if isinstance(systems, dict) else None
            if isinstance(linux, dict):
                rates += _vantage(linux, name, region, day)
    found, warnings = settled(rates)
    return RatesRead(
        title="ec2instances.info, instances.json",
        url="https://instances.vantage.sh",
        rates=found,
        warnings=warnings,
        ignored=ignored,
    )


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
            years = int(match["years"])
            terms = f"{years} year{'s' * (years > 1)}, {match['offering'].lower()}"
            terms += f", {match['payment'].lower()} upfront"
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
    found, warnings = settled(rates["on-demand"])
    return RatesRead(
        title="SkyPilot's catalogue, vms.csv",
        url="https://github.com/skypilot-org/skypilot-catalog",
        rates=(*found, *over_zones(rates["spot"])),
        warnings=warnings,
        ignored=ignored,
    )


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
        found, wrong = _own(cells, known, names)
        if row.get(None) is not None:
            wrong.append("more cells than columns")
        faults += [Fault(path=place, message=message) for message in wrong]
        if found is None or wrong:
            continue
        other = rates.setdefault((*found.place, found.day), found)
        if other.usd_per_hour != found.usd_per_hour:
            message = f"a second rate of {found.instance} on {found.day}"
            faults.append(Fault(path=place, message=message))
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
    option = next((one for one in OPTIONS if one == cells["purchase"]), None)
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
        f"{name} has the control character {found}; remove it"
        for name, text in cells.items()
        if (found := control_character(text))
    ]
    try:
        day = datetime.date.fromisoformat(cells["date_from"]) if cells["date_from"] else None
    except ValueError:
        day = None
        wrong.append(f"date_from {cells['date_from']!r} is not a date such as 2026-11-21")
    if wrong or name is None or option is None or rate is None or day is None:
        return None, wrong
    rate_ = FoundRate(
        instance=name, region=cells["region"], option=option, usd_per_hour=rate, day=day
    )
    return replace(rate_, source=cells["source"]), wrong
