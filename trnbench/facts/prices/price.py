"""Dated prices of one instance type, and the price in force on a day."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from trnbench.errors import UnknownNameError
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Source, Sourced
from trnbench.facts.catalog.quantity import UsdPerHour
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import Record, replace

ANY = "any"
_ROW = re.compile(r"^price\[(\d+)\]")


class Price(Record):
    """A published rate per instance-hour; without `usd_per_hour`, a search without a result.

    The rate was read between `date_from` and `date_to`, the widest known bounds, and applies from
    `date_to` on. A second-hand rate has the replaced rate inside its range.
    """

    region: str
    option: Literal[PurchaseOption, "any"]
    terms: str | None = None
    usd_per_hour: UsdPerHour | None = None
    low_usd_per_hour: UsdPerHour | None = None
    """Range of a spot rate, which is the median of `zones` zones."""
    high_usd_per_hour: UsdPerHour | None = None
    zones: int | None = None
    date_from: datetime.date
    date_to: datetime.date
    unchanged_since: datetime.date | None = None
    """Earlier day with the same rate."""
    note: str | None = None

    def __post_init__(self) -> None:
        if self.date_from > self.date_to:
            raise ValueError("`date_from` is after `date_to`")
        if self.unchanged_since is not None and self.unchanged_since > self.date_from:
            raise ValueError("`unchanged_since` is after `date_from`")
        ends = (self.low_usd_per_hour, self.usd_per_hour, self.high_usd_per_hour)
        rates = [rate for rate in ends if rate is not None]
        if rates != sorted(rates):
            raise ValueError("expected `low` <= `usd_per_hour` <= `high`")

    @property
    def applies_from(self) -> datetime.date:
        """The first day on which the rate is known to hold."""
        return self.unchanged_since or self.date_to

    @property
    def term_years(self) -> int | None:
        """Length of the commitment in years, if `terms` states one ("3 years, no upfront")."""
        stated = re.match(r"(\d+) years?\b", self.terms or "")
        return int(stated[1]) if stated else None

    @property
    def flexibility(self) -> tuple[int, bool, str]:
        """Sort key of commitments: the shortest first, then those without upfront payment."""
        terms = self.terms or ""
        return self.term_years or 0, "no upfront" not in terms.casefold(), terms

    def covers(self, region: str, option: str) -> bool:
        return self.region in (region, ANY) and self.option in (option, ANY)


class PriceList(Sourced):
    """All published prices of one instance type, in the file's order."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    adds: bool = False
    """True when the rows extend the hidden file of the same name."""
    price: tuple[Price, ...]

    def __post_init__(self) -> None:
        if not self.price:
            raise ValueError("`price` has one row or more: [[price]]")

    def rows(self, *, region: str, option: str) -> tuple[Price, ...]:
        return tuple(row for row in self.price if row.covers(region, option))

    def price_at(
        self, *, region: str, option: str, on: datetime.date, term_years: int | None = None
    ) -> Price | None:
        """The newest row that applies on that day, or None.

        Of rows with the same `date_to` the later `date_from` is newer, then the later row in the
        file. A row without a rate counts, as the end of a rate. Of commitments with a stated length
        those of `term_years` are preferred, and of several the least binding.
        """
        rows = self.rows(region=region, option=option)
        applying = [row for row in rows if row.applies_from <= on]
        # Without a stated length the newest row wins outright; commitments of several lengths are
        # all on sale at once, so the choice among them is by length.
        newest = _newest(applying)
        if newest is None or newest.term_years is None:
            return newest
        terms = dict.fromkeys(row.terms for row in applying)
        each = [_newest([row for row in applying if row.terms == term]) for term in terms]
        stated = [row for row in each if row is not None and row.term_years is not None]
        wanted = [row for row in stated if row.term_years == term_years] or stated
        return min(wanted, key=lambda row: row.flexibility)

    def source_of(self, row: Price) -> Source | None:
        evidence = self.provenance.evidence.get(f"price[{self.price.index(row)}].usd_per_hour")
        return self.provenance.sources.get(evidence.source) if evidence else None


def _newest(rows: Sequence[Price]) -> Price | None:
    return max(reversed(rows), key=lambda row: (row.date_to, row.date_from), default=None)


def load_prices(catalog: Catalog, name: str) -> PriceList:
    entry = catalog.find("prices", name)
    return _joined(catalog, (entry.path, *entry.hides))


def _joined(catalog: Catalog, paths: Sequence[Path]) -> PriceList:
    """The first file; if it adds, after the rows of the next files."""
    own = load_once(catalog, paths[0], PriceList)
    if not own.adds or not paths[1:]:
        return own
    under = _joined(catalog, paths[1:])
    first = len(under.price)
    # Two files may mean different things by one id of a source.
    ids = {source: f"{source} in {own.provenance.path}" for source in own.provenance.sources}
    moved = {
        _ROW.sub(lambda row: f"price[{first + int(row[1])}]", path): replace(
            evidence, source=ids[evidence.source]
        )
        for path, evidence in own.provenance.evidence.items()
    }
    sources = {ids[name]: source for name, source in own.provenance.sources.items()}
    return replace(
        under,
        aliases=tuple(dict.fromkeys((*under.aliases, *own.aliases))),
        price=(*under.price, *own.price),
        provenance=replace(
            under.provenance,
            sources={**under.provenance.sources, **sources},
            evidence={**under.provenance.evidence, **moved},
        ),
    )


def find_prices(catalog: Catalog, name: str) -> PriceList | None:
    """Published prices of an instance type; None if there are none."""
    try:
        return load_prices(catalog, name)
    except UnknownNameError:
        return None
