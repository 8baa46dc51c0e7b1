"""The pipeline of a layout as a Gantt chart: the work of each stage, and its waits by cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.widget import Widget

from trnbench.facts.units import significant
from trnbench.show.report import Report
from trnbench.tui.cluster_view import ClusterView
from trnbench.tui.questions.layouts import DrawnSchedule, Window, schedule_chart, step_question
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.field import Field
from trnbench.tui.widgets.frame import hidden, offered, roomy
from trnbench.tui.widgets.panels import TextPanel
from trnbench.verbs.quotes.charts import step_bars

CHROME = 4
"""Lines of the chart's place that are legend and axis."""


class ScheduleView(ClusterView):
    """A played step, drawn; zoomed and scrolled by keys."""

    NAME: ClassVar[str] = "schedule"
    GUIDE = "engines"
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("plus,equals_sign", "zoom(0.5)", "Zoom in", "schedule.in"),
        offered("minus", "zoom(2)", "Out", "schedule.out", "Zoom out"),
        hidden("left,h", "scroll(-0.25)", "Earlier", "schedule.left"),
        hidden("right,l", "scroll(0.25)", "Later", "schedule.right"),
        hidden("home,g", "scroll(-1000)", "Start", "schedule.start"),
        hidden("end,G", "scroll(1000)", "End", "schedule.end"),
        offered("z", "whole", "Whole", "schedule.whole", "The whole step"),
        offered("n", "lanes", "Lanes", "schedule.lanes", "Rows for communication"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._window = Window()
        self._lanes_shown = False
        self._drawn: DrawnSchedule | None = None
        self._gantt, self._bars = TextPanel(), StackedBars()
        self._gantt.id, self._bars.id = "picture-gantt", "step-bars"

    def main(self) -> Iterable[Widget]:
        """The chart, and the times of the step."""
        for panel in (self._gantt, self._bars):
            panel.add_class("picture")
        self._gantt.border_title = "simulated; bubble: share of the step that a stage waits"
        self._bars.border_title = "step time of the slowest stage, simulated"
        return self._gantt, self._bars

    def begin(self) -> None:
        self._lanes_shown = roomy(self.screen)
        self.take_cluster()

    def take_cluster(self) -> None:
        super().take_cluster()
        self._window = Window()
        self.call_after_refresh(self.action_again)

    @on(TextPanel.Resized)
    def _fit_chart(self) -> None:
        if self._drawn is not None:
            self.action_again()

    def command(self) -> str:
        """The command line that draws the schedule."""
        question = step_question(self.job, self.layout_by_hand).but(engines=("emulate",))
        return f"{self.line('train', question)} --plot"

    def facts(self) -> tuple[str, ...]:
        return ("modelled (simulated slot by slot)", "blank = waiting (bubble)")

    def texts(self) -> dict[str, str]:
        """No fields: the cluster is chosen in Layouts."""
        return {}

    @property
    def report(self) -> Report | None:
        if self._drawn is None:
            return None
        return Report(verb="train", inputs={}, rows=(self._drawn.answer.row(),), columns=())

    def drawing(self) -> tuple[str, object]:
        return "schedule", None if self._drawn is None else self._drawn.figure

    def answered(self, topic: str, value: object) -> None:
        assert isinstance(value, DrawnSchedule)
        self._drawn = value
        answer = value.answer
        if not value.chart:
            self.verdict(f"NO: {'; '.join(answer.reasons)}")
            self.query_one(TextPanel).show("nothing to draw: this layout cannot run")
            return
        start, end = (share * value.step_time_s for share in (self._window.start, self._window.end))
        row = answer.layout.plain
        # In seconds, as along the axis.
        part = "" if self._window.whole else f"; drawn: {start:,.4g} to {end:,.4g} s"
        self.verdict(
            f"{answer.model} on {answer.nodes} x {answer.instance}: tp{row['tp']} pp{row['pp']} "
            f"dp{row['dp']} vpp{row['vpp']} mb{row['micro_batch']} {row['schedule']}, "
            f"{significant(value.step_time_s, 4)} s per step, simulated{part}"
        )
        self.query_one(TextPanel).show(value.chart)
        self.query_one(StackedBars).show(step_bars([answer], answer))

    def focus_main(self) -> None:
        self.set_focus(self.query_one(TextPanel))

    def action_zoom(self, factor: float) -> None:
        self._window = self._window.zoomed(factor)
        self.action_again()

    def on_mouse_scroll_up(self) -> None:
        self.action_zoom(0.5)

    def on_mouse_scroll_down(self) -> None:
        self.action_zoom(2)

    def action_scroll(self, share: float) -> None:
        self._window = self._window.moved(share)
        self.action_again()

    def action_whole(self) -> None:
        self._window = Window()
        self.action_again()

    def action_lanes(self) -> None:
        self._lanes_shown = not self._lanes_shown
        self.action_again()

    @on(Field.Changed)
    def _changed(self) -> None:
        self._window = Window()
        self.action_again()

    def action_again(self) -> None:
        """Draw the layout of the forms."""
        size = self.query_one(TextPanel).size
        if not size.width:
            return
        style = (size.width - 1, max(size.height - CHROME, 4), True, self._lanes_shown)
        self.ask("schedule", schedule_chart, self.job, self.layout_by_hand, self._window, style)
