"""`trnbench fleet`: many jobs and one purchase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.interrupts import Interrupts, processors
from trnbench.cli.names import completes
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.cli.run_options import MAX_AGE_VARIABLE
from trnbench.facts.parsing import duration, share

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping(reports=True)
def fleet(
    out: Output,
    catalog: Catalog,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A fleet file, or the name of a shipped one.",
            autocompletion=completes(("fleets",)),
        ),
    ],
    gap: Annotated[
        float | None,
        typer.Option(
            parser=share("--gap"),
            metavar="SHARE",
            help="Stop so near to the least cost; default: 0.1%.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            parser=duration("--time-limit"),
            metavar="TIME",
            help="Stop each search after this; then the same question may have another answer.",
        ),
    ] = None,
    limit_costs: Annotated[
        bool,
        typer.Option(
            "--limit-costs/--no-limit-costs", help="Solve again without each limit, to price it."
        ),
    ] = True,
    max_price_age: Annotated[
        float | None,
        typer.Option(
            parser=duration("--max-price-age"),
            envvar=MAX_AGE_VARIABLE,
            metavar="TIME",
            help="Warn of rates read longer before the price date: 90d.",
        ),
    ] = None,
) -> int:
    """Plan many jobs together: on what each runs from when, and what to buy on which day.

    Commitments, blocks on offer, quotas and budgets are shared. The plan is proved by a
    mixed-integer programme to be within a gap of the least cost; one made job by job starts it, and
    stands in where it finds none. What cannot be done says what stands in the way.
    """
    from trnbench.app.searching import Watch
    from trnbench.app.verbs import fleet as use_case
    from trnbench.report.fleet import fleet_report

    request = use_case.fleet.request(
        file,
        gap=gap,
        time_limit=time_limit,
        limit_costs=limit_costs,
        max_price_age=max_price_age,
        catalog=catalog,
    )
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        watch = Watch(progress=progress, cancel=interrupts.asked, workers=processors())
        answer = use_case.fleet_run(catalog, request, watch=watch)
    out.write(fleet_report(answer, use_case.inputs_of(request)))
    if interrupts.asked():
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.feasible else ExitCode.ANSWER_IS_NO
