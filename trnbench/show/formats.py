"""A report in each output format: full precision in base units for machines, or for people."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Mapping

from trnbench import __version__
from trnbench.facts.records import replace
from trnbench.facts.terminal_text import json_shown, markdown_text, shown, shown_lines
from trnbench.show.figures import LOW
from trnbench.show.report import Column, Report, as_table, draw_rows
from trnbench.show.row import Cell
from trnbench.show.text_table import Style, markdown


def _table(report: Report, style: Style) -> str:
    if report.people is not None:
        text = report.people(report, style)
    elif report.rows:
        text = "\n".join([draw_rows(report, style), *(style.faint(n) for n in report.notes)])
    else:
        text = "no rows"
    return shown_lines(text, coloured=style.colour)


def _markdown(report: Report, style: Style) -> str:
    """Return headline, table with intervals, and notes: fit for a comment on a change."""
    verdict = report.summary.get("verdict")
    table = with_intervals(report)
    blocks = [f"**{markdown_text(verdict)}**"] if isinstance(verdict, str) and verdict else []
    blocks.append(markdown(as_table(table)))
    if report.notes:
        blocks.append("\n".join(f"- {markdown_text(note)}" for note in report.notes))
    return shown_lines("\n\n".join(blocks))


def with_intervals(report: Report) -> Report:
    """Return the report with the ends of intervals behind their figures."""
    return replace(report, columns=tuple(_with_interval(report, one) for one in report.columns))


def _with_interval(report: Report, column: Column) -> Column:
    """Return the column with the ends of its interval, where rows have them in no other column."""
    low = f"{LOW}{column.key}"
    beside = any(other.key == low for other in report.columns)
    known = any(row.get(low) is not None for row in report.rows)
    return replace(column, interval=True) if known and not beside else column


def _json(report: Report, style: Style) -> str:
    document = {
        "schema": f"trnbench.{report.verb}/1",
        "version": __version__,
        "inputs": finite(report.inputs),
        "rows": [finite(row) for row in report.rows],
        "summary": finite(report.summary),
    }
    return json_shown(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def _jsonl(report: Report, style: Style) -> str:
    return "\n".join(map(_one_line, report.rows))


def _one_line(value: object) -> str:
    return json_shown(json.dumps(finite(value), ensure_ascii=False, allow_nan=False))


def _csv(report: Report, style: Style) -> str:
    keys = list(dict.fromkeys(key for row in report.rows for key in row))
    out = io.StringIO()
    import csv

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
            return repr(value) if math.isfinite(value) else ""
        case int():
            return str(value)
        case str():
            return _defused(shown(value))
        case _:
            return _one_line(value)


def _defused(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: with an apostrophe before it."""
    return f"'{text}" if len(text) > 1 and text[0] in _FORMULA and not _NUMBER(text) else text


def finite(value: object) -> object:
    """Return `value` with what JSON cannot hold (infinity, NaN, tuples) replaced."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case _:
            return value


_FORMULA = "=+-@"
_NUMBER = re.compile(r"[+-][\d.,]+(e[+-]?\d+)?( ?%)?", re.IGNORECASE).fullmatch

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
