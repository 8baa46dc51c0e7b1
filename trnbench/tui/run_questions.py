"""What the Run view asks: one benchmark suite; answered in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trnbench.answers.row import Row
from trnbench.report.report import Report, columns

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks

KINDS = ("matrix", "collective", "training")
ENGINES = ("analytic", "emulate", "both")
SUITE_COLUMNS = columns("suite", "title")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """What came of a suite: rows as its command prints them; all of them, or those until a stop."""

    kind: str
    name: str
    report: Report
    complete: bool


def suites(catalog: Catalog) -> Report:
    """Return the suites, a row each."""
    from trnbench.catalog.toml_file import read_toml

    rows: list[Row] = [
        {
            "suite": f"{kind}/{entry.name}",
            "title": str(read_toml(entry.path).get("title", "")),
        }
        for kind in KINDS
        for entry in catalog.entries(kind)
    ]
    return Report(verb="workload-list", inputs={}, rows=tuple(rows), columns=SUITE_COLUMNS)


def run_suite(catalog: Catalog, kind: str, name: str, engine: str, hooks: WorkHooks) -> SuiteRun:
    """Return what came of a suite, piece by piece, so that what is ready outlives a stop."""
    engines = ("analytic", "emulate") if engine == "both" else (engine,)
    match kind:
        case "matrix":
            return _matrix(catalog, name, engines, hooks)
        case "collective":
            return _collective(catalog, name, engines, hooks)
        case _:
            return _training(catalog, name, engines, hooks)


def _matrix(catalog: Catalog, name: str, engines: Sequence[str], hooks: WorkHooks) -> SuiteRun:
    from trnbench.answers.matrix import MatrixAnswer
    from trnbench.app.verbs import matrix as use_case
    from trnbench.report.matrix import matrix_report

    request = replace(use_case.matrix.request(suite=name, catalog=catalog), engines=tuple(engines))
    answers: list[MatrixAnswer] = []
    for number, product in enumerate(request.products):
        hooks.note(number, len(request.products), product.label or f"product {number + 1}")
        if hooks.ended():
            break
        answers += use_case.run(catalog, replace(request, products=(product,)))
    report = matrix_report(answers, use_case.inputs_of(request))
    whole = len(request.products) * len(request.chips) * len(request.formats) * len(engines)
    return _done("matrix", name, report, len(answers) == whole)


def _collective(catalog: Catalog, name: str, engines: Sequence[str], hooks: WorkHooks) -> SuiteRun:
    from trnbench.answers.collective import CollectiveAnswer
    from trnbench.app.collective_request import inputs_of
    from trnbench.app.verbs import collective as use_case
    from trnbench.report.collective import collective_report

    request = replace(
        use_case.collective.request(suite=name, catalog=catalog), engines=tuple(engines)
    )
    pieces = [(where, op) for where in request.places for op in request.ops]
    answers: list[CollectiveAnswer] = []
    done = 0
    for number, (where, op) in enumerate(pieces):
        hooks.note(number, len(pieces), f"{op} on {where.instance}:{where.nodes}")
        if hooks.ended():
            break
        answers += use_case.run(catalog, replace(request, places=(where,), ops=(op,)))
        done += 1
    report = collective_report(answers, inputs_of(request)) if answers else _nothing(name)
    return _done("collective", name, report, done == len(pieces))


def _training(catalog: Catalog, name: str, engines: Sequence[str], hooks: WorkHooks) -> SuiteRun:
    from trnbench.answers.train import TrainAnswer
    from trnbench.app.train_request import TrainRequest, inputs_of, suite_cases
    from trnbench.app.verbs.train import run
    from trnbench.report.train import train_report

    cases = suite_cases(catalog, name)
    request = TrainRequest(cases=cases, suite=name, engines=tuple(engines))
    answers: list[TrainAnswer] = []
    for number, case in enumerate(cases):
        hooks.note(number, len(cases), case.label)
        if hooks.ended():
            break
        answers += run(catalog, replace(request, cases=(case,)))
    report = train_report(answers, inputs_of(request)) if answers else _nothing(name)
    return _done("training", name, report, len(answers) == len(cases) * len(engines))


def _nothing(name: str) -> Report:
    return Report(verb="run", inputs={"suite": name}, rows=(), columns=())


def _done(kind: str, name: str, report: Report, complete: bool) -> SuiteRun:
    return SuiteRun(kind=kind, name=name, report=replace(report, people=None), complete=complete)
