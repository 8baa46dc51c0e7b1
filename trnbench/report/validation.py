"""Measurements beside predictions, as people and machines read them: rows, errors, a scatter."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from trnbench.answers.evidence import ScoredSet, comparison_row
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.statistics import Errors, Summary
from trnbench.report.plot import PlotAxis, PlotSeries, log_plot
from trnbench.report.report import Column, Report, columns, draw_rows
from trnbench.report.text_table import Style, TextTable, draw, percent, wrap
from trnbench.units import Dimension, show

CONVENTIONS = {
    "error": "predicted / measured - 1",
    "low_s, high_s": "ends of an 80 % interval; training runs alone have one",
    "fitted": "a number of the calibration in use was set from this row",
    "within stack": "predicted with the software's own stack, and that was fitted to step times",
    "naive": "a constant utilisation per machine: the median of its rows marked fit, or of all "
    "where none is, without those of the predicted row's own configuration",
    "ranking": "layouts of one model, sequence, format and machine by time per token and chip; "
    "pairs measured more than 5 % apart; regret: how much slower than the fastest measured layout "
    "the one predicted to be fastest was",
}
PLOT_WIDTH = 100


def validation_report(
    sections: Sequence[ScoredSet], inputs: Mapping[str, object], *, plot: bool = False
) -> Report:
    """Return the report of measurements beside predictions, a row each."""
    rows = [row for section in sections for row in section.rows]
    report = Report(
        verb="validate",
        inputs=inputs,
        rows=tuple(comparison_row(row) for row in rows),
        columns=_columns(rows),
        summary={
            "conventions": CONVENTIONS,
            "rows": len(rows),
            "predicted": sum(row.error is not None for row in rows),
            "sets": {
                section.name: {"files": list(section.files), **asdict(section.summary)}
                for section in sections
            },
        },
    )
    return replace(report, people=functools.partial(_draw, report, tuple(sections), plot))


def _columns(rows: Sequence[Comparison]) -> tuple[Column, ...]:
    sized = any(row.size_bytes for row in rows)
    bounded = any(row.low_s for row in rows)
    return (
        *columns("id"),
        *columns("nodes", spare=True),
        *columns(*(["size_bytes"] if sized else []), "measured_s", "predicted_s"),
        *(columns("low_s", "high_s", spare=True) if bounded else ()),
        *columns("error", "fitted"),
        *columns("calibration", spare=True),
    )


def _draw(report: Report, sections: Sequence[ScoredSet], plot: bool, style: Style) -> str:
    blocks = []
    for section in sections:
        known = [row for row in section.rows if row.error is not None]
        counted = f"{len(known)} of {len(section.rows)} rows predicted"
        blocks.append(style.strong(f"{section.name}: {counted} ({', '.join(section.files)})"))
        if known:
            shown = tuple(comparison_row(row) for row in known)
            part = replace(report, rows=shown, columns=_columns(known))
            blocks.append(draw_rows(part, style))
        blocks += _unpredicted(section.rows, style)
        blocks += _assumptions(known, style)
        blocks += _statistics(section.summary, style)
        if plot and known:
            blocks.append(_scatter(known, style))
    return "\n\n".join(blocks)


def _unpredicted(rows: Sequence[Comparison], style: Style) -> list[str]:
    listed = [(row.id, row.reason or "") for row in rows if row.error is None]
    if not listed:
        return []
    table = TextTable(headings=("id", "reason"), rows=tuple(listed), right=(False, False))
    return [style.strong("Not predicted"), draw(table, style, indent="  ")]


def _assumptions(rows: Sequence[Comparison], style: Style) -> list[str]:
    counts: dict[str, int] = {}
    for row in rows:
        for what in row.assumed:
            counts[what] = counts.get(what, 0) + 1
    if not counts:
        return []
    lines = [
        wrap(f"{what} ({count} row{'' if count == 1 else 's'})", style.width, "  ")
        for what, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return [style.strong("Assumed where a row does not say"), "\n".join(lines)]


def _statistics(summary: Summary, style: Style) -> list[str]:
    if not summary.errors:
        return []
    groups: list[tuple[str, Errors]] = [*summary.errors.items()]
    groups += [(f"naive, {name}", errors) for name, errors in summary.naive.items()]
    groups += [*summary.stacks.items(), *summary.families.items()]
    headings: tuple[str, ...] = (
        "rows of",
        "rows",
        "mean",
        "median",
        "largest",
        "bias",
        "within 10%",
    )
    rows: list[tuple[str, ...]] = [(name, *_cells(errors)) for name, errors in groups]
    bounded = any(errors.coverage is not None for _, errors in groups)
    if bounded:
        headings = (*headings, "in interval", "half-width")
        rows = [
            (*row, percent(errors.coverage), percent(errors.half_width))
            for row, (_, errors) in zip(rows, groups, strict=True)
        ]
    table = TextTable(
        headings=headings, rows=tuple(rows), right=(False, *[True] * (len(headings) - 1))
    )
    blocks = [style.strong("Errors, predicted / measured - 1"), draw(table, style, indent="  ")]
    if summary.ranking is not None:
        order = summary.ranking
        text = (
            f"Layouts in order: Kendall's tau {order.tau:+.2f} over {order.pairs} pairs of layouts "
            f"measured more than 5 % apart, in {order.groups} groups; the layout predicted to be "
            f"fastest was {percent(order.regret)} slower than the fastest on average, "
            f"{percent(order.largest_regret)} at worst"
        )
        blocks.append(wrap(text, style.width, ""))
    return blocks


def _cells(errors: Errors) -> tuple[str, ...]:
    shares = (errors.mape, errors.median, errors.largest)
    return (
        f"{errors.rows:,}",
        *(percent(share) for share in shares),
        percent(errors.bias, sign="+"),
        f"{100 * errors.near:.0f} %",
    )


def _scatter(rows: Sequence[Comparison], style: Style) -> str:
    points = [(row, (row.measured_s or 0.0, row.predicted_s or 0.0)) for row in rows]
    ends = [value for _, point in points for value in point]
    least, most = min(ends), max(ends)
    series = [
        PlotSeries(
            label=label, points=tuple(point for row, point in points if row.fitted is fitted)
        )
        for label, fitted in (("unseen", False), ("fitted", True))
        if any(row.fitted is fitted for row in rows)
    ]
    same = PlotSeries(label="no error", points=((least, least), (most, most)), joined=True)
    return log_plot(
        [same, *series],
        PlotAxis(title="measured", text=lambda v: show(v, Dimension.SECONDS, digits=2)),
        PlotAxis(title="predicted", text=lambda v: show(v, Dimension.SECONDS, digits=2)),
        width=min(style.width, PLOT_WIDTH),
    )
