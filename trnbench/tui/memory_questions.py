"""The question of the Memory view, answered in a process of its own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.show.report import columns
from trnbench.tui.found import TableFound
from trnbench.tui.layout_questions import ClusterJob, keep_step, train_request

if TYPE_CHECKING:
    from trnbench.answers.train import TrainAnswer
    from trnbench.app.train_request import TrainRequest
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks


COLUMNS = columns(
    *("slot", "phase", "memory_bytes", "peak", "in_flight", "micro_batch_number", "chunk"),
    *("start_s", "end_s"),
)


class MemoryFound(TableFound):
    """What a rank of the worst stage holds, a row a slot; the answer has the instants."""

    answer: TrainAnswer


def memory_request(job: ClusterJob, layout: PartialLayout) -> TrainRequest:
    """Return the request for the memory of one layout."""
    return replace(train_request(job, layout), memory=True)


def memory_slots(
    catalog: Catalog, job: ClusterJob, layout: PartialLayout, hooks: WorkHooks
) -> MemoryFound:
    """Return the memory of the worst rank, slot by slot."""
    from trnbench.app.verbs.train import run

    hooks.note(0, 1, "playing the step")
    request = memory_request(job, layout)
    (answer,) = run(catalog, request)
    report = keep_step(catalog, request, answer, hooks)
    held = answer.memory_timeline
    return MemoryFound(
        report=replace(report, columns=COLUMNS, people=None),
        answers=() if held is None else held.instants,
        answer=replace(answer, timeline=None),
    )
