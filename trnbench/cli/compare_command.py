"""`trnbench compare`: a training run on several instance types, in days and USD."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trnbench.cli.against import Against, FailOver, refuse_limit_alone, write_against
from trnbench.cli.defaults import take_scenario
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.interrupts import Interrupts, processors
from trnbench.cli.names import completes
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.cli.run_options import Details, takes_run
from trnbench.errors import InputError
from trnbench.parsing import duration, literal

if TYPE_CHECKING:
    from trnbench.app.verbs.compare import CompareRequest
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


@keeping(reports=True, plots=True)
@takes_run
def compare(
    out: Output,
    catalog: Catalog,
    run: Mapping[str, Any],
    scenario: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            is_eager=True,
            callback=take_scenario,
            help="A scenario that the terminal UI saved; options beside it win.",
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            parser=duration("--deadline"),
            metavar="TIME",
            help="Finish within this time, each on its smallest cluster; default, without --nodes: "
            "60d.",
        ),
    ] = None,
    equal_cost: Annotated[
        bool,
        typer.Option(
            "--equal-cost",
            help="The baseline by --deadline or --nodes N, the others as fast as its cost buys.",
        ),
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANCE",
            help="Instance type to compare the others with; default: the first.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            metavar="strong|weak",
            help="Instead: the chosen layout on every cluster size, replicas scaled.",
        ),
    ] = None,
    against: Against = None,
    fail_over: FailOver = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw cost over days, or scaling.")] = False,
    details: Details = False,
) -> int:
    """Compare instance types for one training run: days, USD, and why, each in its best layout.

    Degrees and modes that are not given are searched. Each cluster is bought in the cheapest way;
    spot (interruptible) only with --purchase spot. Without MODEL, --tokens or --on usual ones are
    taken, and the answer says which.
    """
    from trnbench.app.searching import Watch
    from trnbench.app.verbs import compare as use_case
    from trnbench.report.compare import compare_report

    request = use_case.compare.request(
        **run, deadline=deadline, equal_cost=equal_cost, baseline=baseline, catalog=catalog
    )
    if plot:
        out.refuse_plot()
    refuse_limit_alone(against, fail_over)
    if scaling is not None:
        if against is not None:
            raise InputError("--against holds a comparison, not its --scaling, against a run")
        return _scaling(out, catalog, request, scaling, plot=plot)
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        watch = Watch(progress=progress, cancel=interrupts.asked, workers=processors())
        answer = use_case.compare_run(catalog, request, watch=watch)
    report = compare_report(answer, use_case.inputs_of(request), plot=plot, details=details)
    regressed = write_against(out, report, against, fail_over)
    if not answer.complete:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.positive and not regressed else ExitCode.ANSWER_IS_NO


def _scaling(
    out: Output, catalog: Catalog, request: CompareRequest, scaling: str, *, plot: bool
) -> int:
    from trnbench.answers.scaling import Scaling
    from trnbench.app.scaling import scale_run
    from trnbench.app.searching import Watch
    from trnbench.app.verbs.compare import inputs_of
    from trnbench.report.scaling import scaling_report

    how = literal("scaling", scaling, Scaling)
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        watch = Watch(progress=progress, cancel=interrupts.asked, workers=processors())
        answer = scale_run(catalog, request, cast("Scaling", how), watch=watch)
    inputs = inputs_of(request) | {"scaling": scaling}
    out.write(scaling_report(answer, inputs, plot=plot))
    if not answer.complete:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.positive else ExitCode.ANSWER_IS_NO
