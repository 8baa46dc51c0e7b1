"""`trnbench claims`: what vendors claim, and what specs, price lists and the model say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.verbs.claims.question import ClaimsQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@printing
@asks(ClaimsQuestion)
def claims(out: Output, catalog: Catalog, question: ClaimsQuestion) -> int:
    """Try claims of performance and cost on the specs, the price lists and the model.

    A claim holds, holds only if (a figure, machine, run or price is chosen), does not, or cannot be
    told. What turns on prices is tried again whenever one changed; announced price cuts and
    discounts are tried on their own days.
    """
    from trnbench.verbs.claims.run import run
    from trnbench.verbs.claims.text import claims_report

    question = question.settled(catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        claimed = run(catalog, question, progress=progress)
    out.write(claims_report(claimed, question.inputs()))
    return ExitCode.DONE
