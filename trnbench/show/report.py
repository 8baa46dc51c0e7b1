"""Report of a verb: rows for machines, with columns, texts and charts for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Scale, scale_for, show, significant, unit_scale
from trnbench.show.figures import HIGH, LOW, NOTHING, Figure, figure_of
from trnbench.show.row import Cell, Interval, Row
from trnbench.show.text_table import Style, TextTable, draw, folded, width_of

if TYPE_CHECKING:
    from trnbench.show.charts.record import AnyChart


class Column(Record):
    """A figure in a table.

    With `interval`, the ends stand behind each number. A `spare` column is left out where a
    terminal is too narrow.
    """

    figure: Figure
    interval: bool = False
    spare: bool = False

    @property
    def key(self) -> str:
        return self.figure.key


def columns(*keys: str, interval: bool = False, spare: bool = False) -> tuple[Column, ...]:
    return tuple(Column(figure=figure_of(key), interval=interval, spare=spare) for key in keys)


def figure_or_key(key: str) -> Figure:
    """Return the figure of a key, or one that has no more than the key."""
    try:
        return figure_of(key)
    except KeyError:
        return Figure(key=key, title=key.replace("_", " "))


class Report(Record):
    """The answer of one verb, ready for every output format.

    `people` draws a report for a terminal where a table of `columns` is not what a person wants.
    `charts` are its figures, the most telling one first.
    """

    verb: str
    inputs: Mapping[str, object]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    summary: Mapping[str, object] = field(default_factory=dict)
    people: Callable[[Report, Style], str] | None = None
    notes: tuple[str, ...] = ()
    charts: tuple[AnyChart, ...] = ()


def as_table(report: Report) -> TextTable:
    """Return the rows as people see them: headings with units, numbers rounded."""
    headings: list[str] = []
    scales: list[Scale | None] = []
    scale, before = None, ""
    for column in report.columns:
        figure = column.figure
        if figure.end_of is not None and figure.end_of == before:
            # Right behind its figure, in the same unit: "low" says all.
            title = figure.title.rpartition(", ")[2]
        else:
            before, scale = figure.key, _column_scale(figure, report.rows)
            title = f"{figure.title} ({scale.unit})" if scale and scale.unit else figure.title
            if figure.smaller and scale:
                title = scale.unit
        headings.append(title)
        scales.append(scale)
    return TextTable(
        headings=tuple(headings),
        rows=tuple(
            tuple(
                _cell(row, column, scale)
                for column, scale in zip(report.columns, scales, strict=True)
            )
            for row in report.rows
        ),
        right=tuple(
            not column.interval and _has_number(report.rows, column.key)
            for column in report.columns
        ),
    )


def draw_rows(report: Report, style: Style, *, bold: Collection[int] = ()) -> str:
    """Return the table; a narrow terminal gets fewer columns, and a line names the missing."""
    fitting = fitting_columns(report, style) if style.terminal else report.columns
    missing = [column.figure.title for column in report.columns if column not in fitting]
    table = as_table(replace(report, columns=fitting))
    if style.terminal:
        table, bold = folded(table, style.width, bold)
    lines = [draw(table, style, bold=bold)]
    if missing:
        told = f"hidden, terminal too narrow: {', '.join(missing)} (--all-columns has all)"
        lines += map(style.faint, style.wrap(told).splitlines())
    return "\n".join(lines)


def draw_marked(report: Report, legend: str, style: Style) -> str:
    bold = [place for place, row in enumerate(report.rows) if row.get("mark") == "*"]
    table = replace(report, columns=fitting_columns(report, style))
    return f"{draw_rows(table, style, bold=bold)}\n{style.faint(style.wrap(legend))}"


def fitting_columns(report: Report, style: Style) -> tuple[Column, ...]:
    """Return the columns without the last spare ones that a line has no room for."""
    table = as_table(report)
    shown = list(report.columns)
    for column in reversed(report.columns):
        if column.spare and width_of(table) > style.width:
            shown.remove(column)
            table = as_table(replace(report, columns=tuple(shown)))
    return tuple(shown)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _column_scale(figure: Figure, rows: Sequence[Row]) -> Scale | None:
    if figure.smaller:
        return _smaller_scale(figure, _magnitudes(figure, rows))
    if figure.dimension is None or figure.own_prefix:
        return None
    if figure.unit is not None:
        return unit_scale(figure.unit, figure.dimension)
    values = _magnitudes(figure, rows)
    return scale_for(values[len(values) // 2] if values else 1.0, figure.dimension)


def _magnitudes(figure: Figure, rows: Sequence[Row]) -> list[float]:
    return sorted(
        abs(value)
        for row in rows
        if isinstance(value := row.get(figure.key), int | float) and value and math.isfinite(value)
    )


def _has_number(rows: Sequence[Row], key: str) -> bool:
    return any(map(_is_number, [row.get(key) for row in rows]))


def _smaller_scale(figure: Figure, values: Sequence[float]) -> Scale:
    """Return the first unit of which the middle number is at least 1; the smallest if none."""
    middle = values[len(values) // 2] if values else 1.0
    units = [Scale(unit=figure.title, factor=1.0)]
    units += [Scale(unit=title, factor=size) for title, size in figure.smaller]
    return next((unit for unit in units if middle >= unit.factor), units[-1])


def _cell(row: Row, column: Column, scale: Scale | None) -> str:
    figure = column.figure
    value = row.get(figure.key)
    if value is None and row.get("feasible") is False:
        return NOTHING  # not that something is missing: there is nothing that could have it
    text = cell_text(value, figure, scale)
    if not column.interval:
        return text
    low, high = row.get(f"{LOW}{figure.key}"), row.get(f"{HIGH}{figure.key}")
    if low == high:
        return text
    ends = f"{cell_text(low, figure, scale)}-{cell_text(high, figure, scale)}"
    return ends if value is None and low is not None else f"{text} ({ends})"


def interval_text(interval: Interval, figure: Figure) -> str:
    """Return a number with the ends of its interval: 27.4 (24.9-31)."""
    ends = {figure.key: interval.value if interval.known else None, LOW + figure.key: interval.low}
    row = {**ends, HIGH + figure.key: interval.high}
    return _cell(row, Column(figure=figure, interval=True), None)


def cell_text(value: Cell, figure: Figure, scale: Scale | None = None) -> str:
    """Return a cell as people read it: rounded, in the scale of its column or its own prefix."""
    match value:
        case str():  # most cells of a long table
            return figure.words.get(value, value)
        case None:
            return figure.absent
        case bool():
            return figure.flags[0] if value else figure.flags[1]
        case float() if not math.isfinite(value):
            return "unbounded"
        case int() | float():
            if scale is not None:
                return significant(value / scale.factor, figure.digits)
            if figure.dimension is not None:
                return show(value, figure.dimension, digits=figure.digits)
            return significant(value, figure.digits) if isinstance(value, float) else f"{value:,}"
        case Mapping():
            return ", ".join(f"{key} {item}" for key, item in value.items())
        case _:
            return figure.joint.join(map(str, value))


def change_text(factor: float) -> str:
    """A multiple as a change in percent: -12 %."""
    change = 100 * (factor - 1)
    return f"{change:+.1f} %" if abs(change) < 10 else f"{change:+.0f} %"
