"""The question of the Run view, a benchmark suite, answered in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trnbench.facts.records import Record, replace
from trnbench.show.report import Report, columns
from trnbench.show.row import Row

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.asking.command_lines import CommandQuestion

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
        {
            "suite": f"{kind}/{entry.name}",
            "title": str(read_toml(entry.path).get("title", "")),
        }
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
    report = (
        report_of(answers)
        if answers
        else Report(verb="run", inputs={"suite": name}, rows=(), columns=())
    )
    if done == len(pieces):
        question = suite_question(kind, name, engine)
        hooks.keep(catalog, question, report, good=all(one.feasible for one in answers))
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
    return pieces, run, lambda found: matrix_report(found, asked.inputs())


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
    return pieces, run, lambda found: collective_report(found, asked.inputs())


def _training(catalog: Catalog, name: str, engines: Sequence[str]) -> SuitePieces:
    from trnbench.verbs.train.question import TrainQuestion
    from trnbench.verbs.train.run import run
    from trnbench.verbs.train.text import train_report

    asked = TrainQuestion(suite=name, engines=tuple(engines)).settled(catalog)
    pieces = [(case.label, asked.but(of_suite=(case,))) for case in asked.cases]
    return pieces, run, lambda found: train_report(found, asked.inputs())


_SUITES = {"matrix": _matrix, "collective": _collective, "training": _training}
