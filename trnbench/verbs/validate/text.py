"""Measurements beside predictions, as people and machines read them: rows, errors, a scatter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trnbench.evidence.comparison import Comparison
from trnbench.evidence.statistics import (
    Errors,
    FitScore,
    Ranking,
    Summary,
    by_class,
    errors_of,
    fit_score_of,
    memory_errors_of,
)
from trnbench.facts.records import asdict, replace
from trnbench.facts.units import Dimension, counted
from trnbench.show.charts.record import ChartAxis, Guide, PointChart, Series, axis_of
from trnbench.show.charts.text import chart_text
from trnbench.show.report import Column, Report, columns, draw_rows
from trnbench.show.text_table import Style, percent
from trnbench.verbs.validate.accuracy import CLASSES
from trnbench.verbs.validate.answer import ScoredSet, comparison_row

CONVENTIONS = {
    "error": "predicted / measured - 1",
    "low_s, high_s": "ends of an 80 % interval; training runs alone have one",
    "of peak": "of the tensor engines' peak: a kernel's useful operations, as measured, as played "
    "and in closed form with the chip's calibrated numbers",
    "fitted": "a number of the calibration in use was set from this row",
    "rests_on": "inside rows, beyond rows: of measured steps of the stack. Carried over: a stack "
    "of other software, chips, machines or kinds of models. Population: unmeasured software. Seen: "
    "numbers were set by hand from these steps",
    "left_out": "predicted by a fit without the row's configuration, or by a population without "
    "its software",
    "within stack": "predicted with the software's own stack, and that was fitted to step times",
    "naive": "a constant utilisation per machine: the median of its rows marked fit (of all, if "
    "none is), without the row's own configuration",
    "ranking": "layouts of one model, sequence, format and cluster by time per token and rank. "
    "Pairs: measured more than 5 % apart. Regret: the predicted best's time over the fastest "
    "measured",
    "instructions": "of the largest graph that a rank compiles, or of the operation that was "
    "refused. Its time is a cold compilation; a graph that compiles is called fitting",
    "memory": "of a rank at its peak, or of a chip with all its ranks, as memory_of says; naive: "
    "the median of the machine's other configurations",
    "fit": "a layout that fits with a probability of one half or more is called fitting. Balanced "
    "accuracy: mean of the shares of measured rows called fitting and crashed rows called not; a "
    "constant call scores 0.5",
}
LISTED_GROUPS = 12
"""Questions whose order of layouts is listed for people, those with most layouts first."""
BAND = 10.0
"""Errors within this many per cent lie between two lines."""
MOST_ERROR = 100.0
"""Errors beyond this many per cent are drawn at the edge."""
CRASHED = "crashed_or_oom"
_PLAYED = ("measured_share", "played_share", "closed_share", "played_as")
_MEMORY = ("memory_measured_bytes", "memory_predicted_bytes", "fit_probability", "outcome")
_GRAPHS = ("instructions_measured", "instructions_predicted", "fit_probability", "outcome")


def validation_report(
    sections: Sequence[ScoredSet],
    inputs: Mapping[str, object],
    *,
    plot: bool = False,
    brief: bool = False,
) -> Report:
    """The report of measurements beside predictions, a row each; `brief`: people see no rows."""
    rows = [row for section in sections for row in section.rows]
    charts = (scatter_chart(rows), error_chart(rows))
    return Report(
        verb="validate",
        inputs=inputs,
        rows=tuple(comparison_row(row) for row in rows),
        columns=_columns(rows),
        summary={
            "verdict": _verdict(sections),
            "rests_on": {name: asdict(one) for name, one in by_class(rows).items()},
            "conventions": CONVENTIONS,
            "rows": len(rows),
            "predicted": sum(row.error is not None for row in rows),
            "assumed": [one.plain for one in dict.fromkeys(a for r in rows for a in r.settled)],
            "sets": {
                section.name: {
                    "files": list(section.files),
                    "read": list(section.remarks),
                    **asdict(section.summary),
                    "fits": {name: asdict(fit) for name, fit in section.fits.items()},
                }
                for section in sections
            },
        },
        people=lambda report, style: (
            _brief(report, sections, style)
            if brief
            else _draw(report, tuple(sections), plot, style)
        ),
        charts=charts if charts[0].drawn else (),
    )


def _verdict(sections: Sequence[ScoredSet]) -> str:
    """The answer in one line: errors and coverage of steps, or else of the sets by themselves."""
    steps = [row for one in sections for row in one.rows if row.rests_on not in (None, "seen")]
    errors = errors_of(steps)
    if errors is None:
        return "; ".join(map(_told, sections))
    return (
        f"{counted(errors.rows, 'step')} predicted that no calibration has seen: median error "
        f"{percent(errors.median)}, mean {percent(errors.mape)}, {percent(errors.coverage)} inside "
        "the 80 % interval"
    )


def _told(section: ScoredSet) -> str:
    errors = section.summary.errors.get("all")
    known = f"{section.summary.predicted:,} of {counted(section.summary.rows, 'row')} predicted"
    if errors is None:
        return f"{section.name}: {known}"
    return f"{section.name}: {known}, median error {percent(errors.median)}"


def _brief(report: Report, sections: Sequence[ScoredSet], style: Style) -> str:
    """The one-line answer, errors by what steps rest on, and a line a set."""
    rows = [row for section in sections for row in section.rows]
    blocks = [style.strong(f"Verdict: {_verdict(sections)}"), *_classes(rows, style)]
    groups = [(one.name, one.summary.errors.get("all")) for one in sections]
    known = [(name, errors) for name, errors in groups if errors is not None]
    blocks += [style.strong("Sets, all rows predicted"), _error_table(known, style)]
    steps = [row for row in rows if row.rests_on is not None]
    memory, fit = memory_errors_of(steps), fit_score_of(steps)
    if memory is not None:
        held = [("all", memory), *_titled(by_class(steps, memory=True))]
        blocks += [style.strong("Memory of steps, of a rank or a chip"), _error_table(held, style)]
    if fit is not None and fit.crashed:
        blocks += [style.strong("Which layouts fit"), _fit_table({"all": fit}, style)]
    more = f"--set NAME ({', '.join(one.name for one in sections)}) lists the rows, --details all"
    return "\n\n".join([*blocks, style.wrap(more)])


def _classes(rows: Sequence[Comparison], style: Style) -> list[str]:
    found = by_class(rows)
    if not found:
        return []
    groups = _titled(found)
    legend = style.wrap(
        "Shipped rows that set numbers are predicted by fits without their configuration, rows of "
        "the population by other software's spread."
        if any(row.left_out for row in rows)
        else "Rows that set numbers of their stack are predicted with these."
    )
    title = style.strong("Steps by what their prediction rests on")
    return [title, _error_table(groups, style), style.faint(legend)]


def _titled(classes: Mapping[str, Errors]) -> list[tuple[str, Errors]]:
    """Errors by what predictions rest on, with its title."""
    return [(CLASSES[name], errors) for name, errors in classes.items()]


def _columns(rows: Sequence[Comparison]) -> tuple[Column, ...]:
    sized = any(row.size_bytes for row in rows)
    bounded = any(row.low_s for row in rows)
    counted_in = any(row.instructions.predicted for row in rows)
    steps = (row for row in rows if not row.instructions.predicted)
    weighed = any(row.memory_measured_bytes or row.outcome == CRASHED for row in steps)
    return (
        *columns("id"),
        *columns("nodes", spare=True),
        *columns(*(["size_bytes"] if sized else []), "measured_s", "predicted_s"),
        *(columns("low_s", "high_s", spare=True) if bounded else ()),
        *columns("error"),
        *(columns(*_PLAYED, spare=True) if any(row.played_as for row in rows) else ()),
        *(columns(*_GRAPHS) if counted_in and not weighed else ()),
        *(columns(*_MEMORY, spare=True) if weighed else ()),
        *columns("fitted"),
        *columns("calibration", spare=True),
    )


def _draw(report: Report, sections: Sequence[ScoredSet], plot: bool, style: Style) -> str:
    blocks = [style.strong(f"Verdict: {_verdict(sections)}")]
    blocks += _classes([row for section in sections for row in section.rows], style)
    for section in sections:
        known = [row for row in section.rows if row.reason is None]
        told = f"{len(known)} of {counted(len(section.rows), 'row')} predicted"
        blocks.append(style.strong(f"{section.name}: {told} ({', '.join(section.files)})"))
        if known:
            shown = tuple(comparison_row(row) for row in known)
            part = replace(report, rows=shown, columns=_columns(known))
            blocks.append(draw_rows(part, style))
        blocks += _unpredicted(section.rows, style)
        blocks += _assumptions(known, style)
        blocks += _statistics(section.summary, style)
        if section.fits:
            blocks += [style.strong("Errors of fits, by what was left out"), _fits(section, style)]
        if plot and any(row.error is not None for row in known):
            blocks.append(chart_text(scatter_chart(known), style))
    return "\n\n".join(blocks)


def _unpredicted(rows: Sequence[Comparison], style: Style) -> list[str]:
    listed = [(row.id, row.reason) for row in rows if row.reason is not None]
    if not listed:
        return []
    return [style.strong("Not predicted"), style.table(("id", "reason"), listed, "  ")]


def _assumptions(rows: Sequence[Comparison], style: Style) -> list[str]:
    counts: dict[str, int] = {}
    for row in rows:
        for what in row.assumed:
            counts[what] = counts.get(what, 0) + 1
    if not counts:
        return []
    lines = [
        style.wrap(f"{what} ({count} row{'' if count == 1 else 's'})", "  ")
        for what, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return [style.titled("Assumed", "\n".join(lines))]


def _statistics(summary: Summary, style: Style) -> list[str]:
    blocks = []
    if summary.errors:
        groups = [*summary.errors.items()]
        groups += [(f"naive, {name}", errors) for name, errors in summary.naive.items()]
        groups += [*summary.stacks.items(), *summary.families.items()]
        blocks += [style.strong("Errors, predicted / measured - 1"), _error_table(groups, style)]
    if summary.memory:
        groups = [*summary.memory.items(), *_titled(summary.memory_rests_on)]
        groups += [(f"naive, {name}", errors) for name, errors in summary.naive_memory.items()]
        blocks += [style.strong("Errors of memory"), _error_table(groups, style)]
    if summary.instructions:
        blocks += [
            style.strong("Errors of the instructions of graphs"),
            _error_table([*summary.instructions.items()], style),
        ]
    if any(score.crashed for score in summary.fit.values()):
        blocks += [style.strong("Which layouts fit"), _fit_table(summary.fit, style)]
    if summary.ranking is not None:
        blocks += _order(summary.ranking, style)
    return blocks


def _error_table(groups: Sequence[tuple[str, Errors]], style: Style) -> str:
    headings = ["rows of", "rows", "mean", "median", "largest", "bias", "within 10%"]
    rows = [(name, *_cells(errors)) for name, errors in groups]
    if any(errors.coverage is not None for _, errors in groups):
        headings += ["in interval", "half-width"]
        rows = [
            (*row, percent(errors.coverage), percent(errors.half_width))
            for row, (_, errors) in zip(rows, groups, strict=True)
        ]
    return _table(headings, rows, style)


def _fits(section: ScoredSet, style: Style) -> str:
    """Return the errors of stacks on the rows of their fits, and with these rows left out."""
    headings = ("stack", "rows", "nothing", "the row", "its configuration")
    rows = [
        (name, str(a.rows), *map(percent, (a.error, a.without_row, a.without_configuration)))
        for name, a in section.fits.items()
    ]
    return _table(headings, rows, style)


def _fit_table(scores: Mapping[str, FitScore], style: Style) -> str:
    headings = ("rows of", "ran", "crashed", "precision", "recall", "balanced accuracy")
    rows = [
        (
            name,
            f"{a.ran:,}",
            f"{a.crashed:,}",
            *map(percent, (a.precision, a.recall, a.balanced_accuracy)),
        )
        for name, a in scores.items()
    ]
    return _table(headings, rows, style)


def _order(order: Ranking, style: Style) -> list[str]:
    text = (
        f"Layouts in order: Kendall's tau {order.tau:+.2f} over {order.pairs} pairs of layouts "
        f"measured more than 5 % apart, in {order.groups} groups. The layout predicted to be "
        f"fastest was {percent(order.regret)} slower than the fastest on average, "
        f"{percent(order.largest_regret)} at worst"
    )
    several = [one for one in order.by_group if one.layouts > 2][:LISTED_GROUPS]
    if not several:
        return [style.wrap(text)]
    headings = ("layouts of", ">layouts", ">tau", ">regret", "predicted to be fastest", "fastest")
    rows = (
        (a.question, f"{a.layouts}", f"{a.tau:+.2f}", percent(a.regret), a.chosen, a.best)
        for a in several
    )
    return [style.wrap(text), style.table(headings, rows, "  ")]


def _table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], style: Style) -> str:
    return style.table((headings[0], *(f">{head}" for head in headings[1:])), rows, "  ")


def _cells(errors: Errors) -> tuple[str, ...]:
    shares = (errors.mape, errors.median, errors.largest)
    return (
        f"{errors.rows:,}",
        *(percent(share) for share in shares),
        percent(errors.bias, sign="+"),
        f"{100 * errors.near:.0f} %",
    )


def scatter_chart(rows: Sequence[Comparison]) -> PointChart:
    """Predicted over measured times, with their intervals; on the line nothing is wrong."""
    series = [
        Series(
            label=label,
            points=tuple((row.measured_s or 0.0, row.predicted_s or 0.0) for row in mine),
            upright=tuple(
                (row.low_s, row.high_s) if row.low_s and row.high_s else None for row in mine
            ),
        )
        for label, mine in _by_use(rows)
    ]
    ends = [end for one in series for point in one.points for end in point]
    line = ((min(ends), min(ends)), (max(ends), max(ends))) if ends else ()
    same = Series(label="no error", points=line, joined=True, marked=False, hue=7)
    return PointChart(
        title="predicted over measured time",
        caption="with 80 % intervals",
        x=axis_of("measured", Dimension.SECONDS, [x for x, _ in line]),
        y=axis_of("predicted", Dimension.SECONDS, [x for x, _ in line]),
        series=(*series, same),
    )


def error_chart(
    rows: Sequence[Comparison], here: Comparison | None = None, missing: str = ""
) -> PointChart:
    """Errors in per cent over the measured times, between lines at 10 %."""
    series = [
        Series(
            label=f"{label}, {counted(len(mine), 'row')}",
            points=tuple(_error_point(row) for row in mine),
            hue=hue,
        )
        for hue, (label, mine) in enumerate(_by_use(rows))
    ]
    if here is not None and here.error is not None and here.measured_s is not None:
        series.append(Series(label=here.id, points=(_error_point(here),), strong=True, hue=3))
    beyond = sum(abs(row.error or 0.0) * 100 > MOST_ERROR for row in rows)
    edge = f"{beyond} beyond {MOST_ERROR:.0f} %, drawn at the edge" if beyond else ""
    measured = [x for one in series for x, _ in one.points]
    return PointChart(
        title="error of the prediction over the measured time",
        caption="above 0: predicted too slow",
        x=axis_of("measured", Dimension.SECONDS, measured, unit="s"),
        y=ChartAxis(title="error (%)"),
        series=tuple(series),
        guides=tuple(Guide(label=f"{at:+.0f} %", y=at) for at in (BAND, -BAND)),
        missing="; ".join(filter(None, (missing, edge))),
    )


def _by_use(rows: Sequence[Comparison]) -> Iterator[tuple[str, list[Comparison]]]:
    """The predicted rows that set no number of a calibration, and those that did."""
    for label, fitted in (("unseen", False), ("fitted", True)):
        mine = [row for row in rows if row.error is not None and row.fitted is fitted]
        if mine:
            yield label, [row for row in mine if row.measured_s is not None]


def _error_point(row: Comparison) -> tuple[float, float]:
    return row.measured_s or 0.0, min(max(100 * (row.error or 0.0), -MOST_ERROR), MOST_ERROR)
