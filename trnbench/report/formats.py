"""A report in each output format: full precision in base units for machines, or for people."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping

from trnbench import __version__
from trnbench.answers.row import Cell
from trnbench.report.report import Report, as_table, draw_rows
from trnbench.report.text_table import Style, markdown


def _table(report: Report, style: Style) -> str:
    if report.people is not None:
        return report.people(style)
    if not report.rows:
        return "no rows"
    return "\n".join([draw_rows(report, style), *(style.faint(n) for n in report.notes)])


def _markdown(report: Report, style: Style) -> str:
    return "\n".join([markdown(as_table(report)), *(f"\n{note}" for note in report.notes)])


def _json(report: Report, style: Style) -> str:
    document = {
        "schema": f"trnbench.{report.verb}/1",
        "version": __version__,
        "inputs": _finite(report.inputs),
        "rows": [_finite(row) for row in report.rows],
        "summary": _finite(report.summary),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _jsonl(report: Report, style: Style) -> str:
    return "\n".join(
        json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) for row in report.rows
    )


def _csv(report: Report, style: Style) -> str:
    keys = list(dict.fromkeys(key for row in report.rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys or [column.key for column in report.columns])
    writer.writerows([_csv_cell(row.get(key)) for key in keys] for row in report.rows)
    return out.getvalue().removesuffix("\n")


def _csv_cell(value: Cell) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return repr(value)
        case str() | int():
            return str(value)
        case _:
            return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: object) -> object:
    """Return `value` with what JSON cannot hold (infinity, NaN, tuples) replaced."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


RENDERERS: Mapping[str, Callable[[Report, Style], str]] = {
    "table": _table,
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
    "markdown": _markdown,
}


def render(report: Report, output_format: str, style: Style) -> bytes:
    """Return the report in one of RENDERERS' formats, ending in a newline unless it is empty."""
    text = RENDERERS[output_format](report, style)
    return (text + "\n").encode() if text else b""
