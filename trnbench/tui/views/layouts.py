"""All layouts of a cluster, ranked; and one edited by hand, with its time, memory and legality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from trnbench.tui.cluster import BY_HAND, Cluster, layout_of, partial_layout_of
from trnbench.tui.cluster_view import ClusterView
from trnbench.tui.compare_pictures import memory_bars, time_bars
from trnbench.tui.found import TableFound
from trnbench.tui.layout_questions import (
    LayoutDetail,
    RankedLayouts,
    layout_detail,
    ranked_layouts,
    train_request,
)
from trnbench.tui.view import evidence_facts, hidden
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.field import Field
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.switch import PictureSwitch
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.units import Dimension, show
from trnbench.workload.partial_layout import PartialLayout, shown_degrees

if TYPE_CHECKING:
    from trnbench.answers.train import TrainAnswer

FOLLOW_S = 0.1
"""A row is looked at when the cursor has rested on it so long."""
MOST_BESIDE = 8
"""Layouts that are drawn: the newest, and those looked at before it."""


class LayoutsView(ClusterView):
    """Ranked layouts, and one by hand."""

    NAME: ClassVar[str] = "layouts"
    DELTAS = frozenset({"step_time_s", "mfu", "memory_bytes", "tokens_per_s"})
    DEFAULT_CSS = """
    LayoutsView #layouts-verdict { height: auto; max-height: 6; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "turn", "Chart", id="layouts.chart", tooltip="The next picture"),
        hidden("r", "search", "Search", "layouts.search", "Search all layouts anew"),
        hidden("enter", "take", "By hand", "layouts.take", "Edit this layout"),
        Binding("d", "schedule", "Schedule", id="layouts.schedule", tooltip="Draw its schedule"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._looked: list[TrainAnswer] = []
        self._timer: Timer | None = None

    def main(self) -> Iterable[Widget]:
        """Return table, verdict and pictures."""
        table, pictures = super().main()
        return table, Static("", id="layouts-verdict", markup=False), pictures

    def pictures(self) -> Mapping[str, Widget]:
        """Return the pictures."""
        return {
            "step time": StackedBars(id="layouts-step"),
            "memory": StackedBars(id="layouts-memory"),
        }

    def begin(self) -> None:
        """Rank all layouts."""
        self.action_search()

    def command(self) -> str:
        """Return the command line of the layout by hand."""
        from trnbench.app.command_lines import train_line

        return train_line(train_request(self.job, self.layout_by_hand))

    def facts(self) -> tuple[str, ...]:
        """Return where the numbers come from."""
        newest = [answer.row() for answer in self._looked[:1]]
        return ("modelled", *evidence_facts(newest), "memory counted")

    def answered(self, topic: str, value: object) -> None:
        """Show the ranking, or one layout."""
        match value:
            case RankedLayouts():
                self._looked.clear()
                self.show_table(TableFound(report=value.report), *BY_HAND)
                seen = "" if value.complete else " (cancelled: not all were seen)"
                self.query_one(TablePane).say(
                    f"of {value.feasible:,} that fit, {value.legal:,} legal{seen}, "
                    f"{value.elapsed_s:.2f} s"
                )
                if value.reasons:
                    self._verdict("no layout fits: " + "; ".join(value.reasons))
            case LayoutDetail(answer=answer):
                others = [one for one in self._looked if one.layout != answer.layout]
                self._looked = [answer, *others[: MOST_BESIDE - 1]]
                self._verdict(_verdict_text(value))
                self._draw()
                self.state_facts()

    def cancelled(self, topic: str) -> None:
        """Say that rows are of the search before."""
        if topic == "layouts":
            self.query_one(TablePane).say("cancelled")

    def action_search(self) -> None:
        """Search all layouts of the cluster."""
        self.ask("layouts", ranked_layouts, self.job)

    def action_schedule(self) -> None:
        """Draw the schedule of the layout by hand, or under the cursor."""
        row = self.query_one(ResultTable).row
        texts = self.hand_form.texts
        layout = texts if any(texts.values()) or row is None else layout_of(row)
        self.choose_cluster(Cluster(job=self.job_form.texts, layout=layout))
        self.trnbench.action_view("schedule")

    @on(ResultTable.Chosen)
    def _take(self, event: ResultTable.Chosen) -> None:
        """Put the layout into the fields, to be edited; replicas are what the ranks leave."""
        self.hand_form.put({**layout_of(event.row), "dp": ""})
        self.open_form(self.hand_form)

    @on(Field.Changed)
    def _changed(self, event: Field.Changed) -> None:
        if event.field in self.job_form.fields.values():
            self.action_search()
        if any(self.hand_form.texts.values()):
            self._look(self.layout_by_hand, by_hand=True)

    @on(ResultTable.Highlighted)
    def _highlighted(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        if self.query_one(ResultTable).row is not None:
            self._timer = self.set_timer(FOLLOW_S, self._look_at_row)

    def _look_at_row(self) -> None:
        row = self.query_one(ResultTable).row
        if row is not None:
            self._look(partial_layout_of(row), by_hand=False)

    def _look(self, layout: PartialLayout, *, by_hand: bool) -> None:
        self.ask("layout", layout_detail, self.job, layout, by_hand)

    def _verdict(self, text: str) -> None:
        self.query_one("#layouts-verdict", Static).update(text)

    @on(PictureSwitch.Turned)
    def _draw(self) -> None:
        labels = [_layout_text(answer) for answer in self._looked]
        newest = self._looked[0] if self._looked else None
        if self.picture == "step time":
            bars = time_bars(self._looked, newest, labels)
            self.query_one("#layouts-step", StackedBars).show(bars)
        else:
            bars = memory_bars(self._looked, newest, labels)
            self.query_one("#layouts-memory", StackedBars).show(bars)


def _verdict_text(detail: LayoutDetail) -> str:
    """Return time and memory of a layout in words, or why it cannot run."""
    answer = detail.answer
    head = f"{'by hand' if detail.by_hand else 'row'}: {_layout_text(answer)}"
    step, memory = answer.step, answer.memory
    if answer.reasons or step is None or memory is None:
        return f"{head}\nNO: {'; '.join(answer.reasons)}"
    text = (
        f"{head}\nfits: {show(step.step_time_s, Dimension.SECONDS, digits=4)} a step "
        f"({show(step.low_step_time_s, Dimension.SECONDS, digits=3)} to "
        f"{show(step.high_step_time_s, Dimension.SECONDS, digits=3)}), "
        f"MFU {100 * step.mfu:.1f} %, "
        f"memory {show(memory.total_bytes, Dimension.BYTES, digits=3)} of "
        f"{show(memory.available_bytes, Dimension.BYTES, digits=3)}"
    )
    return f"{text}\nwarning: {'; '.join(answer.warnings)}" if answer.warnings else text


def _layout_text(answer: TrainAnswer) -> str:
    knobs = answer.layout.plain
    parts = [f"{name}{knobs[name]}" for name in shown_degrees([answer.layout])]
    parts.append(f"mb{knobs['micro_batch']}")
    parts += [str(knobs[name]) for name in ("recompute", "schedule") if knobs[name] is not None]
    return " ".join(parts)
