"""`trnbench collective`: collectives on instances and clusters, over message sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.watching import ProgressLine
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.verbs.collective.question import CollectiveQuestion, CollectiveShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping(plots=True)
@asks(CollectiveQuestion, CollectiveShowing)
def collective(
    out: Output, catalog: Catalog, question: CollectiveQuestion, showing: CollectiveShowing
) -> int:
    """Time a collective over message sizes, as nccl-tests and nccom-test print it.

    Sizes count as nccl-tests does; KiB is 1024 bytes, KB is 1000. algbw is size over time; busbw
    is algbw x 2(r-1)/r for all-reduce, x (r-1)/r for all-gather, reduce-scatter and all-to-all.
    """
    from trnbench.verbs.collective.run import run
    from trnbench.verbs.collective.text import collective_report, collective_trace

    if showing.plot:
        out.refuse_plot()
    question = question.but(trace=showing.trace is not None).settled(catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        answers = run(catalog, question, progress=progress)
    if showing.trace is not None:
        write_whole(showing.trace, collective_trace(answers))
        out.narrate(f"trace: {showing.trace} (open it at ui.perfetto.dev)")
    inputs = question.inputs()
    out.write(collective_report(answers, inputs, links=question.links, plot=showing.plot))
    good = all(a.feasible and not (a.check or "").startswith("FAILED") for a in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO
