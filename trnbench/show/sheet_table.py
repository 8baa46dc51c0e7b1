"""A data file in full: its record, and every value with what it rests on."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping

from trnbench.facts.calibration.supports import KEY
from trnbench.facts.calibration.transfer import AS_IN, BY_KERNELS, FIT_SOURCE
from trnbench.facts.catalog.document import Documented
from trnbench.facts.catalog.provenance import Kind, Provenance, join
from trnbench.facts.catalog.schema import content_of
from trnbench.facts.catalog.search import Entry
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.fabric import Level
from trnbench.facts.hardware.figures import SheetFigure
from trnbench.facts.prices.price import Price, PriceList
from trnbench.facts.records import Record, replace, tag_of

FIRST_LOOKED_AT = ("on-demand", "capacity-block")
"""Purchase options whose listed rate is shown before anything is computed, in this order."""


class SheetLine(Record):
    """One value of a file: key path, text as written, what it rests on, and in base units.

    `unit` names the base unit as attribute names do (`bytes_per_s`); none for counts. `rests_on`
    tells of a number of a calibration whether steps were measured that tell of it.
    """

    key: str
    value: str
    kind: str = ""
    source: str = ""
    range: str = ""
    note: str = ""
    rests_on: str = ""
    number: float | None = None
    unit: str = ""


class Sheet(Record):
    """A named data file in full, with the figures and files that belong to it.

    `givers`: of a calibration, those by name that it took numbers over from; None of other files.
    """

    entry: Entry
    record: Documented
    figures: tuple[SheetFigure, ...] = ()
    chip: Chip | None = None
    prices: PriceList | None = None
    parameters: tuple[tuple[str, int], ...] = ()
    givers: Mapping[str, Provenance] | None = None


def lines_of(sheet: Sheet) -> tuple[SheetLine, ...]:
    """Return every value of a file in schema order, numbers with their evidence."""
    known = sheet.record.provenance
    lines = tuple(_lines(sheet.record, known, ""))
    if sheet.givers is None:
        return lines
    chain = {sheet.record.name: known, **sheet.givers}
    return tuple(
        replace(
            line,
            rests_on=rests_on(chain, sheet.record.name, line.key),
            source=line.source or (known.cited.get(line.key, "") if _is_stated(line.key) else ""),
        )
        for line in lines
    )


def _is_stated(key: str) -> bool:
    """Tell whether a text of a calibration is a statement, with a source of its own."""
    return key.startswith((f"{KEY}[", "software."))


def rests_on(known: Mapping[str, Provenance], name: str, key: str) -> str:
    """Return whether a number of a calibration was measured, carried over, or is believed.

    `known` are the calibrations by name through which it may have been carried over.
    """
    evidence = known[name].evidence.get(key)
    if evidence is None:
        return ""
    giver = (evidence.note or "").removeprefix(AS_IN)
    if giver in known and giver != name and evidence.note != giver:
        return f"carried over from {giver}: {rests_on(known, giver, key)}"
    if evidence.kind in (Kind.MEASURED, Kind.VENDOR):
        return evidence.kind.word
    fitted = evidence.kind is Kind.DERIVED and evidence.source.startswith(FIT_SOURCE)
    alone = BY_KERNELS in (evidence.note or "")
    told_by = "kernels timed alone, and steps" if alone else "measured steps"
    return f"fitted to {told_by}" if fitted else "believed"


def newest_prices(prices: PriceList) -> tuple[Price, ...]:
    """Return the newest row of each purchase option and region."""
    latest = max(price.date_to for price in prices.price)
    asked = sorted({(price.option, price.region) for price in prices.price})
    found = (prices.price_at(region=region, option=option, on=latest) for option, region in asked)
    return tuple(price for price in found if price is not None)


def first_price(prices: PriceList) -> Price | None:
    """Return the cheapest newest rate of the first option on sale that buyers look at."""
    sold = [price for price in newest_prices(prices) if price.usd_per_hour is not None]
    return min(
        (price for price in sold if price.option in FIRST_LOOKED_AT),
        key=lambda price: (FIRST_LOOKED_AT.index(price.option), price.usd_per_hour or 0.0),
        default=None,
    )


_LEAF = str | int | float | datetime.date


def _lines(value: object, provenance: Provenance, path: str, unit: str = "") -> Iterator[SheetLine]:
    if value is None or isinstance(value, Provenance):
        return
    if isinstance(value, Record):
        if isinstance(value, Level):
            yield SheetLine(key=join(path, "topology"), value=tag_of(value))
        for name, key, item in content_of(value):
            own_unit = name.removeprefix(key).removeprefix("_")
            yield from _lines(item, provenance, join(path, key), own_unit)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _lines(item, provenance, join(path, str(key)), unit)
    elif isinstance(value, tuple) and value and not isinstance(value[0], _LEAF):
        for i, item in enumerate(value):
            yield from _lines(item, provenance, f"{path}[{i}]", unit)
    elif value != ():
        yield _leaf(value, provenance, path, unit)


def _leaf(value: object, provenance: Provenance, path: str, unit: str) -> SheetLine:
    items = value if isinstance(value, tuple) else (value,)
    evidence = provenance.evidence.get(f"{path}[0]" if isinstance(value, tuple) else path)
    text = ", ".join(str(item).lower() if isinstance(item, bool) else str(item) for item in items)
    if evidence is None:
        return SheetLine(key=path, value=text)
    return SheetLine(
        key=path,
        value=text if isinstance(value, tuple) else evidence.text,
        kind=evidence.kind.word,
        source=evidence.source,
        range=evidence.range_text,
        note=evidence.note or "",
        number=float(value) if isinstance(value, int | float) else None,
        unit=unit,
    )
