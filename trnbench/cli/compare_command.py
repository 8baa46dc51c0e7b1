"""`trnbench compare`: a training run on several instance types, in days and USD."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.watching import watching
from trnbench.errors import InputError
from trnbench.facts.parsing import literal
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.asking.shared_options import DETAILS, AgainstKept
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.scenario import scenario_file_options

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


class CompareShowing(Question):
    """Columns and files of a comparison, and the kept run it is held against."""

    scenario: Path | None = option(
        "A scenario that the terminal UI saved; options of the command line win.",
        metavar="FILE",
        fills=scenario_file_options,
    )
    scaling: str | None = option(
        "Instead: the chosen layout on every cluster size, replicas scaled.", metavar="strong|weak"
    )
    held: AgainstKept = group(AgainstKept)
    plot: bool = option("Draw cost over days, or scaling.")
    details: bool = DETAILS


@keeping(reports=True, plots=True)
@asks(CompareQuestion, CompareShowing)
def compare(
    out: Output, catalog: Catalog, question: CompareQuestion, showing: CompareShowing
) -> int:
    """Compare instance types for one training run: days, USD, and why, each in its best layout.

    Degrees and modes that are not given are searched. Each cluster is bought in the cheapest way;
    spot (interruptible) only with --purchase spot. Without MODEL, --tokens or --on usual ones are
    taken, and the answer says which.
    """
    from trnbench.verbs.compare.run import compare_run
    from trnbench.verbs.compare.text import compare_report

    question = question.settled(catalog)
    if showing.plot:
        out.refuse_plot()
    if showing.scaling is not None:
        if showing.held.against is not None:
            raise InputError("--against holds a comparison, not its --scaling, against a run")
        return _scaling(out, catalog, question, showing.scaling, plot=showing.plot)
    with watching(out) as watch:
        answer = compare_run(catalog, question, watch=watch)
    report = compare_report(answer, question.inputs(), plot=showing.plot, details=showing.details)
    report, regressed = showing.held.beside(report)
    out.write(report)
    if not answer.complete:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.positive and not regressed else ExitCode.ANSWER_IS_NO


def _scaling(
    out: Output, catalog: Catalog, question: CompareQuestion, scaling: str, *, plot: bool
) -> int:
    from trnbench.verbs.compare.scaling import Scaling, scale_run, scaling_report

    how = literal("scaling", scaling, Scaling)
    with watching(out) as watch:
        answer = scale_run(catalog, question, cast("Scaling", how), watch=watch)
    inputs = question.inputs() | {"scaling": scaling}
    out.write(scaling_report(answer, inputs, plot=plot))
    if not answer.complete:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.positive else ExitCode.ANSWER_IS_NO
