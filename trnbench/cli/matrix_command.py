"""`trnbench matrix`: matrix products on chips, in time and in numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.watching import ProgressLine
from trnbench.errors import InputError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.records import replace
from trnbench.verbs.matrix.question import MatrixQuestion, MatrixShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.engines.analytic.matrix.systolic import Dataflow
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.library import Product

_ARRAY = re.compile(r"(\d{1,6})x(\d{1,6}):(ws|is|os)")
_FLOWS: dict[str, Dataflow] = {"ws": "ws", "is": "is", "os": "os"}


@keeping(plots=True)
@asks(MatrixQuestion, MatrixShowing)
def matrix(out: Output, catalog: Catalog, question: MatrixQuestion, showing: MatrixShowing) -> int:
    """Time matrix products on a core or a whole chip, and compute them in its number formats.

    Times are of one core unless --cores says otherwise, and of a hand-written kernel as timed
    alone unless --kernels does. Utilisation is of the tensor units' peak in the format, not of the
    vendor's headline.
    """
    from trnbench.verbs.matrix.run import run
    from trnbench.verbs.matrix.text import matrix_report, matrix_trace

    if showing.array is not None:
        alone = question == MatrixQuestion(products=question.products)
        if not alone or showing != MatrixShowing(array=showing.array):
            raise InputError("--array takes products and an output, and no other option")
        return _bare_array(out, question.products, showing.array)
    if showing.plot:
        out.refuse_plot()
    question = question.but(trace=showing.trace is not None).settled(catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        answers = run(catalog, question, progress=progress)
    if showing.trace is not None and any(answer.events for answer in answers):
        write_whole(showing.trace, matrix_trace(answers))
        out.narrate(f"trace: {showing.trace} (open it at ui.perfetto.dev)")
    out.write(matrix_report(answers, question.inputs(), plot=showing.plot))
    good = all(a.feasible and (a.numbers is None or a.numbers.within_bound) for a in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


def _bare_array(out: Output, products: Sequence[Product], array: str) -> int:
    from trnbench.engines.analytic.matrix.systolic import SCALE_SIM
    from trnbench.verbs.matrix.run import on_array
    from trnbench.verbs.matrix.text import systolic_report

    match = _ARRAY.fullmatch(array)
    if match is None or "0" in (match[1].lstrip("0") or "0", match[2].lstrip("0") or "0"):
        raise InputError(f"--array: cannot read {array!r}; write e.g. 128x128:ws, or is, or os")
    if not products:
        raise InputError("give products, such as 4096x8192x8192")
    conventions = replace(
        SCALE_SIM, rows=int(match[1]), columns=int(match[2]), dataflow=_FLOWS[match[3]]
    )
    out.write(systolic_report(products, on_array(products, conventions), conventions))
    return ExitCode.DONE
