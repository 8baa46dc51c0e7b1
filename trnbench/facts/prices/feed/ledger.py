"""Newly read rates appended to the user's price lists; existing rows never change."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from trnbench.facts.catalog.provenance import Source
from trnbench.facts.prices.feed.reading import FoundRate
from trnbench.facts.prices.price import Price, PriceList
from trnbench.facts.records import Record
from trnbench.facts.units import significant

RateChange = Literal["new", "changed", "unchanged", "older", "known"]
"""A rate against the known ones: `older` than one of them, or `known` and not written again."""

_SAME = 1e-6
HEAD = "# Rates that `trnbench prices refresh` read; they join those that come with trnbench."


class ComparedRate(Record):
    """A rate with the newest known rate for the same purchase; `source` is its origin."""

    rate: FoundRate
    source: Source
    kind: str
    before: Price | None
    change: RateChange


def compared(
    rates: Sequence[FoundRate], known: PriceList | None, source: Source, kind: str
) -> tuple[ComparedRate, ...]:
    """Rates of one instance type, each compared with the known ones."""
    judged = []
    for rate in rates:
        rows = [
            row
            for row in (known.price if known else ())
            if (row.region, row.option, row.terms or "") == rate.place[1:]
            and row.usd_per_hour is not None
        ]
        before = max(
            (row for row in rows if row.date_to <= rate.day),
            key=lambda row: (row.date_to, row.date_from),
            default=None,
        )
        same = before is not None and _same(before.usd_per_hour, rate.usd_per_hour)
        change: RateChange = "new" if before is None else "unchanged" if same else "changed"
        # A row of a later day makes the rate history; a row of the same day and price, from an
        # earlier refresh, makes it known: such rates are not written again.
        if any(row.date_to > rate.day for row in rows):
            change = "older"
        if any(_is_of(row, rate) for row in rows):
            change = "known"
        own = source if rate.source is None else Source(title=rate.source, date=rate.day)
        judged.append(
            ComparedRate(
                rate=rate,
                source=own,
                kind="measured" if rate.option == "spot" else kind,
                before=before,
                change=change,
            )
        )
    return tuple(judged)


def _is_of(row: Price, rate: FoundRate) -> bool:
    return (
        row.date_to == rate.day
        and _same(row.usd_per_hour, rate.usd_per_hour)
        and _same(row.low_usd_per_hour, rate.low_usd_per_hour)
        and _same(row.high_usd_per_hour, rate.high_usd_per_hour)
    )


def _same(left: float | None, other: float | None) -> bool:
    if left is None or other is None:
        return left is other
    return abs(left - other) <= _SAME * other


def price_file_head(name: str, title: str) -> str:
    heading = f"{title}, USD per hour"
    return f'{HEAD}\nname = "{name}"\ntitle = {_text(heading)}\nadds = true\nkind = "vendor"\n'


def appended(text: str, known: Mapping[str, Source], rates: Sequence[ComparedRate]) -> str:
    """Text of a price list with rates appended; `known` are its existing sources."""
    ids = {source: name for name, source in known.items()}
    lines = [text.rstrip("\n")]
    for rate in rates:
        if rate.source not in ids:
            ids[rate.source] = _id(rate.source, ids.values())
            lines += ["", f"[sources.{ids[rate.source]}]", f"title = {_text(rate.source.title)}"]
            lines.append(f"date = {rate.source.date}")
            lines += [f"url = {_text(rate.source.url)}"] if rate.source.url else []
    for rate in rates:
        lines += ["", "[[price]]", *_row(rate, ids[rate.source])]
    return "\n".join(lines) + "\n"


def _row(compared_rate: ComparedRate, source: str) -> list[str]:
    rate = compared_rate.rate
    cells: dict[str, str | None] = {
        "region": _text(rate.region),
        "option": _text(rate.option),
        "terms": _text(rate.terms) if rate.terms else None,
        "usd_per_hour": _usd(rate.usd_per_hour),
        "low": _usd(rate.low_usd_per_hour),
        "high": _usd(rate.high_usd_per_hour),
        "zones": str(rate.zones) if rate.zones else None,
        "date_from": str(rate.day),
        "date_to": str(rate.day),
        "unchanged_since": _since(compared_rate),
        "note": _text(rate.note) if rate.note else None,
        "source": _text(source),
        "kind": _text(compared_rate.kind) if compared_rate.kind != "vendor" else None,
    }
    return [f"{key} = {cell}" for key, cell in cells.items() if cell is not None]


def _since(rate: ComparedRate) -> str | None:
    """Earliest day of the rate, by the seller or by the known rows; None for the day of reading."""
    days: list[datetime.date] = []
    if rate.rate.unchanged_since is not None:
        days.append(rate.rate.unchanged_since)
    if rate.change == "unchanged" and rate.before is not None:
        days.append(rate.before.applies_from)
    return str(min(days)) if days and min(days) < rate.rate.day else None


def _usd(rate: float | None) -> str | None:
    return None if rate is None else _text(f"{significant(rate, 9).replace(',', '')} USD/h")


def _text(text: str | None) -> str:
    return json.dumps(text or "", ensure_ascii=False).replace("\x7f", "\\u007f")


def _id(source: Source, taken: Iterable[str]) -> str:
    """A unique short id of a source: its title in plain letters, and its date."""
    used = set(taken)
    words = re.sub(r"[^a-z0-9]+", "-", source.title.casefold()).strip("-")[:40].strip("-")
    first = f"{words or 'source'}-{source.date}"
    return next(
        name
        for number in range(1, len(used) + 2)
        if (name := first if number == 1 else f"{first}-{number}") not in used
    )
