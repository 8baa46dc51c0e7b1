"""All layouts of a cluster, ranked; and a layout by hand with its time, memory and legality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import BindingType
from textual.timer import Timer

from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, show, significant
from trnbench.facts.workload.layout import ANY
from trnbench.facts.workload.partial_layout import PartialLayout, shown_degrees
from trnbench.show.row import Row
from trnbench.tui.cluster_view import BY_HAND, Cluster, ClusterView, layout_of, partial_layout_of
from trnbench.tui.difference import difference_text, less_and_more
from trnbench.tui.questions.layouts import (
    RankedLayouts,
    layout_detail,
    layout_pair,
    ranked_layouts,
    step_question,
)
from trnbench.tui.view import LaunchingView, evidence_facts
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.field import Field
from trnbench.tui.widgets.frame import hidden, offered
from trnbench.tui.widgets.panels import Picture, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.verbs.quotes.charts import memory_bars, step_bars

if TYPE_CHECKING:
    from trnbench.verbs.train.answer import TrainAnswer

FOLLOW_S = 0.1
"""Seconds of a resting cursor after which the row under the cursor is drawn."""
MOST_BESIDE = 8
"""Number of layouts that are drawn: the newest and its predecessors under the cursor."""


class LayoutsView(ClusterView, LaunchingView):
    """Ranked layouts, and a layout by hand."""

    NAME: ClassVar[str] = "layouts"
    GUIDE = "layout"
    RANKED = True
    DELTAS = frozenset({"step_time_s", "mfu", "memory_bytes", "tokens_per_s"})
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("enter", "choose", "Memory", "layouts.open", "Its memory; tab: its schedule"),
        offered("E", "take", "By hand", "layouts.take", "Edit this layout"),
        hidden("d", "open('schedule')", "Schedule", "layouts.schedule", "Its schedule"),
        offered("c", "turn", "Chart", "layouts.chart", "The next chart"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._looked: list[TrainAnswer] = []
        self._wanted: tuple[str, ...] = ()
        self._timer: Timer | None = None
        self._paired: list[PartialLayout] = []
        self._pair: tuple[TrainAnswer, ...] = ()

    def pictures(self) -> Mapping[str, Picture]:
        return {"step time": StackedBars(), "memory": StackedBars(), "difference": TextPanel()}

    def command(self) -> str:
        """The command line of the layout by hand, or of the layout under the cursor."""
        row = self.query_one(ResultTable).row
        by_hand = self.layout_by_hand
        layout = by_hand if by_hand.said or row is None else partial_layout_of(row)
        return self.line("train", step_question(self.job, layout))

    @property
    def copied(self) -> str:
        return "command of the layout by hand" if self.layout_by_hand.said else "command of the row"

    def launch_row(self) -> Row | None:
        """The layout by hand, or the layout under the cursor, with its job."""
        row, by_hand = super().launch_row(), self.layout_by_hand
        if by_hand.given:
            return {**cast("Row", self.job.inputs()), **by_hand.plain}
        return row

    def facts(self) -> tuple[str, ...]:
        newest = [answer.row() for answer in self._looked[:1]]
        return ("modelled", *evidence_facts(newest), "memory counted")

    def answered(self, topic: str, value: object) -> None:
        match topic:
            case "layouts":
                assert isinstance(value, RankedLayouts)
                self._looked.clear()
                self._paired, self._pair = [], ()
                self.show_table(value, *BY_HAND)
                seen = "" if value.complete else " (cancelled: not all were seen)"
                slow = "; beyond measured rows: ranked at the slow end" * value.doubted
                self.query_one(TablePane).say(
                    f"{value.feasible:,} fit, of {value.legal:,} valid{seen}{slow}"
                )
                if value.reasons:
                    self.verdict("no layout fits: " + "; ".join(value.reasons))
            case "pair":
                self._pair = cast("tuple[TrainAnswer, ...]", value)
                self.draw()
            case _:
                answer, by_hand = cast("tuple[TrainAnswer, bool]", value)
                others = [other for other in self._looked if other.layout != answer.layout]
                self._looked = [answer, *others[: MOST_BESIDE - 1]]
                self.verdict(_verdict_text(answer, by_hand=by_hand))
                self.draw()
                self.state_facts()

    def action_again(self) -> None:
        job, self._wanted = self.job, self.layout_by_hand.wanted
        layout = job.layout.changed(**dict.fromkeys(self._wanted, ANY))
        self.ask("layouts", ranked_layouts, replace(job, layout=layout))

    def action_open(self, view: str) -> None:
        """Look at the layout by hand, or under the cursor, in another view."""
        row = self.query_one(ResultTable).row
        self._mark({} if row is None else layout_of(row))
        self.trnbench.action_view(view)

    def _mark(self, layout: Mapping[str, str]) -> None:
        """Let the other views of a step show the layout by hand, or this one without any."""
        texts = self.hand_form.texts
        by_hand = texts if any(texts.values()) else layout
        self.choose_cluster(Cluster(job=self.job_form.texts, layout=by_hand))

    @on(ResultTable.Chosen)
    def _chosen(self) -> None:
        self.action_open("memory")

    def action_take(self) -> None:
        """Write the layout under the cursor into the form."""
        row = self.query_one(ResultTable).row
        if row is not None:
            # Replicas follow from the ranks and the other degrees, so no field holds them.
            self.hand_form.put({**layout_of(row), "dp": ""})
            self.open_form(self.hand_form)

    @on(Field.Changed)
    def _changed(self, event: Field.Changed) -> None:
        if (
            event.field in self.job_form.fields.values()
            or self.layout_by_hand.wanted != self._wanted
        ):
            self.action_again()
        if any(self.hand_form.texts.values()):
            self._look(self.layout_by_hand, by_hand=True)

    def follow(self) -> None:
        """Look at the row under the cursor once the cursor rests."""
        if self._timer is not None:
            self._timer.stop()
        if self.query_one(ResultTable).row is not None:
            self._timer = self.set_timer(FOLLOW_S, self._look_at_row)

    def _look_at_row(self) -> None:
        row = self.query_one(ResultTable).row
        if row is None:
            return
        self._mark(layout_of(row))
        self._look(partial_layout_of(row), by_hand=False)
        pinned = [partial_layout_of(line.row) for line in self.query_one(ResultTable).pinned[:2]]
        if pinned != self._paired and len(pinned) == 2:
            self.ask("pair", layout_pair, self.job, pinned)
        self._paired = pinned

    def _look(self, layout: PartialLayout, *, by_hand: bool) -> None:
        self.ask("layout", layout_detail, self.job, layout, by_hand)

    def drawn(self, picture: str) -> object:
        """Bars of the layouts that were looked at, or the difference of two."""
        if picture == "difference":
            pair = [
                (_layout_text(answer), answer) for answer in self._pair if len(self._paired) == 2
            ]
            return difference_text(pair, self.room(picture).width, less_and_more(self.app))
        labels = [_layout_text(answer) for answer in self._looked]
        newest = self._looked[0] if self._looked else None
        bars = step_bars if picture == "step time" else memory_bars
        return bars(self._looked, newest, labels)


def _verdict_text(answer: TrainAnswer, *, by_hand: bool) -> str:
    """Time and memory of a layout in words, or the reason why it cannot run."""
    head = f"{'by hand' if by_hand else 'row'}: {_layout_text(answer)}"
    step, memory = answer.step, answer.memory
    if answer.reasons or step is None or memory is None:
        return f"{head}\nNO: {'; '.join(answer.reasons)}"
    times = (step.step_time_s, step.low_step_time_s, step.high_step_time_s)
    time, low, high = (f"{significant(time, 4)} s" for time in times)
    text = (
        f"{head}\nfits: {time} per step ({low} to {high}), MFU {100 * step.mfu:.1f} %, "
        f"memory {show(memory.total_bytes, Dimension.BYTES, digits=3)} of "
        f"{show(memory.available_bytes, Dimension.BYTES, digits=3)} per rank"
    )
    return f"{text}\nwarning: {'; '.join(answer.warnings)}" if answer.warnings else text


def _layout_text(answer: TrainAnswer) -> str:
    """The knobs that are given, in few letters: tp8 pp4 dp32 mb1 full 1f1b."""
    knobs = answer.layout.plain
    named = (*((name, name) for name in shown_degrees([answer.layout])), ("mb", "micro_batch"))
    parts = [f"{letters}{knobs[name]}" for letters, name in named if knobs[name] is not None]
    parts += [str(knobs[name]) for name in ("recompute", "schedule") if knobs[name] is not None]
    return " ".join(parts)
