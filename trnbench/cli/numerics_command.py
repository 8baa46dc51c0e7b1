"""`trnbench numerics`: what number formats do to training, on the emulated hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.verbs.numerics.question import NumericsQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping()
@asks(NumericsQuestion)
def numerics(out: Output, catalog: Catalog, question: NumericsQuestion) -> int:
    """Train one small model in several precisions: what do I lose, and what gives it back?

    Every recipe sees the same weights and texts, seed by seed; matrix products, sums and rounding
    are those of the emulated tensor engine.
    """
    from trnbench.verbs.numerics.run import run
    from trnbench.verbs.numerics.text import numerics_report

    question = question.settled(catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        answer = run(catalog, question, progress=progress)
    out.write(numerics_report(answer, question.inputs()))
    return ExitCode.DONE
