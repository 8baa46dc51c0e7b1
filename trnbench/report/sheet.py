"""A data file as a person wants to read it: values with kind and source, drawn, explained."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from textwrap import indent

import attrs

from trnbench.answers.row import Row
from trnbench.answers.sheet import Sheet, SheetLine, lines_of, newest_prices
from trnbench.catalog.provenance import Provenance
from trnbench.hardware.figures import SheetFigure
from trnbench.hardware.instance import Instance
from trnbench.prices.price import PriceList
from trnbench.report.drawing import topology
from trnbench.report.report import Report, columns
from trnbench.report.text_table import Style, TextTable, draw, wrap
from trnbench.units import Dimension, show, significant, unit_scale

TERABYTES = unit_scale("TB", Dimension.BYTES)
MAX_CELL = 48
"""A longer text stands below its table, not in it."""

_HEAD_KEYS = ("name", "title", "provenance")


def sheet_report(verb: str, sheet: Sheet) -> Report:
    """Return the report of one data file: a row a value; conflicts and sources in the summary."""
    provenance = sheet.record.provenance
    lines = lines_of(sheet.record, provenance)
    return Report(
        verb=verb,
        inputs={"name": sheet.entry.name, "path": provenance.path, "origin": sheet.entry.origin},
        rows=tuple(attrs.asdict(line) for line in lines),
        columns=columns("key", "value", "kind", "source", "range", "note"),
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


def _draw(sheet: Sheet, lines: tuple[SheetLine, ...], style: Style) -> str:
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


def _draw_figures(figures: Sequence[SheetFigure], style: Style) -> str:
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


def draw_sections(lines: Sequence[SheetLine], style: Style) -> Iterator[str]:
    """Yield one block of text for each top-level table of the file."""
    sections: dict[str, list[SheetLine]] = {}
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


def _within(line: SheetLine) -> str:
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
    """Return the assertions of the sources in words."""
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
