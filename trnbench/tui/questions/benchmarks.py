"""The questions about products and collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import Record, replace
from trnbench.program.collective import op_named
from trnbench.show.report import Report, columns
from trnbench.tui.work_process import TableFound
from trnbench.verbs.collective.question import AUTO

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.library import Product
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.collective.answer import CollectiveAnswer
    from trnbench.verbs.collective.question import CollectiveQuestion
    from trnbench.verbs.collective.steps import CollectiveSteps
    from trnbench.verbs.matrix.question import MatrixQuestion
    from trnbench.verbs.matrix.run import MatrixAnswer


def matrix_rows(catalog: Catalog, question: MatrixQuestion, hooks: WorkHooks) -> TableFound:
    """The answers in closed form."""
    from trnbench.verbs.matrix.run import run
    from trnbench.verbs.matrix.text import matrix_report

    asked = question.settled(catalog)
    answers = run(catalog, asked, progress=hooks.progress)
    report = matrix_report(answers, asked.inputs())
    good = all(answer.feasible for answer in answers)
    hooks.keep(catalog, ("matrix", asked), report, good=good)
    return TableFound(report=replace(report, people=None), answers=tuple(answers))


def matrix_heat(
    catalog: Catalog, question: MatrixQuestion, k: int, sizes: tuple[int, ...], hooks: WorkHooks
) -> dict[str, dict[tuple[int, int], float | None]]:
    """Utilisation by (m, n), each of these sizes, for each chip and format, at a fixed k."""
    from trnbench.facts.workload.library import Product
    from trnbench.verbs.matrix.run import run

    products = tuple(Product(m=m, k=k, n=n) for m in sizes for n in sizes)
    asked = question.settled(catalog).but(products=products)
    maps: dict[str, dict[tuple[int, int], float | None]] = {}
    for answer in run(catalog, asked, progress=hooks.progress):
        cell = (answer.product.m, answer.product.n)
        share = answer.utilization if answer.feasible else None
        maps.setdefault(f"{answer.chip} {answer.number_format}", {})[cell] = share
    return maps


def matrix_engines(
    catalog: Catalog, question: MatrixQuestion, product: Product, chip: str, hooks: WorkHooks
) -> MatrixAnswer:
    """A product on a chip, played by the emulator."""
    from trnbench.verbs.matrix.run import run

    asked = question.settled(catalog)
    one = asked.but(products=(product,), chips=(chip,), formats=asked.formats[:1])
    (answer,) = run(catalog, one.but(engines=("emulate",)), progress=hooks.progress)
    return answer


SWEEP_COLUMNS = columns(
    *("on", "asked", "size_bytes", "time_s", "busbw_bytes_per_s", "algbw_bytes_per_s"),
    *("of_bound", "algorithm", "evidence", "ranks", "feasible"),
)


class SweptSize(Record):
    """One size of a sweep, and the algorithm that was asked for."""

    asked: str
    answer: CollectiveAnswer

    @property
    def on(self) -> str:
        """The cluster, such as trn1.32xlarge:4."""
        return f"{self.answer.instance}:{self.answer.nodes}"


def collective_sweep(
    catalog: Catalog, question: CollectiveQuestion, algorithms: tuple[str, ...], hooks: WorkHooks
) -> TableFound:
    """The sweep in closed form, for each place and algorithm."""
    from trnbench.verbs.collective.run import run
    from trnbench.verbs.collective.text import collective_report

    base = question.settled(catalog)
    sizes: list[SweptSize] = []
    for number, algorithm in enumerate(algorithms):
        hooks.progress(number, len(algorithms), algorithm)
        asked = base.but(algorithm=algorithm)
        answers = run(catalog, asked, progress=hooks.progress)
        report = collective_report(answers, asked.inputs())
        good = all(answer.feasible for answer in answers)
        hooks.keep(catalog, ("collective", asked), report, good=good)
        sizes += [SweptSize(asked=algorithm, answer=answer) for answer in answers]
    # Algorithms of one place stand together; all else is in the order in which it was asked.
    order = list(dict.fromkeys(size.on for size in sizes))
    sizes.sort(key=lambda size: order.index(size.on))
    return TableFound(
        report=Report(
            verb="collective",
            inputs=base.inputs(),
            rows=tuple({"on": size.on, "asked": size.asked, **size.answer.row()} for size in sizes),
            columns=SWEEP_COLUMNS,
        ),
        answers=tuple(sizes),
    )


def collective_rounds(catalog: Catalog, size: SweptSize, hooks: WorkHooks) -> CollectiveSteps:
    """Bytes on links, round by round."""
    from trnbench.facts.workload.library import Place
    from trnbench.verbs.collective.steps import collective_steps

    hooks.progress(0, 1, "placing messages on links")
    answer = size.answer
    return collective_steps(
        catalog,
        op_named(answer.op),
        Place(instance=answer.instance, nodes=answer.nodes),
        answer.size_bytes,
        algorithm=None if size.asked == AUTO else size.asked,
        time_s=answer.time_s or None,
    )
