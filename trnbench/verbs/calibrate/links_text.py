"""A fitted stack of collectives as people and machines read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.evidence.fit.files import CalibratedCollectives
from trnbench.facts.units import Dimension, counted, show
from trnbench.show.report import Report, columns
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style, percent
from trnbench.verbs.validate.answer import fitted_row

COLUMNS = (
    *columns("calibration", "number", "prior"),
    *columns("prior_low", "prior_high", spare=True),
    *columns("value"),
    *columns("low", "high", spare=True),
    *columns("data_share"),
)
CONVENTIONS = {
    "error": "predicted / measured - 1; mean of absolute values",
    "without_like": "by a fit without the rows of the operation and group; of one such alone, "
    "without every second size",
    "low, high": "ends of 80 % intervals, before the fit and after",
    "data_share": "the part of a number's variance before the fit that the rows took away; below "
    "10 % a number stays assumed, below 2 % it stays where it was",
    "number": "seconds of latencies, shares of the links' speed",
}
_NOT_BETTER = (
    "Collectives that were left out are not predicted better by a fit than before: the numbers "
    "stay as they were."
)


def links_report(
    found: CalibratedCollectives, inputs: Mapping[str, object], written: Sequence[str] = ()
) -> Report:
    """Return the report of a stack of collectives, a row for each number that may be fitted."""
    return Report(
        verb="calibrate",
        inputs=inputs,
        rows=rows_of_links(found),
        columns=COLUMNS,
        summary={
            "conventions": CONVENTIONS,
            **links_summary(found, written),
            "remarks": list(found.remarks),
        },
        people=lambda _, style: draw_links(found, style),
    )


def rows_of_links(found: CalibratedCollectives) -> tuple[Row, ...]:
    """Return the numbers that were fitted, as rows."""
    return tuple({**fitted_row(one), "calibration": found.name} for one in found.fit.parameters)


def links_summary(found: CalibratedCollectives, written: Sequence[str]) -> dict[str, object]:
    """Return what is told of a fit besides its numbers."""
    fit = found.fit
    return {
        "stack": found.name,
        "instance": fit.instance,
        "begun_as": fit.stack.name,
        "written": written[0] if written else None,
        "better": fit.better,
        "fitted": [cells(row, "id prior error=fitted without_like=left_out") for row in fit.rows],
        "unused": [{"id": name, "reason": reason} for name, reason in fit.unused],
        "errors": fit.mean_errors,
    }


def draw_links(found: CalibratedCollectives, style: Style) -> str:
    """Return what people read of a fit: what moved, and the errors of its rows."""
    fit = found.fit
    head = f"{found.name} fitted to {counted(len(fit.rows), 'collective')} of {fit.instance}, "
    blocks = [style.strong(f"{head}begun as {fit.stack.name}")]
    if not fit.better:
        blocks.append(style.wrap(_NOT_BETTER))
    elif any(one.moved for one in fit.parameters):
        blocks.append(_numbers(found, style))
    held = [one.parameter.key for one in fit.parameters if not one.moved]
    if held:
        blocks.append(style.wrap(f"Not informed by these rows, as before: {', '.join(held)}"))
    errors = fit.mean_errors
    blocks.append(
        style.wrap(
            f"Errors, predicted / measured - 1, mean: {percent(errors['prior'])} before, "
            f"{percent(errors['error'])} fitted, {percent(errors['without_like'])} of rows left "
            "out of the fit"
        )
    )
    if fit.unused:
        blocks += [style.strong("Left out"), style.table(("id", "reason"), fit.unused, "  ")]
    return "\n\n".join(blocks)


def _numbers(found: CalibratedCollectives, style: Style) -> str:
    """Return the table of what moved: latencies as times, shares as they are."""
    rows = []
    for one in found.fit.parameters:
        prior = one.parameter.prior
        if one.moved:
            kind = Dimension.SECONDS if prior.most > 1 else Dimension.RATIO
            told = [
                show(number, kind, digits=3)
                for number in (prior.value, prior.low, prior.high, one.value, *one.ends)
            ]
            before, now = (f"{a} ({low} to {high})" for a, low, high in (told[:3], told[3:]))
            rows.append((one.parameter.key, before, now, f"{one.data_share:.0%}"))
    return style.table(("number", ">before", ">fitted", ">data share"), rows)
