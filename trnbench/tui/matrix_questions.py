"""The questions of the Matrix view, answered in a process of their own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import replace
from trnbench.tui.found import TableFound

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.library import Product
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.matrix.answer import MatrixAnswer
    from trnbench.verbs.matrix.question import MatrixQuestion


def matrix_rows(catalog: Catalog, question: MatrixQuestion, hooks: WorkHooks) -> TableFound:
    """The answers in closed form."""
    from trnbench.verbs.asking.command_lines import command_question
    from trnbench.verbs.matrix.run import run
    from trnbench.verbs.matrix.text import matrix_report

    asked = question.settled(catalog)
    answers = run(catalog, asked, progress=hooks.progress)
    report = matrix_report(answers, asked.inputs())
    good = all(answer.feasible for answer in answers)
    hooks.keep(catalog, command_question("matrix", asked), report, good=good)
    return TableFound(report=replace(report, people=None), answers=tuple(answers))


def matrix_heat(
    catalog: Catalog, question: MatrixQuestion, k: int, sizes: tuple[int, ...], hooks: WorkHooks
) -> dict[str, dict[tuple[int, int], float | None]]:
    """Utilisation by (m, n), each of these sizes, for each chip and format, at a fixed k."""
    from trnbench.facts.workload.library import Product
    from trnbench.verbs.matrix.run import run

    products = tuple(Product(m=m, k=k, n=n) for m in sizes for n in sizes)
    asked = question.settled(catalog).but(products=products)
    found: dict[str, dict[tuple[int, int], float | None]] = {}
    for answer in run(catalog, asked, progress=hooks.progress):
        cell = (answer.product.m, answer.product.n)
        share = answer.utilization if answer.feasible else None
        found.setdefault(f"{answer.chip} {answer.number_format}", {})[cell] = share
    return found


def matrix_engines(
    catalog: Catalog, question: MatrixQuestion, product: Product, chip: str, hooks: WorkHooks
) -> MatrixAnswer:
    """A product on a chip, played by the emulator."""
    from trnbench.verbs.matrix.run import run

    asked = question.settled(catalog)
    (answer,) = run(
        catalog,
        asked.but(
            products=(product,), chips=(chip,), formats=asked.formats[:1], engines=("emulate",)
        ),
        progress=hooks.progress,
    )
    return answer
