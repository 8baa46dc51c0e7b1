"""`trnbench validate`: predicted against measured, row by row, with error statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.parsing import quantity
from trnbench.units import Dimension

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


@printing
def validate(
    out: Output,
    catalog: Catalog,
    evidence: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A CSV file of measurements (repeatable); default: the shipped."
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME",
            help="trainium, gpu, collectives or kernels (repeatable); default: all.",
        ),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            parser=quantity("--fail-above", Dimension.RATIO),
            metavar="SHARE",
            help="Exit with 1 where a set's mean error is above, such as 15%.",
        ),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw predicted over measured.")] = False,
) -> int:
    """Compare predictions with measurements, and say how wrong they are.

    Rows that cannot be predicted are listed with the reason. Fitted and unseen rows, and rows of
    fitted and of other software, are counted apart, beside a naive baseline.
    """
    from trnbench import app
    from trnbench.report.validation import validation_report

    if plot:
        out.refuse_plot()
    with ProgressLine(quiet=out.quiet) as progress:
        found = app.validate(
            evidence=evidence or (), set=sets or (), catalog=catalog, progress=progress
        )
    inputs: dict[str, object] = {
        "evidence": [str(path) for path in evidence or ()],
        "sets": [section.name for section in found],
        "fail_above": fail_above,
    }
    out.write(validation_report(found, inputs, plot=plot))
    errors = [section.summary.errors.get("all") for section in found]
    if not any(errors):
        out.narrate("no row could be predicted")
        return ExitCode.ANSWER_IS_NO
    failed = fail_above is not None and any(e and e.mape > fail_above for e in errors)
    return ExitCode.ANSWER_IS_NO if failed else ExitCode.DONE
