"""Kept runs as people and machines read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trnbench.facts.records import replace
from trnbench.facts.terminal_text import json_shown
from trnbench.facts.units import counted
from trnbench.show.report import Column, Report, columns, draw_rows, figure_or_key
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style
from trnbench.store.recovery import Recovered, RunFault
from trnbench.store.runs import KeptAnswer, KeptRun

_SHOWN = 2
"""So many names of a run stand in a list for people."""


def run_row(run: KeptRun) -> Row:
    """Return the row of a run in a list."""
    return {
        **cells(run, "id verb"),
        "model": list(run.models),
        "instances": list(run.instances),
        **cells(run, "started_at version seconds tag headline command"),
    }


def list_report(runs: Sequence[KeptRun], inputs: Mapping[str, object]) -> Report:
    """Return the report of kept runs, a row each."""
    return Report(
        verb="runs-list",
        inputs=inputs,
        rows=tuple(map(run_row, runs)),
        columns=(
            *columns("id", "started_at", "verb"),
            *columns("model", "instances", "tag", spare=True),
            *columns("headline"),
            *columns("seconds", "version", spare=True),
        ),
        people=lambda report, style: _draw_list(report, style),
    )


def removed_report(runs: Sequence[KeptRun]) -> Report:
    """Return the report of runs that are kept no more."""
    return Report(
        verb="runs-remove",
        inputs={},
        rows=tuple(map(run_row, runs)),
        columns=columns("id", "started_at", "verb", "headline"),
        notes=(f"removed: {len(runs):,}",),
    )


def checked_report(count: int, faults: Sequence[RunFault]) -> Report:
    """Return the report of a check of all kept runs: a row for each that is damaged."""
    notes = (
        ("`trnbench runs recover` brings what can be read into a sound file",)
        if faults
        else (f"sound: {count:,} runs",)
    )
    return _damage_report("runs-check", faults, {"runs": count, "damaged": len(faults)}, notes)


def recovered_report(source: Path, recovered: Recovered) -> Report:
    """Return the report of a recovery: a row for each run or cell that is lost."""
    counts = cells(recovered, "runs cells known")
    summary = {"from": str(source), **counts, "lost": len(recovered.lost)}
    notes = (
        f"brought over from {source}: {counted(recovered.runs, 'run')}, "
        f"{counted(recovered.cells, 'cell')}; there already: {counted(recovered.known, 'run')}; "
        f"lost: {len(recovered.lost):,}",
    )
    return _damage_report("runs-recover", recovered.lost, summary, notes)


def _damage_report(
    verb: str, faults: Sequence[RunFault], summary: Mapping[str, object], notes: tuple[str, ...]
) -> Report:
    return Report(
        verb=verb,
        inputs={},
        rows=tuple(cells(fault, "kind name reason") for fault in faults),
        columns=columns("kind", "name", "reason"),
        summary=summary,
        notes=notes,
        people=lambda report, style: "\n\n".join(
            [*([draw_rows(report, style)] if faults else []), *map(style.wrap, notes)]
        ),
    )


def shown_report(run: KeptRun, answer: KeptAnswer) -> Report:
    """Return the report of one kept run: its rows again, under what is known of it."""
    from trnbench.verbs.runs.charts import kept_charts  # imports every verb that draws: not to list

    return Report(
        verb="runs-show",
        inputs=answer.inputs,
        rows=tuple(answer.rows),
        columns=kept_columns(answer),
        summary={"run": run_row(run), **answer.summary},
        people=lambda report, style: _draw(report, run, style),
        charts=kept_charts(answer),
    )


def kept_columns(answer: KeptAnswer) -> tuple[Column, ...]:
    """Return the columns people saw, with intervals where rows have them."""
    return tuple(
        Column(
            figure=figure_or_key(key),
            interval=any(f"low_{key}" in row for row in answer.rows),
            spare=place > 1,
        )
        for place, key in enumerate(answer.columns)
    )


def export_text(runs: Sequence[Mapping[str, Any]], version: str) -> str:
    document = {"schema": "trnbench.runs-export/1", "version": version, "runs": list(runs)}
    return json_shown(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _draw_list(report: Report, style: Style) -> str:
    if not report.rows:
        return "no runs"
    rows = [
        {
            **row,
            "started_at": str(row["started_at"]).replace("T", " ").removesuffix("Z"),
            "model": _few(row["model"]),
            "instances": _few(row["instances"]),
        }
        for row in report.rows
    ]
    return draw_rows(replace(report, rows=tuple(rows)), style)


def _few(names: object) -> str:
    assert isinstance(names, list)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more or "-"


def _draw(report: Report, run: KeptRun, style: Style) -> str:
    tag = f", tag {run.tag}" if run.tag else ""
    head = [
        style.strong(
            f"{run.id}  {run.verb}  {run.started_at.replace('T', ' ').removesuffix('Z')} UTC{tag}"
        ),
        style.wrap(run.command, "  "),
        f"trnbench {run.version}, {run.seconds:.3g} s, exit code {run.exit_code}; {run.machine}",
        style.wrap(run.headline),
    ]
    return "\n\n".join(["\n".join(head), draw_rows(report, style) if report.rows else "no rows"])
