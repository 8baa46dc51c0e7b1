"""A data file as a person wants to read it: values with kind and source, drawn, explained."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator, Sequence
from textwrap import indent

import attrs

from trnbench.catalog.document import Documented
from trnbench.catalog.provenance import Provenance, join
from trnbench.catalog.schema import keys_of
from trnbench.catalog.search import Entry
from trnbench.report.drawing import topology
from trnbench.report.report import Column, Report, Row
from trnbench.report.text_table import Style, TextTable, draw, wrap
from trnbench.spec.chip import Chip
from trnbench.spec.figures import Figure
from trnbench.spec.instance import Instance
from trnbench.spec.price import Price, PriceList
from trnbench.units import Dimension, show, significant, unit_scale

TERABYTES = unit_scale("TB", Dimension.BYTES)
MAX_CELL = 48
"""A longer text stands below its table, not in it."""

_HEAD_KEYS = ("name", "title", "provenance")


@attrs.frozen(kw_only=True)
class Line:
    """One value of a file: key path, text as written, what it rests on, and in base units.

    `unit` names the base unit as attribute names do (`bytes_per_s`); none for counts.
    """

    key: str
    value: str
    kind: str = ""
    source: str = ""
    range: str = ""
    note: str = ""
    number: float | None = None
    unit: str = ""


@attrs.frozen(kw_only=True)
class Sheet:
    """A named data file in full, with the figures and files that belong to it."""

    entry: Entry
    record: Documented
    figures: tuple[Figure, ...] = ()
    chip: Chip | None = None
    prices: PriceList | None = None
    parameters: tuple[tuple[str, int], ...] = ()


def lines_of(record: object, provenance: Provenance) -> tuple[Line, ...]:
    """Return every value of a record in schema order, numbers with their evidence."""
    return tuple(_lines(record, provenance, ""))


def sheet_report(verb: str, sheet: Sheet) -> Report:
    """Return the report of one data file: a row a value; conflicts and sources in the summary."""
    provenance = sheet.record.provenance
    lines = lines_of(sheet.record, provenance)
    return Report(
        verb=verb,
        inputs={"name": sheet.entry.name, "path": provenance.path, "origin": sheet.entry.origin},
        rows=tuple(attrs.asdict(line) for line in lines),
        columns=tuple(
            Column(key=key, title=key)
            for key in ("key", "value", "kind", "source", "range", "note")
        ),
        summary={
            "figures": {figure.key: figure.value for figure in sheet.figures},
            "parameters": dict(sheet.parameters),
            "prices": [] if sheet.prices is None else list(_price_rows(sheet.prices)),
            "conflicts": [attrs.asdict(conflict) for conflict in provenance.conflicts],
            "claims": [attrs.asdict(claim) for claim in provenance.claims],
            "sources": {
                name: {"title": source.title, "date": source.date.isoformat(), "url": source.url}
                for name, source in provenance.sources.items()
            },
        },
        people=functools.partial(_draw, sheet, lines),
    )


def _draw(sheet: Sheet, lines: tuple[Line, ...], style: Style) -> str:
    provenance = sheet.record.provenance
    blocks = [_heading(sheet, style)]
    if sheet.figures:
        blocks += [style.strong("At a glance"), _draw_figures(sheet.figures, style)]
    if isinstance(sheet.record, Instance):
        blocks += [style.strong("Topology"), indent(topology(sheet.record), "  ")]
    if sheet.parameters:
        blocks += [style.strong("Parameters"), _draw_parameters(sheet.parameters, style)]
    prices = sheet.record if isinstance(sheet.record, PriceList) else sheet.prices
    if prices is not None:
        blocks += [style.strong("Published prices, newest first"), draw_prices(prices, style)]
    blocks += [style.strong("Values"), *draw_sections(lines, style)]
    if provenance.conflicts:
        blocks += [style.strong("Where sources disagree"), *draw_conflicts(provenance, style)]
    if provenance.claims:
        blocks += [style.strong("What they claim"), draw_claims(provenance, style)]
    blocks += [style.strong("Sources"), draw_sources(provenance, style)]
    return "\n\n".join(blocks)


def _heading(sheet: Sheet, style: Style) -> str:
    record, entry = sheet.record, sheet.entry
    title = getattr(record, "title", "")
    lines = [f"{style.strong(record.name)}  {title}", style.faint(f"{entry.path} ({entry.origin})")]
    if isinstance(record, Instance):
        lines.insert(
            1, f"{record.chips} x {record.chip}, sold as {', '.join(record.purchase) or 'nothing'}"
        )
    lines += [style.faint(f"hides {path}") for path in entry.hides]
    return "\n".join(lines)


def _draw_figures(figures: Sequence[Figure], style: Style) -> str:
    rows = tuple(
        (
            figure.label,
            figure_text(figure.value, figure.dimension, figure.key),
            figure.kind.word,
        )
        for figure in figures
    )
    table = TextTable(headings=("figure", "value", "kind"), rows=rows, right=(False, True, False))
    return draw(table, style, indent="  ")


def figure_text(value: float, dimension: Dimension | None, key: str) -> str:
    """Return a figure's value for people; disks are counted in powers of ten."""
    if dimension is None:
        return significant(value)
    if key.startswith("host_local_storage"):
        return show(value, dimension, scale=TERABYTES)
    return show(value, dimension)


def _draw_parameters(parameters: Sequence[tuple[str, int]], style: Style) -> str:
    rows = tuple((block, f"{count:,}") for block, count in parameters)
    table = TextTable(headings=("block", "parameters"), rows=rows, right=(False, True))
    return draw(table, style, indent="  ")


