"""A calibration as people and machines read it: what numbers were and are, and what is in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.evidence.fit.calibrate import Calibration, FittedRow, mean_error
from trnbench.evidence.fit.files import Calibrated, CalibratedCollectives
from trnbench.evidence.fit.memory import MemoryFit
from trnbench.evidence.fit.problem import KERNEL
from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, counted, show
from trnbench.show.report import Report, columns, draw_rows
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
_NUMBERS = {
    "low, high": "ends of 80 % intervals, before the fit and after",
    "data_share": "the part of a number's variance that the rows took away. Below 10 % a number "
    "stays assumed, below 2 % unchanged",
}
LINK_CONVENTIONS = {
    "error": "predicted / measured - 1; mean of absolute values",
    "without_like": "by a fit without the rows of the operation and group; of one such alone, "
    "without every second size",
    **_NUMBERS,
    "number": "seconds of latencies, shares of the links' speed",
}
_LINKS_NO_BETTER = (
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
            "conventions": LINK_CONVENTIONS,
            **links_summary(found, written),
            "remarks": list(found.remarks),
        },
        people=lambda _, style: draw_links(found, style),
    )


def rows_of_links(found: CalibratedCollectives) -> tuple[Row, ...]:
    return tuple({**fitted_row(one), "calibration": found.name} for one in found.fit.parameters)


def links_summary(found: CalibratedCollectives, written: Sequence[str]) -> dict[str, object]:
    """Return notes on a fit."""
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
    """Return the text of a fit: parameters that moved, and the errors of its rows."""
    fit = found.fit
    head = f"{found.name} fitted to {counted(len(fit.rows), 'collective')} of {fit.instance}, "
    blocks = [style.strong(f"{head}begun as {fit.stack.name}")]
    if not fit.better:
        blocks.append(style.wrap(_LINKS_NO_BETTER))
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


CONVENTIONS = {
    "error": "predicted / measured - 1; mean of absolute values",
    "without row, configuration, stack": "by a fit without the row, without all rows of its "
    "configuration, without any row of its stack",
    **_NUMBERS,
    "weight": "1 for a row that the fit meets, near 0 for one that no other agrees with",
    "better": "whether configurations that the fit did not see are predicted better than before",
    "inseparable": "pairs of numbers that rows tell only together: correlation beyond 0.9",
}

_NOT_BETTER = (
    "Rows that were left out are not predicted better by a fit than before: "
    "the calibration stays as it was."
)


_ERRORS = (">before", ">fitted", ">leave-one-out: row", ">configuration", ">stack")
_LEFT_OUT = (
    "before: by what the fit began with. Leave-one-out: by a fit without the row, all rows of its "
    "configuration (layout and cluster), or all rows of its stack. Data share: how far the rows "
    "narrowed the parameter"
)
_ALONE = (
    "One layout of one model determines only an overall factor: that was fitted. All other "
    "numbers are assumed, as before."
)


def calibration_report(
    found: Calibrated, inputs: Mapping[str, object], written: Sequence[str] = ()
) -> Report:
    """Return the report of a calibration, a row for each number that may be fitted.

    `written`: the files of its one stack, and of the links that were fitted before it.
    """
    links, begun = found.collectives, found.start
    calibration, unused, memory = found.calibration, found.unused, found.memory
    owners = sorted({one.parameter.owner for one in calibration.parameters})
    return Report(
        verb="calibrate",
        inputs=inputs,
        rows=(
            *(fitted_row(one) for owner in owners for one in calibration.of(owner).values()),
            *(rows_of_links(links) if links else ()),
        ),
        columns=COLUMNS,
        summary={
            "conventions": CONVENTIONS,
            "stack": found.stack,
            "begun_as": begun.like if begun else None,
            "begun_again_as": begun.again if begun else None,
            "written": written[0] if written else None,
            "collectives": links_summary(links, written[1:]) if links else None,
            "fitted": [_fitted_row(row) for row in calibration.rows],
            "better": calibration.better,
            "outliers": [row.row.id for row in calibration.outliers],
            "unused": [{"id": name, "reason": reason} for name, reason in unused],
            "errors": {name: _errors(rows) for name, rows in _groups(calibration).items()},
            "memory": {
                name: cells(of, "rows prior error without_configuration")
                for name, of in memory.items()
            },
            "inseparable": [
                {"one": " ".join(one), "other": " ".join(other), "correlation": value}
                for one, other, value in calibration.inseparable
            ],
            "spread": {
                name: cells(spread, "low high") for name, spread in calibration.spreads.items()
            },
        },
        people=lambda report, style: _draw(report, found, style),
    )


def _of_memory(name: str, found: MemoryFit) -> str:
    kept = "" if found.moved else "; that is no better than before, and memory stays as it was"
    rows = counted(found.rows, "row")
    return (
        f"memory of {name}: {rows}, mean error {percent(found.prior)} before, "
        f"{percent(found.error)} fitted, {percent(found.without_configuration)} of configurations "
        f"left out{kept}"
    )


def _fitted_row(row: FittedRow) -> dict[str, object]:
    measured = cells(row.row, "id calibration=stack quantity measured_s")
    left_out = cells(row, "without_row without_configuration without_stack")
    return {**measured, **cells(row, "weight prior error=fitted"), **left_out}


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


def _draw(report: Report, found: Calibrated, style: Style) -> str:
    calibration, unused, memory = found.calibration, found.unused, found.memory
    owners = {one.parameter.owner for one in calibration.parameters}
    own = [row for row in report.rows if row["calibration"] in owners]
    moved = [row for row in own if row["moved"]]
    rest = [row for row in own if not row["moved"]]
    blocks = [style.strong(_headline(found)), *_remarks(found, moved, style)]
    if found.start and found.start.again:
        again = (
            f"Begun as {found.start.again}, as your earlier fit was, so that no row counts twice: "
            "rows fitted earlier count only if they are given again. "
            f"--from {found.stack} continues from the earlier fit."
        )
        blocks.insert(1, style.wrap(again))
    if moved:
        blocks.append(draw_rows(replace(report, rows=tuple(moved)), style))
    if rest:
        blocks.append(_left(rest, style))
    blocks += _together(calibration, style)
    blocks += [style.wrap(_of_memory(name, of)) for name, of in memory.items()]
    blocks += [style.strong("Errors, predicted / measured - 1"), _error_table(calibration, style)]
    blocks += [_row_table(calibration, style), style.wrap(_LEFT_OUT)]
    if calibration.outliers:
        blocks += _outliers(calibration, style)
    if unused:
        blocks += [style.strong("Left out"), style.table(("id", "reason"), unused, "  ")]
    if found.collectives is not None:
        blocks.insert(0, draw_links(found.collectives, style))
    return "\n\n".join(blocks)


def _headline(found: Calibrated) -> str:
    kernels = sum(row.row.quantity == KERNEL for row in found.calibration.rows)
    count = len(found.calibration.rows) - kernels
    steps = counted(count, "measured step")
    steps += f" and {kernels} kernels" if kernels else ""
    like = found.start.like if found.start else None
    begun = f", begun as {like}" if like else ""
    return f"{found.stack or 'Stacks and chips'} fitted to {steps}{begun}"


def _remarks(found: Calibrated, moved: Sequence[Row], style: Style) -> list[str]:
    """Return in sentences how far the result is to be trusted."""
    calibration = found.calibration
    if not calibration.better:
        return [style.wrap(_NOT_BETTER)]
    told = sum(row["evidence"] == "derived" for row in moved)
    alone = len({row.row.configuration for row in calibration.rows}) == 1
    rest = len(moved) - told
    little = f", {rest} of them little, which stay assumed" if rest else ""
    count = len(calibration.rows)
    rows = f"{counted(count, 'row')} {'informs' if count == 1 else 'inform'}"
    remark = (
        f"{rows} {counted(told, 'parameter')}; {len(moved)} changed{little}. All others are "
        "assumed, as before."
    )
    return [style.wrap(_ALONE if alone else remark)]


def _outliers(calibration: Calibration, style: Style) -> list[str]:
    rows = [
        (one.row.id, percent(one.fitted, sign="+"), f"{one.weight:.2f}")
        for one in calibration.outliers
    ]
    title = style.strong("Outliers: agree with no other row, count little")
    return [title, style.table(("row", ">error", ">weight"), rows, "  ")]


def _left(rows: Sequence[Row], style: Style) -> str:
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(str(row["calibration"]), []).append(str(row["number"]))
    lines = [style.strong("Not informed by these rows: assumed, as before")]
    lines += [style.wrap(f"{owner}: {', '.join(keys)}", "  ") for owner, keys in names.items()]
    return "\n".join(lines)


def _together(calibration: Calibration, style: Style) -> list[str]:
    if not calibration.inseparable:
        return []
    lines = [
        f"  {' '.join(one)} with {' '.join(other)}: correlation {value:+.2f}"
        for one, other, value in calibration.inseparable
    ]
    return [style.strong("Determined only together"), "\n".join(lines)]


def _error_table(calibration: Calibration, style: Style) -> str:
    rows = [
        (name, str(found.pop("rows")), *(percent(value) for value in found.values()))
        for name, of in _groups(calibration).items()
        for found in [_errors(of)]
    ]
    return style.table(("rows of", ">rows", *_ERRORS), rows, "  ")


def _row_table(calibration: Calibration, style: Style) -> str:
    rows = []
    for one in calibration.rows:
        left_out = (one.without_row, one.without_configuration, one.without_stack)
        errors = (percent(value, sign="+") for value in (one.prior, one.fitted, *left_out))
        rows.append((one.row.id, *errors))
    return style.table(("row", *_ERRORS), rows, "  ")
