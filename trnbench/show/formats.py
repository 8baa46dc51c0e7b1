"""A report in each output format: full precision in base units for machines, or for people."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from trnbench import __version__
from trnbench.errors import EnvironmentFault
from trnbench.facts.catalog.whole_file import put_whole
from trnbench.facts.records import DecodeError, format_json, replace
from trnbench.facts.terminal_text import json_shown, markdown_text, shown, shown_lines
from trnbench.show.figures import HIGH, LOW, figure_of
from trnbench.show.report import (
    Column,
    Report,
    as_table,
    cell_text,
    draw_rows,
    figure_or_key,
)
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
        "inputs": report.inputs,
        "rows": report.rows,
        "summary": report.summary,
    }
    line = _one_line(document)
    try:
        # json.dumps breaks lines in Python code, slow for thousands of rows.
        return format_json(line, indent=2)
    except DecodeError:  # half of a surrogate pair, from a name that is not text
        document = json.loads(line)
        return json_shown(json.dumps(document, indent=2, ensure_ascii=False))


def _jsonl(report: Report, style: Style) -> str:
    return "\n".join(map(_one_line, report.rows))


def _one_line(value: object) -> str:
    return json_shown(json_of(value))


def json_of(value: object, other: Callable[[object], object] | None = None) -> str:
    """Return the JSON of a value; `other` gives plain data of what is neither that nor a mapping.

    Infinity and NaN, which JSON cannot hold, are null.
    """

    def written(value: object) -> object:
        if isinstance(value, Mapping):
            return dict(value)
        if other is None:
            raise TypeError(f"{type(value).__name__} is not plain data")
        return other(value)

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=written)
    except (TypeError, ValueError):
        return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=written)


FEW_COLUMNS = 20
"""Columns of a CSV file where nobody asks for all of them."""

_OF_A_BILL = (
    *("instance", "nodes", "days", "cost_usd", "cheapest_probability", "purchase", "feasible"),
    *("tokens_per_s", "mfu", "tp", "pp", "dp", "cp"),
)
"""Columns of a file about what a run takes and costs."""


def few_columns(report: Report) -> Report:
    """The report with at most 20 keys in each row: what its table shows, with intervals, first."""
    known = dict.fromkeys(key for row in report.rows for key in row)
    if len(known) <= FEW_COLUMNS:
        return report
    named = _OF_A_BILL if {*_OF_A_BILL} <= known.keys() else [one.key for one in report.columns]
    shown_first = [
        key for name in named for key in (name, f"{LOW}{name}", f"{HIGH}{name}") if key in known
    ]
    keys = list(dict.fromkeys([*shown_first, *known]))[:FEW_COLUMNS]
    rows = tuple({key: row[key] for key in keys if key in row} for row in report.rows)
    return replace(report, rows=rows)


def with_all_columns(report: Report) -> Report:
    """The report as a table of every key of its rows."""
    keys = dict.fromkeys(key for row in report.rows for key in row)
    every = tuple(Column(figure=figure_or_key(key)) for key in keys)
    return replace(report, columns=every or report.columns, people=None)


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
    text = RENDERERS[output_format](report, style)
    return (text + "\n").encode() if text else b""


TELLING: Mapping[str, tuple[str, ...]] = {
    "matrix": ("time_s", "utilization"),
    "collective": ("time_s", "busbw_bytes_per_s"),
    "train": ("step_time_s", "mfu", "loss"),
    "plan": ("instance", "nodes", "days", "cost_usd"),
    "fleet": ("job", "instance", "nodes", "cost_usd"),
    "calibrate": ("calibration", "number", "value"),
    "measure": ("kind", "name", "case", "time_s"),
    "numerics": ("precision", "final_loss", "gap"),
}
_LONGEST = 400


def headline(report: Report) -> str:
    """Return the line of an answer in a list of answers."""
    # Where a verdict is a word for machines, the sentence is beside it.
    verdict = report.summary.get("says") or report.summary.get("verdict")
    if isinstance(verdict, Mapping):
        verdict = verdict.get("says")
    if isinstance(verdict, str) and verdict:
        return _short(verdict)
    told = [f"{len(report.rows):,} rows"] if len(report.rows) > 1 else []
    rows = [row for row in report.rows if row.get("feasible") is not False]
    for row in rows[-1:] if report.verb == "train" else rows[:1]:
        for key in TELLING.get(report.verb, ()):
            if row.get(key) is not None:
                figure = figure_of(key)
                text = cell_text(row[key], figure)
                told.append(text if isinstance(row[key], str) else f"{figure.title} {text}")
    if report.rows and not rows:
        reasons = report.rows[0].get("reasons")
        told.append(f"no: {reasons[0]}" if isinstance(reasons, list | tuple) and reasons else "no")
    return _short(", ".join(told))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def write_parquet(path: Path, report: Report) -> None:
    """Write the rows of a report; the file appears whole or not at all."""
    try:
        from pyarrow import Table, parquet
    except ImportError:
        raise EnvironmentFault(
            f"{path}: writing Parquet needs pyarrow",
            hint="pip install 'trnbench[parquet]', or write .csv",
        ) from None
    table = Table.from_pylist([finite(row) for row in report.rows])
    put_whole(path, lambda file: parquet.write_table(table, file))
