"""`trnbench compare`: a training run on several instance types, in days and USD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.interrupts import Interrupts, processors
from trnbench.cli.names import completes
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.cli.run_options import takes_run
from trnbench.parsing import duration, literal

if TYPE_CHECKING:
    from trnbench.app.verbs.compare import CompareRequest
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


@printing
@takes_run
def compare(
    out: Output,
    catalog: Catalog,
    run: Mapping[str, Any],
    deadline: Annotated[
        float | None,
        typer.Option(
            parser=duration("--deadline"),
            metavar="TIME",
            help="Each on the fewest nodes that finish in time; default, without --nodes: 60d.",
        ),
    ] = None,
    equal_cost: Annotated[
        bool,
        typer.Option(
            "--equal-cost",
            help="The baseline as told by --deadline or --nodes N, the others as fast as they come "
            "for no more money.",
        ),
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANCE",
            help="What the others are held against; default: the first.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            metavar="strong|weak",
            help="Instead: the layout taken, with other numbers of replicas, over all nodes.",
        ),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw money over days, or scaling.")] = False,
) -> int:
    """Compare instance types for one training run: days, USD, and why, each in its best layout.

    Degrees and modes that are not given are searched. Intervals hold 80 % of cases. Each cluster is
    bought in the cheapest way that nobody takes back; spot only if --purchase says so.
    """
    from trnbench.app.searching import Watch
    from trnbench.app.verbs import compare as use_case
    from trnbench.report.compare import compare_report

    request = use_case.compare.request(
        **run, deadline=deadline, equal_cost=equal_cost, baseline=baseline, catalog=catalog
    )
    if plot:
        out.refuse_plot()
    if scaling is not None:
        return _scaling(out, catalog, request, scaling, plot=plot)
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        watch = Watch(progress=progress, cancel=interrupts.asked, workers=processors())
        answer = use_case.compare_run(catalog, request, watch=watch)
    out.write(compare_report(answer, use_case.inputs_of(request), plot=plot))
    if not answer.complete:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.positive else ExitCode.ANSWER_IS_NO


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
