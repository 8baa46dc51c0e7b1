"""The questions of Layouts and Schedule, answered in a process of their own; without textual."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from trnbench.answers.row import Row
from trnbench.report.report import Report, columns
from trnbench.workload.layout import KNOBS
from trnbench.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.answers.train import TrainAnswer
    from trnbench.app.train_request import TrainRequest
    from trnbench.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks

MOST = 2_000
"""Layouts that are ranked; the counts are of all."""

_SEARCHED = [knob for knob in KNOBS.values() if knob.searched]
COLUMNS = columns(
    "rank",
    *(knob.name for knob in _SEARCHED if knob.kind is not bool),
    *("step_time_s", "mfu", "memory_bytes", "tokens_per_s"),
    *(knob.name for knob in _SEARCHED if knob.kind is bool),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """A model on so many instances; `layout` has its batch, sequence and precision."""

    model: str
    instance: str
    nodes: int
    layout: PartialLayout

    def inputs(self) -> dict[str, object]:
        """Return the job as plain data."""
        where = {"model": self.model, "instance": self.instance, "nodes": self.nodes}
        return {**where, **self.layout.given}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLayouts:
    """The fastest layouts, and how many are legal and feasible; reasons where none fits."""

    report: Report
    legal: int
    feasible: int
    complete: bool
    reasons: tuple[str, ...]
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutDetail:
    """One layout in full."""

    answer: TrainAnswer
    by_hand: bool


def ranked_layouts(catalog: Catalog, job: ClusterJob, hooks: WorkHooks) -> RankedLayouts:
    """Return every layout of a cluster, the fastest first; what was seen if it is cancelled."""
    from trnbench import app

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
    return RankedLayouts(
        report=Report(verb="train", inputs=job.inputs(), rows=tuple(rows), columns=COLUMNS),
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
    from trnbench.app.verbs.train import run

    (answer,) = run(catalog, train_request(job, layout), progress=hooks.progress)
    return LayoutDetail(answer=answer, by_hand=by_hand)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSchedule:
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
    from trnbench.report.gantt import gantt
    from trnbench.report.text_table import Style

    hooks.note(0, 2, "playing the step")
    answer = _played(catalog, train_request(job, layout))
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

    (answer,) = run(catalog, replace(request, engines=("emulate",), timeline=True))
    return answer


def train_request(job: ClusterJob, layout: PartialLayout) -> TrainRequest:
    """Return the request for one layout."""
    from trnbench.app.train_request import TrainCase, TrainRequest

    case = TrainCase(
        model=job.model,
        instance=job.instance,
        nodes=job.nodes,
        layout=PartialLayout(**{**job.layout.given, **layout.given}),
    )
    return TrainRequest(cases=(case,))
