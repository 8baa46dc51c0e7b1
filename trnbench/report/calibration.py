"""A calibration as people and machines read it: what numbers were and are, and what is in doubt."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trnbench.answers.evidence import fitted_row
from trnbench.answers.row import Row
from trnbench.evidence.calibrate import Calibration, FittedRow, mean_error
from trnbench.report.report import Report, columns, draw_rows
from trnbench.report.text_table import Style, TextTable, draw, percent, wrap

CONVENTIONS = {
    "error": "predicted / measured - 1; mean of absolute values",
    "without row, configuration, stack": "by a fit without the row, without all rows of its "
    "configuration, without any row of its stack",
    "low, high": "ends of 80 % intervals, before the fit and after",
    "data_share": "the part of a number's variance before the fit that the rows took away; below "
    "10 % a number stays assumed, below 2 % it stays where it was",
    "inseparable": "pairs of numbers that rows tell only together: correlation beyond 0.9",
}


def calibration_report(
    calibration: Calibration,
    unused: Sequence[tuple[str, str]],
    inputs: Mapping[str, object],
) -> Report:
    """Return the report of a calibration, a row for each number that may be fitted."""
    owners = sorted({one.parameter.owner for one in calibration.parameters})
    report = Report(
        verb="calibrate",
        inputs=inputs,
        rows=tuple(fitted_row(one) for owner in owners for one in calibration.of(owner).values()),
        columns=(
            *columns("calibration", "number", "prior"),
            *columns("prior_low", "prior_high", spare=True),
            *columns("value"),
            *columns("low", "high", spare=True),
            *columns("data_share"),
        ),
        summary={
            "conventions": CONVENTIONS,
            "fitted": [_fitted_row(row) for row in calibration.rows],
            "unused": [{"id": name, "reason": reason} for name, reason in unused],
            "errors": {name: _errors(rows) for name, rows in _groups(calibration).items()},
            "inseparable": [
                {"one": " ".join(one), "other": " ".join(other), "correlation": value}
                for one, other, value in calibration.inseparable
            ],
            "spread": {
                name: {"low": spread.low, "high": spread.high}
                for name, spread in calibration.spreads.items()
            },
        },
    )
    return replace(report, people=functools.partial(_draw, report, calibration, tuple(unused)))


def _fitted_row(row: FittedRow) -> dict[str, object]:
    return {
        "id": row.row.id,
        "calibration": row.row.stack,
        "measured_s": row.row.measured_s,
        "prior": row.prior,
        "error": row.fitted,
        "without_row": row.without_row,
        "without_configuration": row.without_configuration,
        "without_stack": row.without_stack,
    }


def _groups(calibration: Calibration) -> Mapping[str, tuple[FittedRow, ...]]:
    names = sorted({row.row.stack for row in calibration.rows})
    return {"all": calibration.rows, **{name: calibration.rows_of(name) for name in names}}


def _errors(rows: Sequence[FittedRow]) -> dict[str, float | int | None]:
    stacks = [row.without_stack for row in rows if row.without_stack is not None]
    return {
        "rows": len(rows),
        "prior": mean_error(row.prior for row in rows),
        "error": mean_error(row.fitted for row in rows),
        "without_row": mean_error(row.without_row for row in rows),
        "without_configuration": mean_error(row.without_configuration for row in rows),
        "without_stack": mean_error(stacks) if stacks else None,
    }


def _draw(
    report: Report,
    calibration: Calibration,
    unused: tuple[tuple[str, str], ...],
    style: Style,
) -> str:
    moved = [row for row in report.rows if row["moved"]]
    rest = [row for row in report.rows if not row["moved"]]
    told = sum(row["evidence"] == "derived" for row in moved)
    counted = f"{len(calibration.rows)} rows tell of {told} numbers, and move {len(moved)}"
    blocks = [style.strong(counted)]
    if moved:
        blocks.append(draw_rows(replace(report, rows=tuple(moved)), style))
    if rest:
        blocks.append(_left(rest, style))
    blocks += _together(calibration, style)
    blocks += [style.strong("Errors, predicted / measured - 1"), _error_table(calibration, style)]
    blocks.append(_row_table(calibration, style))
    if unused:
        table = TextTable(headings=("id", "reason"), rows=unused, right=(False, False))
        blocks += [style.strong("Not used"), draw(table, style, indent="  ")]
    return "\n\n".join(blocks)


def _left(rows: Sequence[Row], style: Style) -> str:
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(str(row["calibration"]), []).append(str(row["number"]))
    lines = [style.strong("Told nothing by these rows, and left as they were")]
    lines += [
        wrap(f"{owner}: {', '.join(keys)}", style.width, "  ") for owner, keys in names.items()
    ]
    return "\n".join(lines)


def _together(calibration: Calibration, style: Style) -> list[str]:
    if not calibration.inseparable:
        return []
    lines = [
        f"  {' '.join(one)} with {' '.join(other)}: correlation {value:+.2f}"
        for one, other, value in calibration.inseparable
    ]
    return [style.strong("Told only together"), "\n".join(lines)]


def _error_table(calibration: Calibration, style: Style) -> str:
    headings = ("rows of", "rows", "before", "fitted", "w/o row", "w/o config.", "w/o stack")
    rows = [
        (name, str(found.pop("rows")), *(percent(value) for value in found.values()))
        for name, of in _groups(calibration).items()
        for found in [_errors(of)]
    ]
    table = TextTable(headings=headings, rows=tuple(rows), right=(False, *[True] * 6))
    return draw(table, style, indent="  ")


def _row_table(calibration: Calibration, style: Style) -> str:
    headings = ("row", "before", "fitted", "w/o row", "w/o config.", "w/o stack")
    rows = [
        (
            one.row.id,
            *(percent(value, sign="+") for value in (one.prior, one.fitted, one.without_row)),
            *(percent(value, sign="+") for value in (one.without_configuration, one.without_stack)),
        )
        for one in calibration.rows
    ]
    table = TextTable(headings=headings, rows=tuple(rows), right=(False, *[True] * 5))
    return draw(table, style, indent="  ")
