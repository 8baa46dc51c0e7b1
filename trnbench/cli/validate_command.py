"""`trnbench validate`: predicted against measured, row by row, with error statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnbench.cli.against import Against, FailOver, refuse_limit_alone, write_against
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.engine import ComparedEngine
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.measured_options import MeasuredModel, MeasuredOn, name_unread_columns
from trnbench.cli.names import completes_stacks
from trnbench.cli.output import OutputFormat
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError
from trnbench.facts.parsing import quantity
from trnbench.facts.units import Dimension
from trnbench.facts.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


_TABLES = (OutputFormat.TABLE, OutputFormat.CSV)


@keeping(reports=True, plots=True)
@takes_layout("Of a log, or a file without a column of it: ")
def validate(
    out: Output,
    catalog: Catalog,
    *,
    evidence: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A CSV file of measurements; what nccom-test or nccl-tests print; a log of steps; "
            "or a folder of these (repeatable); default: the shipped.",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME",
            help="trainium, gpu, collectives, kernels or attention (repeatable); default: all.",
        ),
    ] = None,
    model: MeasuredModel = None,
    on: MeasuredOn = None,
    stack: Annotated[
        str | None,
        typer.Option(
            help="The training stack of rows whose software no stack names.",
            autocompletion=completes_stacks(),
        ),
    ] = None,
    engine: Annotated[
        ComparedEngine,
        typer.Option(help="analytic, or emulate: kernels and attention, each instruction played."),
    ] = ComparedEngine.ANALYTIC,
    template: Annotated[
        bool, typer.Option("--template", help="Write the columns of measured steps, and no row.")
    ] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            parser=quantity("--fail-above", Dimension.RATIO),
            metavar="SHARE",
            help="Exit with 1 where a set's mean error is above, such as 15%.",
        ),
    ] = None,
    against: Against = None,
    fail_over: FailOver = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw predicted over measured.")] = False,
    layout: PartialLayout,
) -> int:
    """Compare predictions with measurements, and say how wrong they are.

    Rows that cannot be predicted are listed with the reason. Fitted and unseen rows, and rows of
    fitted and of other software, are counted apart, beside a naive baseline.
    """
    from trnbench.verbs.validate.run import validate as run
    from trnbench.verbs.validate.text import validation_report

    if template:
        asked = (evidence, sets, model, on, stack, fail_above, against, fail_over, plot or None)
        if layout.given or any(one is not None for one in asked) or out.format not in _TABLES:
            raise InputError("--template writes a CSV file; it goes with -o and --quiet alone")
        return _template(out)
    refuse_limit_alone(against, fail_over)
    if plot:
        out.refuse_plot()
    knobs: dict[str, Any] = dict(layout.given)
    with ProgressLine(quiet=out.quiet) as progress:
        found = run(
            evidence=evidence or (),
            set=sets or (),
            model=model,
            on=on,
            stack=stack,
            engine=engine.value,
            catalog=catalog,
            progress=progress,
            **knobs,
        )
    name_unread_columns(out, evidence or ())
    for remark in dict.fromkeys(remark for section in found for remark in section.remarks):
        out.narrate(remark)
    inputs: dict[str, object] = {
        "evidence": [str(path) for path in evidence or ()],
        "sets": [section.name for section in found],
        "model": model,
        "on": on,
        "layout": knobs,
        "stack": stack,
        "engine": engine.value,
        "fail_above": fail_above,
    }
    regressed = write_against(out, validation_report(found, inputs, plot=plot), against, fail_over)
    errors = [section.summary.errors.get("all") for section in found]
    if not any(section.summary.errors or section.summary.fit for section in found):
        row = found[0].rows[0]
        out.narrate(f"no row could be predicted; {row.id}: {row.reason}")
        return ExitCode.ANSWER_IS_NO
    failed = fail_above is not None and any(e and e.mape > fail_above for e in errors)
    return ExitCode.ANSWER_IS_NO if failed or regressed else ExitCode.DONE


def _template(out: Output) -> int:
    """Write an empty file of measured steps, and say on the side what its columns mean."""
    from trnbench.evidence.columns import COLUMNS, template_csv

    for column in COLUMNS:
        example = f" (such as {column.example})" if column.example else ""
        out.narrate(f"{column.name}: {column.help}{example}")
    out.write_bytes(template_csv().encode())
    return ExitCode.DONE
