"""The questions about a cluster: its layouts, a step that is played, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import ANY, KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase
from trnbench.show.charts.record import GanttChart
from trnbench.show.report import Column, Report, columns
from trnbench.show.row import Row
from trnbench.tui.work_process import TableFound

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.train.answer import TrainAnswer
    from trnbench.verbs.train.question import TrainQuestion

MOST = 2_000
"""Layouts that are ranked; the counts are of all."""

_SEARCHED = tuple(name for name, knob in KNOBS.items() if knob.searched)


def _columns(knobs: Sequence[str], *, doubted: bool = False) -> tuple[Column, ...]:
    """The columns of ranked layouts, switches last."""
    switches = [name for name in knobs if KNOBS[name].kind is bool]
    return columns(
        # What the layouts are ranked by stands where a narrow terminal shows it, too.
        *("rank", "step_time_s", *["ranked_s"] * doubted, "mfu", "memory_bytes"),
        *(name for name in knobs if name not in switches),
        "tokens_per_s",
        *switches,
    )


LAYOUT_COLUMNS = _columns(_SEARCHED)


class RankedLayouts(TableFound):
    """The fastest layouts, and how many are legal and feasible; reasons where none fits."""

    legal: int
    feasible: int
    complete: bool
    reasons: tuple[str, ...]
    doubted: bool
    """True where some lie beyond measured rows: those rank by the slow end of their times."""


def ranked_layouts(catalog: Catalog, job: TrainCase, hooks: WorkHooks) -> RankedLayouts:
    """Every layout of a cluster, the fastest first; after a cancel those seen until then."""
    from trnbench.verbs.search_layouts.run import search_layouts

    asked: dict[str, Any] = dict.fromkeys(job.layout.wanted, ANY)
    searched = search_layouts(
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
    ranked = [*searched.ranked]
    doubted = len({answer.doubt for answer in ranked}) > 1
    rows: list[Row] = [
        {
            "rank": rank,
            **cast("Row", job.inputs()),
            **PartialLayout.of(answer.layout).plain,
            "step_time_s": answer.step_time_s,
            "ranked_s": None if answer.doubt == 1 else answer.doubt * answer.step_time_s,
            "tokens_per_s": answer.tokens_per_s,
            "mfu": answer.mfu,
            "memory_bytes": answer.memory_bytes,
            "memory_capacity_bytes": answer.memory_capacity_bytes,
        }
        for rank, answer in enumerate(ranked, start=1)
    ]
    shown = (*_SEARCHED, *(name for name in job.layout.wanted if name not in _SEARCHED))
    return RankedLayouts(
        report=Report(
            verb="train",
            inputs=job.inputs(),
            rows=tuple(rows),
            columns=_columns(shown, doubted=doubted),
        ),
        legal=searched.legal,
        feasible=searched.feasible,
        complete=searched.complete,
        reasons=searched.reasons,
        doubted=doubted,
    )


def layout_detail(
    catalog: Catalog, job: TrainCase, layout: PartialLayout, by_hand: bool, hooks: WorkHooks
) -> tuple[TrainAnswer, bool]:
    """Time and memory of a layout, or why it is not legal; and whether it was made by hand."""
    question = step_question(job, layout)
    answer = _answered(catalog, question, hooks)
    keep_step(catalog, question, answer, hooks)
    return answer, by_hand


def layout_pair(
    catalog: Catalog, job: TrainCase, layouts: Sequence[PartialLayout], hooks: WorkHooks
) -> tuple[TrainAnswer, ...]:
    return tuple(_answered(catalog, step_question(job, layout), hooks) for layout in layouts)


def keep_step(
    catalog: Catalog, question: TrainQuestion, answer: TrainAnswer, hooks: WorkHooks
) -> Report:
    """Keep a step as `train` would, and return its report."""
    from trnbench.verbs.train.memory_text import memory_report
    from trnbench.verbs.train.text import train_report

    make_report = memory_report if question.memory else train_report
    report = make_report((answer,), question.inputs())
    hooks.keep(catalog, ("train", question), report, good=answer.feasible)
    return report


def _answered(catalog: Catalog, question: TrainQuestion, hooks: WorkHooks) -> TrainAnswer:
    from trnbench.verbs.train.run import run

    (answer,) = run(catalog, question, progress=hooks.progress)
    return answer


class Window(Record):
    """The drawn part of a step: from `start` to `end`, as shares of the step."""

    start: float = 0.0
    end: float = 1.0

    def zoomed(self, factor: float) -> Window:
        """A window around the same middle, `factor` times as wide."""
        middle, half = (self.start + self.end) / 2, (self.end - self.start) * factor / 2
        half = min(max(half, 0.001), 0.5)
        middle = min(max(middle, half), 1 - half)
        return Window(start=middle - half, end=middle + half)

    def moved(self, share: float) -> Window:
        """The window moved on by a share of its own width."""
        width = self.end - self.start
        start = min(max(self.start + share * width, 0.0), 1 - width)
        return Window(start=start, end=start + width)

    @property
    def whole(self) -> bool:
        return self.end - self.start > 0.999


class DrawnSchedule(Record):
    """A chart of a played schedule, with escape codes, and the answer without its timeline."""

    chart: str
    answer: TrainAnswer
    step_time_s: float
    figure: GanttChart | None = None


def schedule_chart(
    catalog: Catalog,
    job: TrainCase,
    layout: PartialLayout,
    window: Window,
    style: tuple[int, int, bool, bool],
    hooks: WorkHooks,
) -> DrawnSchedule:
    """The chart of a window; `style`: columns, rows, colour, lanes of communication."""
    from trnbench.show.charts.gantt import gantt_text
    from trnbench.show.text_table import Style
    from trnbench.verbs.train.schedule_chart import schedule_figure

    hooks.note(0, 2, "playing the step")
    question = step_question(job, layout).but(engines=("emulate",))
    answer = _played(catalog, question)
    keep_step(catalog, question, answer, hooks)
    hooks.progress(1, 2, "drawing")
    timeline, answer = answer.timeline, replace(answer, timeline=None)
    if timeline is None:
        return DrawnSchedule(chart="", answer=answer, step_time_s=0.0)
    columns, rows, colour, lanes = style
    step_s = float(timeline.played.step_s)
    ends = None if window.whole else (window.start * step_s, window.end * step_s)
    figure = schedule_figure(timeline, lanes=lanes, rows=rows, window_s=ends)
    drawn = gantt_text(figure, Style(width=columns, colour=colour))
    return DrawnSchedule(chart=drawn, answer=answer, step_time_s=step_s, figure=figure)


@lru_cache(maxsize=4)
def _played(catalog: Catalog, question: TrainQuestion) -> TrainAnswer:
    """A played step, played once however far people scroll."""
    from trnbench.verbs.train.run import run

    (answer,) = run(catalog, question.but(timeline=True))
    return answer


def step_question(job: TrainCase, layout: PartialLayout) -> TrainQuestion:
    """The question of a layout."""
    from trnbench.verbs.train.question import TrainQuestion

    return TrainQuestion(
        model=job.model,
        places=((job.instance, job.nodes),),
        layout=PartialLayout(**{**job.layout.said, **layout.said}),
    )


MEMORY_COLUMNS = columns(
    *("slot", "phase", "memory_bytes", "peak", "in_flight", "micro_batch_number", "chunk"),
    *("start_s", "end_s"),
)


class MemoryFound(TableFound):
    """Memory of a rank of the worst stage, a row a slot; the answer has the instants."""

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
        report=replace(report, columns=MEMORY_COLUMNS, people=None),
        answers=() if held is None else held.instants,
        answer=replace(answer, timeline=None),
    )
