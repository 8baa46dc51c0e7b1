"""Memory of a rank of the worst pipeline stage through a step, by category and by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import BindingType

from trnbench.tui.cluster_view import FIRST_CLUSTER, ClusterView
from trnbench.tui.drawings import draw_area
from trnbench.tui.questions.layouts import MemoryFound, memory_question, memory_slots
from trnbench.tui.view import evidence_facts
from trnbench.tui.widgets.bars import StackedBars, hue_styles
from trnbench.tui.widgets.field import Field
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.panels import Picture, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.verbs.quotes.charts import block_bars
from trnbench.verbs.train.memory_text import memory_verdict

if TYPE_CHECKING:
    from trnbench.engines.analytic.step.memory_timeline import MemoryInstant


class MemoryView(ClusterView):
    """A table of slots, the memory through the step, and the blocks at a slot."""

    NAME: ClassVar[str] = "memory"
    GUIDE = "knobs"
    DELTAS = frozenset({"memory_bytes"})
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("c", "turn", "Chart", "memory.chart", "The next chart"),
        offered("p", "peak", "Peak", "memory.peak", "Go to the slot that holds most"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: MemoryFound | None = None

    def pictures(self) -> Mapping[str, Picture]:
        return {
            "timeline": TextPanel(),
            "blocks here": StackedBars(),
            "blocks at the peak": StackedBars(),
        }

    def begin(self) -> None:
        """Show the layout that another view has marked, if any has."""
        chosen = self.trnbench.cluster is not FIRST_CLUSTER
        self.take_cluster() if chosen else super().begin()

    def take_cluster(self) -> None:
        super().take_cluster()
        self.action_again()

    def action_again(self) -> None:
        self.ask("memory", memory_slots, self.job, self.layout_by_hand)

    def command(self) -> str:
        return self.line("train", memory_question(self.job, self.layout_by_hand))

    def facts(self) -> tuple[str, ...]:
        rows = [] if self._found is None else [self._found.answer.row()]
        return ("modelled", *evidence_facts(rows), "memory counted slot by slot")

    def answered(self, topic: str, value: object) -> None:
        assert isinstance(value, MemoryFound)
        self._found = value
        self.verdict(memory_verdict(value.answer))
        self.show_table(value, "slot")
        self.action_peak()

    def action_peak(self) -> None:
        held = self._found and self._found.answer.memory_timeline
        if held:
            self.query_one(ResultTable).go_to(str(held.peak.slot))

    @on(Field.Changed)
    def _changed(self) -> None:
        self.action_again()

    def drawn(self, picture: str) -> object:
        """Memory of the rank through the step, at the peak, or in the slot under the cursor."""
        answer = self._found.answer if self._found is not None else None
        if answer is None or answer.memory_timeline is None or answer.memory is None:
            return None
        held = answer.memory_timeline
        here = cast("MemoryInstant | None", self.query_one(ResultTable).answer)
        if picture == "timeline":
            at = None if here is None else held.instants.index(here)
            size = (self.room(picture).width, self.room(picture).height - 1)
            instants = [
                {str(name): size for name, size in instant.by_category.items()}
                for instant in held.instants
            ]
            limit = answer.memory.available_bytes
            return draw_area(instants, limit, at, size, hue_styles(self.app))
        if picture == "blocks at the peak":
            return block_bars(held.peak, f"by block in slot {held.peak.slot}, the peak")
        return here and block_bars(here, f"by block in slot {here.slot}, {here.phase}")
