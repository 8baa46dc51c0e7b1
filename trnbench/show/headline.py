"""An answer in one line: its verdict, or the first figures that matter most for its verb."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.show.figures import figure_of
from trnbench.show.report import Report, cell_text

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
    """Return what a list of answers shows of one."""
    verdict = report.summary.get("verdict")
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
