"""A data file as a person wants to read it: values with kind and source, drawn, explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent

from trnbench.facts.calibration.supports import KEY
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.calibration.transfer import AS_IN
from trnbench.facts.catalog.provenance import Provenance
from trnbench.facts.hardware.figures import SheetFigure
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.prices.price import PriceList
from trnbench.facts.records import asdict
from trnbench.facts.units import Dimension, show, significant, unit_scale
from trnbench.show.drawing import topology
from trnbench.show.report import Report, columns
from trnbench.show.row import Row, cells
from trnbench.show.sheet_table import Sheet, SheetLine, lines_of, newest_prices
from trnbench.show.text_table import Style

TERABYTES = unit_scale("TB", Dimension.BYTES)
MAX_CELL = 48
"""A longer text stands below its table, not in it."""

_HEAD_KEYS = ("name", "title", "provenance")


def sheet_report(verb: str, sheet: Sheet) -> Report:
    """Return the report of one data file: a row a value; conflicts and sources in the summary."""
    provenance = sheet.record.provenance
    lines = lines_of(sheet)
    return Report(
        verb=verb,
        inputs={"name": sheet.entry.name, "path": provenance.path, "origin": sheet.entry.origin},
        rows=tuple(asdict(line) for line in lines),
        columns=columns("key", "value", "kind", "source", "range", "note", "rests_on"),
        summary={
            "figures": {figure.key: figure.value for figure in sheet.figures},
            "parameters": dict(sheet.parameters),
            "prices": [] if sheet.prices is None else list(_price_rows(sheet.prices)),
            "conflicts": [asdict(conflict) for conflict in provenance.conflicts],
            "claims": [asdict(claim) for claim in provenance.claims],
            "sources": {
                name: {"title": source.title, "date": source.date.isoformat(), "url": source.url}
                for name, source in provenance.sources.items()
            },
        },
        people=lambda _, style: _draw(sheet, lines, style),
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
    stack = sheet.record if isinstance(sheet.record, TrainingStack) else None
    if stack is not None:
        blocks += [style.strong("What its software runs"), draw_supports(stack, style)]
        lines = tuple(line for line in lines if not line.key.startswith(KEY))
    blocks += [style.strong("Values"), *draw_sections(lines, style)]
    if provenance.conflicts:
        blocks += [style.strong("Where sources disagree"), *draw_conflicts(provenance, style)]
    if provenance.claims:
        claims = (f'"{claim.text}" [{claim.source}]' for claim in provenance.claims)
        blocks += [style.strong("What they claim"), style.lines(claims, "  ")]
    blocks += [style.strong("Sources"), draw_sources(provenance, style)]
    return "\n\n".join(blocks)


def _heading(sheet: Sheet, style: Style) -> str:
    record, entry = sheet.record, sheet.entry
    title = getattr(record, "title", "")
    lines = [f"{style.strong(record.name)}  {title}", style.faint(f"{entry.path} ({entry.origin})")]
    if isinstance(record, Instance):
        sold = (
            f"sold as {', '.join(record.purchase)}" if record.purchase else "not sold by the hour"
        )
        lines.insert(1, f"{record.chips} x {record.chip}, {sold}")
    lines += [style.faint(f"overrides {path}") for path in entry.hides]
    return "\n".join(lines)


def _draw_figures(figures: Sequence[SheetFigure], style: Style) -> str:
    rows = (
        (one.label, figure_text(one.value, one.dimension, one.key), one.kind.word)
        for one in figures
    )
    return style.table(("figure", ">value", "kind"), rows, "  ")


def figure_text(value: float, dimension: Dimension | None, key: str) -> str:
    """Return a figure's value for people; disks are counted in powers of ten."""
    if dimension is None:
        return significant(value)
    if key.startswith("host_local_storage"):
        return show(value, dimension, scale=TERABYTES)
    return show(value, dimension)


def _draw_parameters(parameters: Sequence[tuple[str, int]], style: Style) -> str:
    rows = ((block, f"{count:,}") for block, count in parameters)
    return style.table(("block", ">parameters"), rows, "  ")


def _price_rows(prices: PriceList) -> Iterator[Row]:
    for price in newest_prices(prices):
        yield {
            **cells(price, "purchase=option region usd_per_hour"),
            "price_date": price.date_to.isoformat(),
            "terms": price.terms,
            **cells(prices.source_of(price), "source=title"),
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
    table = style.table(("option", "region", ">USD/h", "seen", "terms"), rows, "  ")
    remarks = dict.fromkeys(
        f"{price.option}, {price.region}: {price.note}" for price in found if price.note
    )
    notes = [style.faint(style.wrap(remark, "    ")) for remark in remarks]
    return "\n".join([table, *notes])


def draw_sections(lines: Sequence[SheetLine], style: Style) -> Iterator[str]:
    """Yield one block of text for each top-level table of the file."""
    sections: dict[str, list[SheetLine]] = {}
    for line in lines:
        if line.key not in _HEAD_KEYS:
            top, _, rest = line.key.partition(".")
            sections.setdefault(top if rest else "", []).append(line)
    width = 6 if any(line.rests_on for line in lines) else 5
    for top, members in sections.items():
        headings = (top or "general", "value", "kind", "source", "range", "rests on")[:width]
        rows = (
            (_within(line), _short(line.value), line.kind, line.source, line.range, line.rests_on)
            for line in members
        )
        table = style.table(headings, (row[:width] for row in rows), "  ")
        remarks = [(_within(line), line.note) for line in members if _is_news(line)]
        remarks += [(_within(line), line.value) for line in members if not _short(line.value)]
        notes = [style.wrap(f"{key}: {text}", "    ") for key, text in remarks]
        yield "\n".join([table, *map(style.faint, notes)])


def _is_news(line: SheetLine) -> bool:
    """Tell whether a line's note says more than what the line rests on."""
    return bool(line.note) and not (line.rests_on and line.note.startswith(AS_IN))


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
                style.wrap(f"{style.strong(conflict.field)}: used is {conflict.used}", "  "),
                *readings,
                style.wrap(conflict.why, "    "),
            ]
        )


def draw_supports(stack: TrainingStack, style: Style) -> str:
    """Return what a stack's software runs, refuses, and was never seen to run, with the sources."""
    told = [f"state: {stack.state}"] if stack.state else []
    for line in stack.supports:
        first = stack.support_of(line.features[0])
        words = f" ({first.words})" if first and first.words else ""
        told.append(f"{line.status}: {', '.join(line.features)}{words}")
    return style.lines(told, "  ")


def draw_sources(provenance: Provenance, style: Style) -> str:
    """Return the list of sources with dates and addresses."""
    return style.lines(
        (
            f"[{name}] {source.title}, {source.date.isoformat()}"
            + (f", {source.url}" if source.url else "")
            for name, source in provenance.sources.items()
        ),
        "  ",
    )
