"""The questions of the Collective view, answered in a process of their own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import Record, replace
from trnbench.program.collective import op_named
from trnbench.show.report import Report, columns
from trnbench.tui.found import TableFound

if TYPE_CHECKING:
    from trnbench.answers.collective import CollectiveAnswer
    from trnbench.app.collective_steps import CollectiveSteps
    from trnbench.app.command_lines import CommandQuestion
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.operation import Op
    from trnbench.tui.work_process import WorkHooks

AUTO = "auto"
COLUMNS = columns(
    *("on", "asked", "size_bytes", "time_s", "busbw_bytes_per_s", "algbw_bytes_per_s"),
    *("of_bound", "algorithm", "evidence", "ranks", "feasible"),
)


class CollectiveQuestion(Record):
    """An operation on places, by algorithms, over sizes."""

    op: Op
    places: tuple[tuple[str, int], ...]
    algorithms: tuple[str, ...]
    min_size: float
    max_size: float
    factor: float

    def asked(self, algorithm: str) -> CommandQuestion:
        """Return the question of the command line for one algorithm."""
        from trnbench.app.command_lines import collective_question

        return collective_question(
            self.op,
            self.places,
            (self.min_size, self.max_size, self.factor),
            algorithm=None if algorithm == AUTO else algorithm,
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
    catalog: Catalog, question: CollectiveQuestion, hooks: WorkHooks
) -> TableFound:
    """Return the sweep in closed form, for each place and algorithm."""
    from trnbench.app.collective_request import inputs_of
    from trnbench.app.verbs import collective as use_case
    from trnbench.facts.written import place_text
    from trnbench.report.collective import collective_report

    base = use_case.collective.request(
        question.op,
        on=[place_text(*place) for place in question.places],
        min_size=question.min_size,
        max_size=question.max_size,
        factor=question.factor,
    )
    sizes: list[SweptSize] = []
    for number, algorithm in enumerate(question.algorithms):
        hooks.progress(number, len(question.algorithms), algorithm)
        request = replace(base, algorithm=None if algorithm == AUTO else algorithm)
        answers = use_case.run(catalog, request, progress=hooks.progress)
        report = collective_report(answers, inputs_of(request))
        good = all(answer.feasible for answer in answers)
        hooks.keep(catalog, question.asked(algorithm), report, good=good)
        sizes += [SweptSize(asked=algorithm, answer=answer) for answer in answers]
    # Algorithms of one place stand together; all else is in the order in which it was asked.
    order = list(dict.fromkeys(size.on for size in sizes))
    sizes.sort(key=lambda size: order.index(size.on))
    return TableFound(
        report=Report(
            verb="collective",
            inputs=inputs_of(base),
            rows=tuple({"on": one.on, "asked": one.asked, **one.answer.row()} for one in sizes),
            columns=COLUMNS,
        ),
        answers=tuple(sizes),
    )


def collective_rounds(catalog: Catalog, size: SweptSize, hooks: WorkHooks) -> CollectiveSteps:
    """Return the bytes that links carry, round by round."""
    from trnbench.app.collective_steps import collective_steps
    from trnbench.facts.workload.suite import Place

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
