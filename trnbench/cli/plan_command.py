"""`trnbench plan`: which machines, how many, in which layout, bought how."""

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
from trnbench.parsing import duration, money

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output
    from trnbench.plan.objective import Objective


@printing
@takes_run
def plan(
    out: Output,
    catalog: Catalog,
    run: Mapping[str, Any],
    deadline: Annotated[
        float | None,
        typer.Option(
            parser=duration("--deadline"),
            metavar="TIME",
            help="30d; for least cost 60d is assumed if none is given.",
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(parser=money("--budget"), metavar="USD", help="5M.")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="cost|time|pareto",
            help="What decides; default: cost, or time where only a budget is given.",
        ),
    ] = None,
    confirm: Annotated[
        int, typer.Option(min=0, metavar="K", help="Play the best K layouts in the emulator.")
    ] = 0,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANCE",
            help="What the others are held against at break-even; default: the plan.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw money over days.")] = False,
) -> int:
    """Plan a training run: the answer first, then the alternatives and what would change it.

    Every legal layout on every number of nodes of every instance type, bought in every way that
    nobody takes back (spot only if --purchase says so). Intervals hold 80 % of cases.
    """
    from trnbench.app.plan_request import inputs_of
    from trnbench.app.searching import Watch
    from trnbench.app.verbs import plan as use_case
    from trnbench.report.plan import plan_report

    if plot:
        out.refuse_plot()
    request = use_case.plan.request(
        **run,
        deadline=deadline,
        budget=budget,
        objective=cast("Objective | None", objective),
        confirm=confirm,
        baseline=baseline,
        catalog=catalog,
    )
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        watch = Watch(progress=progress, cancel=interrupts.asked, workers=processors())
        answer = use_case.plan_run(catalog, request, watch=watch)
    out.write(plan_report(answer, inputs_of(request), plot=plot))
    if not answer.complete or interrupts.asked():
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.best is not None else ExitCode.ANSWER_IS_NO
