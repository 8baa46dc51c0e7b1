"""The questions about products, collectives, and suites of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trnbench.facts.records import Record, replace
from trnbench.program.collective import op_named
from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.tui.work_process import TableFound
from trnbench.verbs.collective.question import AUTO

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.library import Product
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.asking.command_lines import CommandQuestion
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


VERBS = {"matrix": "matrix", "collective": "collective", "training": "train"}
"""By kind of suite, the verb that runs it."""
ENGINES = ("analytic", "emulate", "both")
SUITE_COLUMNS = columns("suite", "title")


class SuiteRun(Record):
    """Rows of a suite as its command prints them: all of them, or those until it was stopped."""

    kind: str
    name: str
    engine: str
    report: Report
    complete: bool


def suites(catalog: Catalog) -> Report:
    """The suites, a row each."""
    from trnbench.facts.catalog.toml_file import read_toml

    rows: list[Row] = [
        {"suite": f"{kind}/{entry.name}", "title": str(read_toml(entry.path).get("title", ""))}
        for kind in VERBS
        for entry in catalog.entries(kind)
    ]
    return Report(verb="workload-list", inputs={}, rows=tuple(rows), columns=SUITE_COLUMNS)


def suite_question(kind: str, name: str, engine: str) -> CommandQuestion:
    from trnbench.verbs.asking.command_lines import CommandQuestion

    return CommandQuestion(verb=VERBS[kind], options={"suite": name, "engine": engine})


def run_suite(catalog: Catalog, kind: str, name: str, engine: str, hooks: WorkHooks) -> SuiteRun:
    """The rows of a suite, run in pieces; finished rows survive a stop."""
    engines = ("analytic", "emulate") if engine == "both" else (engine,)
    pieces, run, report_of = _SUITES[kind](catalog, name, engines)
    answers: list[Any] = []
    done = 0
    for label, request in pieces:
        hooks.note(done, len(pieces), label)
        if hooks.ended():
            break
        answers += run(catalog, request)
        done += 1
    none = Report(verb="run", inputs={"suite": name}, rows=(), columns=())
    report = report_of(answers) if answers else none
    if done == len(pieces):
        question = suite_question(kind, name, engine)
        hooks.keep(catalog, question, report, good=all(answer.feasible for answer in answers))
    return SuiteRun(
        kind=kind,
        name=name,
        engine=engine,
        report=replace(report, people=None),
        complete=done == len(pieces),
    )


SuitePieces: TypeAlias = tuple[
    list[tuple[str, Any]], Callable[..., Any], Callable[[list[Any]], Report]
]
"""Requests with their labels, the use case of a request, and the report of all answers."""


def _matrix(catalog: Catalog, name: str, engines: Sequence[str]) -> SuitePieces:
    from trnbench.verbs.matrix.question import MatrixQuestion
    from trnbench.verbs.matrix.run import run
    from trnbench.verbs.matrix.text import matrix_report

    asked = MatrixQuestion(suite=name, engines=tuple(engines)).settled(catalog)
    pieces = [
        (product.label or f"product {number}", asked.but(products=(product,)))
        for number, product in enumerate(asked.products, start=1)
    ]
    return pieces, run, lambda answers: matrix_report(answers, asked.inputs())


def _collective(catalog: Catalog, name: str, engines: Sequence[str]) -> SuitePieces:
    from trnbench.verbs.collective.question import CollectiveQuestion
    from trnbench.verbs.collective.run import run
    from trnbench.verbs.collective.text import collective_report

    asked = CollectiveQuestion(suite=name, engines=tuple(engines)).settled(catalog)
    pieces = [
        (f"{op} on {where.instance}:{where.nodes}", asked.but(places=(where,), ops=(op,)))
        for where in asked.places
        for op in asked.ops
    ]
    return pieces, run, lambda answers: collective_report(answers, asked.inputs())


def _training(catalog: Catalog, name: str, engines: Sequence[str]) -> SuitePieces:
    from trnbench.verbs.train.question import TrainQuestion
    from trnbench.verbs.train.run import run
    from trnbench.verbs.train.text import train_report

    asked = TrainQuestion(suite=name, engines=tuple(engines)).settled(catalog)
    pieces = [(case.label, asked.but(of_suite=(case,))) for case in asked.cases]
    return pieces, run, lambda answers: train_report(answers, asked.inputs())


_SUITES = {"matrix": _matrix, "collective": _collective, "training": _training}
