"""`trnbench verify`: did a launched run go as predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.watching import ProgressLine
from trnbench.verbs.verify.question import VerifyQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping()
@asks(VerifyQuestion)
def verify(out: Output, catalog: Catalog, question: VerifyQuestion) -> int:
    """Say whether a launched run goes as predicted: the first line of `explain FOLDER LOG`.

    The median warm step of each log is compared with the 80 % interval predicted for the job.
    Exit code 1 if one is outside.

    Rows of --json: id, measured_s, predicted_s, low_s, high_s, difference, verdict. Its summary:
    as_predicted, largest_terms, explain, remarks.
    """
    from trnbench.verbs.explain.text import verify_report
    from trnbench.verbs.verify.run import run

    question = question.settled(catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        explanation = run(catalog, question, progress=progress)
    for remark in explanation.remarks:
        out.narrate(remark)
    command = question.why(catalog)
    out.write(verify_report(explanation, question.inputs(), command))
    if explanation.as_predicted:
        return ExitCode.DONE
    out.narrate(f"to find out why: {command}")
    return ExitCode.ANSWER_IS_NO
