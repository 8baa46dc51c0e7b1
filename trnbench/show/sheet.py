"""A data file as a person wants to read it: values with kind and source, drawn, explained."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent

from trnbench.facts.calibration.supports import KEY
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.calibration.transfer import AS_IN, BY_KERNELS, FIT_SOURCE
from trnbench.facts.catalog.document import Documented
from trnbench.facts.catalog.provenance import Kind, Provenance, join
from trnbench.facts.catalog.schema import content_of
from trnbench.facts.catalog.search import Entry
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.fabric import Level
from trnbench.facts.hardware.figures import SheetFigure
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.prices.price import Price, PriceList
from trnbench.facts.records import Record, asdict, replace, tag_of
from trnbench.facts.units import Dimension, show, significant, unit_scale
from trnbench.show.drawing import topology
from trnbench.show.report import Report, columns
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style

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


_STATED = (f"{KEY}[", "software.")
"""Texts of a calibration that are statements, with sources of their own, begin so."""


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
            source=line.source
            or (known.cited.get(line.key, "") if line.key.startswith(_STATED) else ""),
        )
        for line in lines
    )


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
    return bool(line.note) and not (line.rests_on and line.note.startswith(AS_IN))


def _within(line: SheetLine) -> str:
    return line.key.partition(".")[2] or line.key


def _short(value: str) -> str:
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
    """Return features that a stack runs, refuses, or was never seen to run, with sources."""
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
