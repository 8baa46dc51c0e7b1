"""`trnbench explain`: why measured steps take other than predicted, and what to try."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import printing
from trnbench.cli.watching import ProgressLine
from trnbench.verbs.explain.question import ExplainQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@functools.partial(printing, reports=True)
@asks(ExplainQuestion)
def explain(out: Output, catalog: Catalog, question: ExplainQuestion) -> int:
    """Say why measured steps take longer, or less, than predicted: which cause, what to try.

    `explain FOLDER LOG` takes the folder that `trnbench launch` wrote: it says what ran. All rows
    are explained together: other nodes, degrees and micro-batches help to tell causes apart.

    Rows of --json, the likeliest cause first: cause, title, change, magnitude, beside, probability,
    tied, explained, explained_alone, experiment, remedy. Its summary: verdict, says, steps, tied,
    telling_run.
    """
    from trnbench.verbs.explain.run import run
    from trnbench.verbs.explain.text import explain_report

    question = question.settled(catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        explanation = run(catalog, question, progress=progress)
    for remark in explanation.measured.remarks:
        out.narrate(remark)
    out.write(explain_report(explanation, question.inputs()))
    return ExitCode.DONE
