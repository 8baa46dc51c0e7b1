"""The questions of Layouts and Schedule, answered in a process of their own; without textual."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import ANY, KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.show.report import Column, Report, columns
from trnbench.show.row import Row

if TYPE_CHECKING:
    from trnbench.answers.train import TrainAnswer
    from trnbench.app.train_request import TrainRequest
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks

MOST = 2_000
"""Layouts that are ranked; the counts are of all."""

_SEARCHED = tuple(name for name, knob in KNOBS.items() if knob.searched)


def _columns(knobs: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of ranked layouts, switches last."""
    switches = [name for name in knobs if KNOBS[name].kind is bool]
    return columns(
        # What the layouts are ranked by stands where a narrow terminal shows it, too.
        *("rank", "step_time_s", "mfu", "memory_bytes"),
        *(name for name in knobs if name not in switches),
        "tokens_per_s",
        *switches,
    )


COLUMNS = _columns(_SEARCHED)


class ClusterJob(Record):
    """A model on so many instances; `layout` has its batch, sequence and precision."""

    model: str
    instance: str
    nodes: int
    layout: PartialLayout

    def inputs(self) -> dict[str, object]:
        """Return the job as plain data."""
        where = {"model": self.model, "instance": self.instance, "nodes": self.nodes}
        return {**where, **self.layout.said}


class RankedLayouts(Record):
    """The fastest layouts, and how many are legal and feasible; reasons where none fits."""

    report: Report
    legal: int
    feasible: int
    complete: bool
    reasons: tuple[str, ...]
    elapsed_s: float


class LayoutDetail(Record):
    """One layout in full."""

    answer: TrainAnswer
    by_hand: bool


def ranked_layouts(catalog: Catalog, job: ClusterJob, hooks: WorkHooks) -> RankedLayouts:
    """Return every layout of a cluster, the fastest first; what was seen if it is cancelled."""
    from trnbench import app

    asked: dict[str, Any] = dict.fromkeys(job.layout.wanted, ANY)
    found = app.search_layouts(
        catalog=catalog,
        model=job.model,
        instance=job.instance,
        nodes=job.nodes,
        global_batch=job.layout.degree("global_batch"),
        sequence=job.layout.degree("sequence"),
        precision=job.layout.text("precision") or "",
        top=MOST,
        progress=hooks.note,
        cancel=hooks.ended,
        **asked,
    )
    rows: list[Row] = [
        {
            "rank": rank,
            **cast("Row", job.inputs()),
            **PartialLayout.of(one.layout).plain,
            "step_time_s": one.step_time_s,
            "tokens_per_s": one.tokens_per_s,
            "mfu": one.mfu,
            "memory_bytes": one.memory_bytes,
            "memory_capacity_bytes": one.memory_capacity_bytes,
        }
        for rank, one in enumerate(found.ranked, start=1)
    ]
    shown = (*_SEARCHED, *(name for name in job.layout.wanted if name not in _SEARCHED))
    return RankedLayouts(
        report=Report(verb="train", inputs=job.inputs(), rows=tuple(rows), columns=_columns(shown)),
        legal=found.legal,
        feasible=found.feasible,
        complete=found.complete,
        reasons=found.reasons,
        elapsed_s=found.elapsed_s,
    )


def layout_detail(
    catalog: Catalog, job: ClusterJob, layout: PartialLayout, by_hand: bool, hooks: WorkHooks
) -> LayoutDetail:
    """Return time and memory of one layout, or why it is not legal."""
    request = train_request(job, layout)
    answer = _answered(catalog, request, hooks)
    keep_step(catalog, request, answer, hooks)
    return LayoutDetail(answer=answer, by_hand=by_hand)


def layout_pair(
    catalog: Catalog, job: ClusterJob, layouts: Sequence[PartialLayout], hooks: WorkHooks
) -> tuple[TrainAnswer, ...]:
    """Return time and memory of layouts, to be held against each other."""
    return tuple(_answered(catalog, train_request(job, one), hooks) for one in layouts)


def keep_step(
    catalog: Catalog, request: TrainRequest, answer: TrainAnswer, hooks: WorkHooks
) -> Report:
    """Keep a step as `train` would, and return its report."""
    from trnbench.app.command_lines import train_question
    from trnbench.app.train_request import inputs_of
    from trnbench.report.train import train_report
    from trnbench.report.train_memory import memory_report

    told = memory_report if request.memory else train_report
    report = told((answer,), inputs_of(request))
    hooks.keep(catalog, train_question(request), report, good=answer.feasible)
    return report


def _answered(catalog: Catalog, request: TrainRequest, hooks: WorkHooks) -> TrainAnswer:
    from trnbench.app.verbs.train import run

    (answer,) = run(catalog, request, progress=hooks.progress)
    return answer


class Window(Record):
    """The part of a step that is drawn: from `start` to `end`, as shares of it."""

    start: float = 0.0
    end: float = 1.0

    def zoomed(self, factor: float) -> Window:
        """Return a window around the same middle, `factor` times as wide."""
        middle, half = (self.start + self.end) / 2, (self.end - self.start) * factor / 2
        half = min(max(half, 0.001), 0.5)
        middle = min(max(middle, half), 1 - half)
        return Window(start=middle - half, end=middle + half)

    def moved(self, share: float) -> Window:
        """Return a window that lies further on, by a share of its own width."""
        width = self.end - self.start
        start = min(max(self.start + share * width, 0.0), 1 - width)
        return Window(start=start, end=start + width)

    @property
    def whole(self) -> bool:
        """Whether all of the step is in it."""
        return self.end - self.start > 0.999


class DrawnSchedule(Record):
    """A chart of a played schedule, with escape codes, and the answer without its timeline."""

    chart: str
    answer: TrainAnswer
    step_time_s: float


def schedule_chart(
    catalog: Catalog,
    job: ClusterJob,
    layout: PartialLayout,
    window: Window,
    style: tuple[int, int, bool, bool],
    hooks: WorkHooks,
) -> DrawnSchedule:
    """Return the chart of a window; `style`: columns, rows, colour, lanes of communication."""
    from trnbench.show.gantt import gantt
    from trnbench.show.text_table import Style

    hooks.note(0, 2, "playing the step")
    request = replace(train_request(job, layout), engines=("emulate",))
    answer = _played(catalog, request)
    keep_step(catalog, request, answer, hooks)
    hooks.progress(1, 2, "drawing")
    timeline, answer = answer.timeline, replace(answer, timeline=None)
    if timeline is None:
        return DrawnSchedule(chart="", answer=answer, step_time_s=0.0)
    columns, rows, colour, lanes = style
    step_s = float(timeline.played.step_s)
    ends = None if window.whole else (window.start * step_s, window.end * step_s)
    drawn = gantt(
        timeline, Style(width=columns, colour=colour), lanes=lanes, rows=rows, window=ends
    )
    return DrawnSchedule(chart=drawn, answer=answer, step_time_s=step_s)


@lru_cache(maxsize=4)
def _played(catalog: Catalog, request: TrainRequest) -> TrainAnswer:
    """Return a played step; scrolling through it plays it once."""
    from trnbench.app.verbs.train import run

    (answer,) = run(catalog, replace(request, timeline=True))
    return answer


def train_request(job: ClusterJob, layout: PartialLayout) -> TrainRequest:
    """Return the request for one layout."""
    from trnbench.app.train_request import TrainCase, TrainRequest

    case = TrainCase(
        model=job.model,
        instance=job.instance,
        nodes=job.nodes,
        layout=PartialLayout(**{**job.layout.said, **layout.said}),
    )
    return TrainRequest(cases=(case,))
