"""`trnbench plan`: which machines, how many, in which layout, bought how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.interrupts import Interrupts, processors
from trnbench.cli.names import completes
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.cli.run_options import Details, takes_run
from trnbench.errors import InputError
from trnbench.facts.parsing import duration, money

if TYPE_CHECKING:
    from trnbench.answers.quote import Quote
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog
    from trnbench.money.objective import Objective


@keeping(reports=True, plots=True)
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
            help="Finish within this time, e.g. 30d; default for least cost: 60d.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(parser=money("--budget"), metavar="USD", help="Spend at most, e.g. 5M."),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="cost|time|pareto",
            help="What to minimise; default: cost, or time with --budget alone.",
        ),
    ] = None,
    confirm: Annotated[
        int,
        typer.Option(min=0, metavar="K", help="Simulate the best K layouts in the emulator too."),
    ] = 0,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANCE",
            help="Instance type for the break-even MFU; default: that of the plan.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--launch", metavar="FOLDER", help="Write the files that start the plan there."
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--with", metavar="SCHEDULER", help="With --launch: see `launch --list`."),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw cost over days.")] = False,
    details: Details = False,
) -> int:
    """Plan a training run: the answer first, then the alternatives and what would change it.

    Every valid layout on every cluster size of every instance type, bought in every way; spot
    (interruptible) only with --purchase spot.
    """
    from trnbench.app.launching import known_scheduler, refuse_full
    from trnbench.app.plan_request import inputs_of
    from trnbench.app.searching import Watch
    from trnbench.app.verbs import plan as use_case
    from trnbench.report.plan import plan_report

    if plot:
        out.refuse_plot()
    if (into is None) != (scheduler is None):
        raise InputError("--launch FOLDER and --with SCHEDULER go together")
    if into is not None and scheduler is not None:
        known_scheduler(scheduler)
        refuse_full(into, force=False)
    if "model" not in run:
        raise InputError(
            "which model? e.g. `trnbench plan llama3.1-8b --tokens 1T --on trn2.48xlarge`"
        )
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
    out.write(plan_report(answer, inputs_of(request), plot=plot, details=details))
    if into is None or answer.best is None or scheduler is None:
        launched = True
    else:
        launched = _launched(out, catalog, answer.best, into, scheduler)
    if not answer.complete or interrupts.asked():
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.best is not None and launched else ExitCode.ANSWER_IS_NO


def _launched(out: Output, catalog: Catalog, best: Quote, folder: Path, scheduler: str) -> bool:
    """Write the files that start a plan, or say why there are none."""
    from trnbench.app.launching import launch_row, write_launch

    try:
        found = launch_row(catalog, best.row(), scheduler=scheduler)
    except InputError as error:
        out.narrate(f"nothing is launched: {error.message}")
        return False
    answer = found.answer
    if answer.folder is None:
        out.narrate(f"nothing is launched: {'; '.join(answer.step.reasons)}")
        return False
    write_launch(folder, answer, found.inputs)
    out.narrate(f"written: {folder}; {folder / 'README.md'} says how to start it")
    if answer.folder.empty:
        named = ", ".join(value.name for value in answer.folder.empty)
        out.narrate(f"to fill in, in values.env: {named}")
    return True
