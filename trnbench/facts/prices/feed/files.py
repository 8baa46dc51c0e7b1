"""Price files of every supported kind, recognised by their beginning."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from trnbench.facts.catalog.foreign import foreign
from trnbench.facts.catalog.text_file import open_text, refused
from trnbench.facts.prices.feed.aws_answers import (
    block_offers,
    block_reading,
    savings_reading,
    spot_reading,
)
from trnbench.facts.prices.feed.json_stream import JsonReader
from trnbench.facts.prices.feed.offer_file import read_offer_csv, read_offer_json, read_products
from trnbench.facts.prices.feed.other_files import (
    OWN_COLUMNS,
    read_own,
    read_skypilot,
    read_vantage,
)
from trnbench.facts.prices.feed.reading import RatesRead

_LOOKED_AT = 8192
_ANSWER = re.compile(r'"(PriceList|SpotPriceHistory|CapacityBlockOfferings|searchResults)"\s*:')
_OFFER = re.compile(r'"(offerCode|publicationDate|products|terms)"\s*:')
KINDS = (
    "an AWS offer file (JSON or CSV), a saved answer of an AWS price service, the instances.json "
    "of ec2instances.info, SkyPilot's vms.csv, or a CSV with the columns " + ",".join(OWN_COLUMNS)
)


def read_price_file(path: Path, instances: Mapping[str, str], day: datetime.date) -> RatesRead:
    """Rates in a file, or DataFileError.

    `instances` maps names and aliases to instance names. `day` is the file's date, for files
    without one.
    """
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
            return read_products([one for one in texts if isinstance(one, dict)], known, day)
        except json.JSONDecodeError as error:
            raise refused(path, f"a text in PriceList is not valid JSON: {error.msg}") from None
    items = [item for item in items if isinstance(item, dict)]
    if key == "SpotPriceHistory":
        return spot_reading(items, known)
    if key == "searchResults":
        return savings_reading(items, known, day)
    offers, warnings = block_offers(items, known)
    found = block_reading(offers, day)
    ignored = len(items) - len(offers)
    return RatesRead(title=found.title, rates=found.rates, warnings=warnings, ignored=ignored)
