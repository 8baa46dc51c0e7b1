"""The questions of the Matrix view, answered in a process of their own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records import Record, replace
from trnbench.tui.found import TableFound

if TYPE_CHECKING:
    from trnbench.answers.matrix import MatrixAnswer
    from trnbench.app.verbs.matrix import MatrixRequest
    from trnbench.catalog.search import Catalog
    from trnbench.mapping.tiling.schedule import Kernel
    from trnbench.tui.work_process import WorkHooks
    from trnbench.workload.suite import Product


class MatrixQuestion(Record):
    """The products, or the suite, and how they are to run."""

    products: tuple[Product, ...]
    suite: str | None
    chips: tuple[str, ...]
    formats: tuple[str, ...]
    pattern: str | None
    kernel: Kernel
    cores: str

    def request(self, catalog: Catalog) -> MatrixRequest:
        """Return the request for the use case."""
        from trnbench.app.verbs import matrix as use_case

        return use_case.matrix.request(
            () if self.suite else self.products,
            suite=self.suite,
            on=self.chips,
            dtype=self.formats,
            sparsity=self.pattern,
            kernel=self.kernel,
            cores=self.cores,
            catalog=catalog,
        )


def matrix_rows(catalog: Catalog, question: MatrixQuestion, hooks: WorkHooks) -> TableFound:
    """Return the answers in closed form."""
    from trnbench.app.command_lines import matrix_question
    from trnbench.app.verbs import matrix as use_case
    from trnbench.report.matrix import matrix_report

    request = question.request(catalog)
    answers = use_case.run(catalog, request, progress=hooks.progress)
    report = matrix_report(answers, use_case.inputs_of(request))
    good = all(answer.feasible for answer in answers)
    hooks.keep(catalog, matrix_question(request, question.suite), report, good=good)
    return TableFound(report=replace(report, people=None), answers=tuple(answers))


def matrix_heat(
    catalog: Catalog, question: MatrixQuestion, k: int, sizes: tuple[int, ...], hooks: WorkHooks
) -> dict[str, dict[tuple[int, int], float | None]]:
    """Return utilisation by (m, n), each of these sizes, for each chip and format, at one k."""
    from trnbench.app.verbs import matrix as use_case
    from trnbench.workload.suite import Product

    products = tuple(Product(m=m, k=k, n=n) for m in sizes for n in sizes)
    request = replace(question.request(catalog), products=products)
    found: dict[str, dict[tuple[int, int], float | None]] = {}
    for answer in use_case.run(catalog, request, progress=hooks.progress):
        cell = (answer.product.m, answer.product.n)
        share = answer.utilization if answer.feasible else None
        found.setdefault(f"{answer.chip} {answer.number_format}", {})[cell] = share
    return found


def matrix_engines(
    catalog: Catalog, question: MatrixQuestion, product: Product, chip: str, hooks: WorkHooks
) -> MatrixAnswer:
    """Return one product on one chip as the emulator plays it."""
    from trnbench.app.verbs import matrix as use_case

    request = question.request(catalog)
    (answer,) = use_case.run(
        catalog,
        replace(
            request,
            products=(product,),
            chips=(chip,),
            formats=request.formats[:1],
            engines=("emulate",),
        ),
        progress=hooks.progress,
    )
    return answer
