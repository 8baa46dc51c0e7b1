"""Dated prices of one instance type, and which of them holds on a day."""

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
    """A published rate per instance-hour, or, without `usd_per_hour`, that none was found.

    The rate was read on a day between `date_from` and `date_to`, the widest bounds of what is
    known, and so applies from `date_to` on; `unchanged_since` is an earlier day with the same rate.
    A spot rate is the median of `zones` zones that range from `low_` to `high_usd_per_hour`; a
    second-hand rate has the one that it replaces inside this range.
    """

    region: str
    option: Literal[PurchaseOption, "any"]
    terms: str | None = None
    usd_per_hour: UsdPerHour | None = None
    low_usd_per_hour: UsdPerHour | None = None
    high_usd_per_hour: UsdPerHour | None = None
    zones: int | None = None
    date_from: datetime.date
    date_to: datetime.date
    unchanged_since: datetime.date | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        """Refuse dates in the wrong order and a rate outside its own range."""
        if self.date_from > self.date_to:
            raise ValueError("`date_from` is after `date_to`")
        if self.unchanged_since is not None and self.unchanged_since > self.date_from:
            raise ValueError("`unchanged_since` is after `date_from`")
        known = (self.low_usd_per_hour, self.usd_per_hour, self.high_usd_per_hour)
        rates = [rate for rate in known if rate is not None]
        if rates != sorted(rates):
            raise ValueError("expected `low` <= `usd_per_hour` <= `high`")

    @property
    def applies_from(self) -> datetime.date:
        """The first day on which the rate is known to hold."""
        return self.unchanged_since or self.date_to

    @property
    def term_years(self) -> int | None:
        """The years that `terms` commit to, where they say so ("3 years, no upfront")."""
        stated = re.match(r"(\d+) years?\b", self.terms or "")
        return int(stated[1]) if stated else None

    @property
    def flexibility(self) -> tuple[int, bool, str]:
        """The order of commitments known side by side: the shortest first, then nothing upfront."""
        terms = self.terms or ""
        return self.term_years or 0, "no upfront" not in terms.casefold(), terms

    def covers(self, region: str, option: str) -> bool:
        """Return whether the row speaks of this region and purchase option."""
        return self.region in (region, ANY) and self.option in (option, ANY)


class PriceList(Sourced):
    """All published prices of one instance type, in the file's order.

    With `adds`, the rows join those of the file of the same name that this one hides.
    """

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    adds: bool = False
    price: tuple[Price, ...]

    def __post_init__(self) -> None:
        """Refuse a list of nothing."""
        if not self.price:
            raise ValueError("`price` has one row or more: [[price]]")

    def rows(self, *, region: str, option: str) -> tuple[Price, ...]:
        """Return the rows of a region and purchase option, in the file's order."""
        return tuple(row for row in self.price if row.covers(region, option))

    def price_at(
        self, *, region: str, option: str, on: datetime.date, term_years: int | None = None
    ) -> Price | None:
        """Return the newest row that applies on that day, or None.

        Of rows with the same `date_to` the one with the later `date_from` is newer, then the one
        further down in the file. A row without a rate counts: it may say that a rate has ended. Of
        commitments that say for how long, those of `term_years` are taken, if there are any, and of
        several the least binding.
        """
        rows = self.rows(region=region, option=option)
        applying = [row for row in rows if row.applies_from <= on]
        newest = _newest(applying)
        if newest is None or newest.term_years is None:
            return newest
        terms = dict.fromkeys(row.terms for row in applying)
        each = [_newest([row for row in applying if row.terms == one]) for one in terms]
        stated = [row for row in each if row is not None and row.term_years is not None]
        wanted = [row for row in stated if row.term_years == term_years] or stated
        return min(wanted, key=lambda row: row.flexibility)

    def source_of(self, row: Price) -> Source | None:
        """Return where the rate of one of this list's rows was read; None if it has no rate."""
        evidence = self.provenance.evidence.get(f"price[{self.price.index(row)}].usd_per_hour")
        return self.provenance.sources.get(evidence.source) if evidence else None


def _newest(rows: Sequence[Price]) -> Price | None:
    return max(reversed(rows), key=lambda row: (row.date_to, row.date_from), default=None)


def load_prices(catalog: Catalog, name: str) -> PriceList:
    """Return the prices of an instance type by name or alias, those read since joined to them."""
    entry = catalog.find("prices", name)
    return _joined(catalog, (entry.path, *entry.hides))


def _joined(catalog: Catalog, paths: Sequence[Path]) -> PriceList:
    """Return the first of the files, with the rows of the next before its own where it adds."""
    own = load_once(catalog, paths[0], PriceList)
    if not own.adds or not paths[1:]:
        return own
    under = _joined(catalog, paths[1:])
    first = len(under.price)
    # Two files may mean different things by one id of a source.
    ids = {one: f"{one} in {own.provenance.path}" for one in own.provenance.sources}
    moved = {
        _ROW.sub(lambda found: f"price[{first + int(found[1])}]", path): replace(
            one, source=ids[one.source]
        )
        for path, one in own.provenance.evidence.items()
    }
    sources = {ids[one]: source for one, source in own.provenance.sources.items()}
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
    """Return the published prices of an instance type, or None where nothing is published."""
    try:
        return load_prices(catalog, name)
    except UnknownNameError:
        return None
