"""The question of the Memory view, answered in a process of its own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase
from trnbench.show.report import columns
from trnbench.tui.found import TableFound
from trnbench.tui.layout_questions import keep_step, step_question

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.train.answer import TrainAnswer
    from trnbench.verbs.train.question import TrainQuestion


COLUMNS = columns(
    *("slot", "phase", "memory_bytes", "peak", "in_flight", "micro_batch_number", "chunk"),
    *("start_s", "end_s"),
)


class MemoryFound(TableFound):
    """What a rank of the worst stage holds, a row a slot; the answer has the instants."""

    answer: TrainAnswer


def memory_question(job: TrainCase, layout: PartialLayout) -> TrainQuestion:
    return step_question(job, layout).but(memory=True)


def memory_slots(
    catalog: Catalog, job: TrainCase, layout: PartialLayout, hooks: WorkHooks
) -> MemoryFound:
    """The memory of the worst rank, slot by slot."""
    from trnbench.verbs.train.run import run

    hooks.note(0, 1, "playing the step")
    question = memory_question(job, layout)
    (answer,) = run(catalog, question)
    report = keep_step(catalog, question, answer, hooks)
    held = answer.memory_timeline
    return MemoryFound(
        report=replace(report, columns=COLUMNS, people=None),
        answers=() if held is None else held.instants,
        answer=replace(answer, timeline=None),
    )
