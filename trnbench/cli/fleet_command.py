"""`trnbench fleet`: many jobs and one purchase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.watching import watching
from trnbench.verbs.fleet.question import FleetQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping(reports=True)
@asks(FleetQuestion)
def fleet(out: Output, catalog: Catalog, question: FleetQuestion) -> int:
    """Plan many jobs together: on what each runs from when, and what to buy on which day.

    Commitments, blocks on offer, quotas and budgets are shared. A mixed-integer programme proves
    the plan to be within a gap of the least cost. It starts from a greedy plan, which is also the
    fallback. If no plan is feasible, the answer names the constraint.
    """
    from trnbench.verbs.fleet.run import fleet_run
    from trnbench.verbs.fleet.text import fleet_report

    question = question.settled(catalog)
    with watching(out) as watch:
        answer = fleet_run(catalog, question, watch=watch)
    out.write(fleet_report(answer, question.inputs()))
    if watch.cancel():
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.feasible else ExitCode.ANSWER_IS_NO