def newest_prices(prices: PriceList) -> tuple[Price, ...]:
    """Return the newest row of each purchase option and region."""
    latest = max(price.date_to for price in prices.price)
    asked = sorted({(price.option, price.region) for price in prices.price})
    found = (prices.price_at(region=region, option=option, on=latest) for option, region in asked)
    return tuple(price for price in found if price is not None)


def _price_rows(prices: PriceList) -> Iterator[Row]:
    for price in newest_prices(prices):
        source = prices.source_of(price)
        yield {
            "purchase": price.option,
            "region": price.region,
            "usd_per_hour": price.usd_per_hour,
            "price_date": price.date_to.isoformat(),
            "terms": price.terms,
            "source": None if source is None else source.title,
            "note": price.note,
        }


def draw_prices(prices: PriceList, style: Style) -> str:
    """Return the newest published rate of each region and purchase option."""
    found = newest_prices(prices)
    rows = tuple(
        (
            price.option,
            price.region,
            "none" if price.usd_per_hour is None else f"{price.usd_per_hour:,.4f}",
            price.date_to.isoformat(),
            price.terms or "",
        )
        for price in found
    )
    table = TextTable(
        headings=("option", "region", "USD/h", "seen", "terms"),
        rows=rows,
        right=(False, False, True, False, False),
    )
    remarks = dict.fromkeys(
        f"{price.option}, {price.region}: {price.note}" for price in found if price.note
    )
    notes = [style.faint(wrap(remark, style.width, "    ")) for remark in remarks]
    return "\n".join([draw(table, style, indent="  "), *notes])


def draw_sections(lines: Sequence[Line], style: Style) -> Iterator[str]:
    """Yield one block of text for each top-level table of the file."""
    sections: dict[str, list[Line]] = {}
    for line in lines:
        if line.key not in _HEAD_KEYS:
            top, _, rest = line.key.partition(".")
            sections.setdefault(top if rest else "", []).append(line)
    for top, members in sections.items():
        rows = tuple(
            (_within(line), _short(line.value), line.kind, line.source, line.range)
            for line in members
        )
        table = TextTable(
            headings=(top or "general", "value", "kind", "source", "range"),
            rows=rows,
            right=(False,) * 5,
        )
        remarks = [(_within(line), line.note) for line in members if line.note]
        remarks += [(_within(line), line.value) for line in members if not _short(line.value)]
        notes = [wrap(f"{key}: {text}", style.width, "    ") for key, text in remarks]
        yield "\n".join([draw(table, style, indent="  "), *map(style.faint, notes)])


def _within(line: Line) -> str:
    return line.key.partition(".")[2] or line.key


def _short(value: str) -> str:
    """Return the value where it fits a table; longer texts stand below it."""
    return value if len(value) <= MAX_CELL else ""


def draw_conflicts(provenance: Provenance, style: Style) -> Iterator[str]:
    """Yield one block of text for each disagreement between sources."""
    for conflict in provenance.conflicts:
        readings = [f"      {reading.value}  [{reading.source}]" for reading in conflict.values]
        yield "\n".join(
            [
                wrap(f"{style.strong(conflict.field)}: used is {conflict.used}", style.width, "  "),
                *readings,
                wrap(conflict.why, style.width, "    "),
            ]
        )


def draw_claims(provenance: Provenance, style: Style) -> str:
    """Return what the sources assert in words."""
    return "\n".join(
        wrap(f'"{claim.text}" [{claim.source}]', style.width, "  ") for claim in provenance.claims
    )


def draw_sources(provenance: Provenance, style: Style) -> str:
    """Return the list of sources with dates and addresses."""
    return "\n".join(
        wrap(
            f"[{name}] {source.title}, {source.date.isoformat()}"
            + (f", {source.url}" if source.url else ""),
            style.width,
            "  ",
        )
        for name, source in provenance.sources.items()
    )


def _lines(value: object, provenance: Provenance, path: str, unit: str = "") -> Iterator[Line]:
    if value is None or isinstance(value, Provenance):
        return
    if attrs.has(type(value)):
        topology = getattr(type(value), "topology", None)
        if topology is not None:
            yield Line(key=join(path, "topology"), value=str(topology))
        for name, key in keys_of(type(value)).items():
            own_unit = name.removeprefix(key).removeprefix("_")
            yield from _lines(getattr(value, name), provenance, join(path, key), own_unit)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _lines(item, provenance, join(path, str(key)), unit)
    elif isinstance(value, tuple) and value and not _is_leaf(value[0]):
        for i, item in enumerate(value):
            yield from _lines(item, provenance, f"{path}[{i}]", unit)
    elif value != ():
        yield _leaf(value, provenance, path, unit)


def _is_leaf(value: object) -> bool:
    return isinstance(value, str | int | float | datetime.date)


def _leaf(value: object, provenance: Provenance, path: str, unit: str) -> Line:
    items = value if isinstance(value, tuple) else (value,)
    evidence = provenance.evidence.get(f"{path}[0]" if isinstance(value, tuple) else path)
    text = ", ".join(_text(item) for item in items)
    if evidence is None:
        return Line(key=path, value=text)
    return Line(
        key=path,
        value=text if isinstance(value, tuple) else evidence.text,
        kind=evidence.kind.word,
        source=evidence.source,
        range=evidence.range_text,
        note=evidence.note or "",
        number=float(value) if isinstance(value, int | float) else None,
        unit=unit,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
