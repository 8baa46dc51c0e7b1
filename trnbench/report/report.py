"""What a verb hands out: rows for machines, and how people see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trnbench.answers.row import Cell, Row
from trnbench.report.text_table import Style, TextTable, draw, shortened, width_of, wrap
from trnbench.units import Dimension, Scale, scale_for, show, significant


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column people see: the row key, its heading, and the dimension of its numbers.

    One prefix serves the whole column and stands in the heading, unless `own_prefix` is set. A
    `spare` column is left out where a terminal is too narrow.
    """

    key: str
    title: str
    dimension: Dimension | None = None
    digits: int = 4
    own_prefix: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer of one verb, ready for every output format.

    `people` draws it for a terminal where a table of `columns` is not what a person wants.
    """

    verb: str
    inputs: Mapping[str, object]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    summary: Mapping[str, object] = field(default_factory=dict)
    people: Callable[[Style], str] | None = None
    notes: tuple[str, ...] = ()


def as_table(report: Report) -> TextTable:
    """Return the rows as people see them: headings with units, numbers rounded."""
    scales = [_column_scale(column, report.rows) for column in report.columns]
    headings = [
        f"{column.title} ({scale.unit})" if scale and scale.unit else column.title
        for column, scale in zip(report.columns, scales, strict=True)
    ]
    cells = [
        [
            _shown(row.get(column.key), column, scale)
            for column, scale in zip(report.columns, scales, strict=True)
        ]
        for row in report.rows
    ]
    numeric = [
        any(_is_number(row.get(column.key)) for row in report.rows) for column in report.columns
    ]
    return TextTable(
        headings=tuple(headings),
        rows=tuple(tuple(row) for row in cells),
        right=tuple(numeric),
    )


def draw_rows(report: Report, style: Style) -> str:
    """Return the table; a narrow terminal gets fewer columns, and is told which are missing."""
    table = as_table(report)
    missing: list[str] = []
    columns = list(report.columns)
    for column in reversed(report.columns):
        if style.terminal and column.spare and width_of(table) > style.width:
            columns.remove(column)
            missing.insert(0, column.title)
            table = as_table(replace(report, columns=tuple(columns)))
    if style.terminal:
        table = shortened(table, style.width)
    lines = [draw(table, style)]
    if missing:
        told = f"too narrow for: {', '.join(missing)} (--format csv has all)"
        lines += map(style.faint, wrap(told, style.width, "").splitlines())
    return "\n".join(lines)


def _is_number(value: Cell) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _column_scale(column: Column, rows: Sequence[Row]) -> Scale | None:
    if column.dimension is None or column.own_prefix:
        return None
    values = sorted(
        abs(value)
        for row in rows
        if isinstance(value := row.get(column.key), int | float) and value
    )
    return scale_for(values[len(values) // 2] if values else 1.0, column.dimension)


def _shown(value: Cell, column: Column, scale: Scale | None) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            if column.dimension is None:
                return (
                    significant(value, column.digits) if isinstance(value, float) else f"{value:,}"
                )
            if scale is None:
                return show(value, column.dimension, digits=column.digits)
            return significant(value / scale.factor, column.digits)
        case str():
            return value
        case Mapping():
            return ", ".join(f"{key} {item}" for key, item in value.items())
        case _:
            return ", ".join(map(str, value))
