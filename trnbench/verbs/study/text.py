"""Studies as people and machines read them: every cell, a pivot, the best by group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trnbench.errors import UnknownNameError, did_you_mean
from trnbench.facts.records import replace
from trnbench.facts.units import counted
from trnbench.facts.workload.study import Cell, Study, axis_of
from trnbench.show.figures import FIGURES, HIGH, LOW, Figure
from trnbench.show.report import Column, Report, cell_text, draw_rows, figure_or_key
from trnbench.show.row import Row
from trnbench.show.text_table import Style
from trnbench.store.studies import KeptCell
from trnbench.verbs.study.question import StudyView

MORE_IS_BETTER = frozenset(
    (
        *("mfu", "hfu", "tokens_per_s", "sequences_per_s", "goodput", "utilization"),
        *("flop_per_s", "busbw_bytes_per_s", "algbw_bytes_per_s", "learned", "efficiency"),
        *("fit_probability", "on_time_probability", "of_bound"),
    )
)
"""Figures of which the largest is the best; of all others the smallest."""
SHADES = " .:-=+*#%@"
_SHOWN = 60


def study_report(
    study: Study, cells: Sequence[tuple[Cell, KeptCell | None]], view: StudyView
) -> Report:
    """Return the report of a study: a row for every row of every cell that was answered."""
    rows = tuple(row for cell, kept in cells if kept for row in cell_rows(cell, kept))
    failed = [(cell, kept) for cell, kept in cells if kept and kept.reason is not None]
    done = sum(kept is not None for _, kept in cells) - len(failed)
    left = len(cells) - done - len(failed)
    line = f"{counted(len(cells), 'cell')}: {done:,} done"
    line += f", {len(failed):,} failed" if failed else ""
    line += f", {left:,} open" if left else ""
    return Report(
        verb="study",
        inputs={"study": study.name, "verb": study.verb, "axes": study.axes, "fixed": study.fixed},
        rows=rows if view.best is None else _best(study, rows, view.best, view.by),
        columns=tuple(Column(figure=figure, spare=True) for figure in _figures(study, rows)),
        summary={
            "verdict": line,
            "cells": len(cells),
            "done": done,
            "failed": [{"cell": _label(cell), "reason": kept.reason} for cell, kept in failed],
            "open": left,
        },
        notes=(
            *(f"failed: {_label(cell)}: {kept.reason}" for cell, kept in failed[:_SHOWN]),
            *(_not_there(study, rows) if done and not left else ()),
        ),
        people=lambda report, style: _draw(report, study, view, style),
    )


def _draw(report: Report, study: Study, view: StudyView, style: Style) -> str:
    blocks = [style.strong(f"{study.title}: {report.summary['verdict']}")]
    if view.rows is not None and report.rows:
        blocks.append(_pivot(report, study, view, style))
    elif report.rows:
        shown = replace(report, rows=report.rows[:_SHOWN])
        blocks.append(draw_rows(shown, style))
        if len(report.rows) > _SHOWN:
            left = len(report.rows) - _SHOWN
            blocks.append(style.faint(f"{left:,} more rows (--format csv has all)"))
    blocks += ["\n".join(report.notes)] if report.notes else []
    return "\n\n".join(blocks)


def cell_rows(cell: Cell, kept: KeptCell) -> list[Row]:
    """Return the rows of a cell: those of its answer, behind what it is called on each axis."""
    head: dict[str, Any] = {"cell": _label(cell), **cell.axes}
    if kept.reason is not None:
        return [{**head, "feasible": None, "reasons": [kept.reason]}]
    return [{**head, **row} for row in kept.rows]


def _not_there(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    for key in study.keep:
        if not any(key in row for row in rows):
            yield f"keep: no answer has a figure {key!r}{did_you_mean(key, FIGURES)}"


def _label(cell: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell.axes.items())


def _figures(study: Study, rows: Sequence[Row]) -> list[Figure]:
    """Return the axes, then the figures that cells have, ends of intervals apart."""
    keys = dict.fromkeys(key for row in rows for key in row)
    hidden = {"cell", *(end + key for key in keys for end in (LOW, HIGH))}
    if all(row.get("feasible") is True for row in rows):
        hidden |= {"feasible", "reasons"}
    same = {key for key in keys if _is_same([row.get(key) for row in rows])}
    axes = [Figure(key=name, title=name) for name in study.axes]
    return axes + [
        figure_or_key(key)
        for key in keys
        if key not in hidden and key not in study.axes and (key not in same or len(rows) == 1)
    ]


def _is_same(values: Sequence[object]) -> bool:
    first = str(values[0])
    return all(str(value) == first for value in values)


def _best(study: Study, rows: Sequence[Row], key: str, by: str | None) -> tuple[Row, ...]:
    """Return the row with the best figure, or one for each value of an axis."""
    named = [row for row in rows if _number(row.get(key)) is not None]
    _known(rows, key)
    groups: dict[object, list[Row]] = {}
    for row in named:
        groups.setdefault(row[axis_of(study, by)] if by else None, []).append(row)
    choose = max if key in MORE_IS_BETTER else min
    return tuple(
        choose(group, key=lambda row: _number(row[key]) or 0.0) for group in groups.values()
    )


def _pivot(report: Report, study: Study, view: StudyView, style: Style) -> str:
    assert view.rows is not None
    assert view.columns is not None
    assert view.figure is not None
    down, across = axis_of(study, view.rows), axis_of(study, view.columns)
    _known(report.rows, view.figure)
    places: dict[tuple[object, object], list[float]] = {}
    for row in report.rows:
        value = _number(row.get(view.figure))
        if value is not None:
            places.setdefault((row[down], row[across]), []).append(value)
    means = {place: math.fsum(values) / len(values) for place, values in places.items()}
    heads = dict.fromkeys(row[across] for row in report.rows)
    figure = figure_or_key(view.figure)
    low, high = min(means.values()), max(means.values())

    def text(place: tuple[object, object]) -> str:
        if place not in means:
            return ""
        share = (means[place] - low) / ((high - low) or 1.0)
        shade = SHADES[round(share * (len(SHADES) - 1))] * 2
        return cell_text(means[place], figure) + (f" {shade}" if view.plot else "")

    headings = (f"{down} \\ {across}", *(f">{head}" for head in heads))
    rows = (
        (str(name), *(text((name, head)) for head in heads))
        for name in dict.fromkeys(row[down] for row in report.rows)
    )
    several = any(len(values) > 1 for values in places.values())
    title = f"{figure.title or figure.key}{', mean of the cells of each place' if several else ''}"
    return f"{title}\n{style.table(headings, rows)}"


def _known(rows: Sequence[Mapping[str, object]], key: str) -> None:
    keys = [name for row in rows for name, value in row.items() if _number(value) is not None]
    if key not in keys:
        raise UnknownNameError("figure", key, keys)


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else None  # type: ignore[arg-type]
