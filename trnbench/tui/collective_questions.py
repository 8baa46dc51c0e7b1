"""The questions of the Collective view, answered in a process of their own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import Record
from trnbench.program.collective import op_named
from trnbench.show.report import Report, columns
from trnbench.tui.found import TableFound
from trnbench.verbs.collective.question import AUTO

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.collective.answer import CollectiveAnswer
    from trnbench.verbs.collective.question import CollectiveQuestion
    from trnbench.verbs.collective.steps import CollectiveSteps

COLUMNS = columns(
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
    from trnbench.verbs.asking.command_lines import command_question
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
        hooks.keep(catalog, command_question("collective", asked), report, good=good)
        sizes += [SweptSize(asked=algorithm, answer=answer) for answer in answers]
    # Algorithms of one place stand together; all else is in the order in which it was asked.
    order = list(dict.fromkeys(size.on for size in sizes))
    sizes.sort(key=lambda size: order.index(size.on))
    return TableFound(
        report=Report(
            verb="collective",
            inputs=base.inputs(),
            rows=tuple({"on": one.on, "asked": one.asked, **one.answer.row()} for one in sizes),
            columns=COLUMNS,
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
