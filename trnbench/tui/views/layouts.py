"""All layouts of a cluster, ranked; and one edited by hand, with its time, memory and legality."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from trnbench.answers.row import Row
from trnbench.tui.cluster import Cluster, layout_of, partial_layout_of
from trnbench.tui.compare_pictures import memory_bars, time_bars
from trnbench.tui.layout_form import (
    job_of,
    layout_by_hand,
    side_forms,
)
from trnbench.tui.layout_questions import (
    Detail,
    Ranked,
    layout_detail,
    ranked_layouts,
    train_request,
)
from trnbench.tui.view import View, footing
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.field import Field, Form
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.switch import PictureSwitch
from trnbench.tui.widgets.table_model import TableSource
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.units import Dimension, show
from trnbench.workload.partial_layout import PartialLayout, shown_degrees

DELTAS = frozenset({"step_time_s", "mfu", "memory_bytes", "tokens_per_s"})
FOLLOW_S = 0.1
"""A row is looked at when the cursor has rested on it so long."""
MOST_BESIDE = 8
"""Earlier looks that are drawn beside the newest."""


class LayoutsView(View):
    """Ranked layouts, and one by hand."""

    NAME: ClassVar[str] = "layouts"
    LABEL: ClassVar[str] = "Layouts"
    DEFAULT_CSS = """
    LayoutsView #layouts-hand { height: auto; }
    LayoutsView #layouts-job { height: auto; }
    LayoutsView .heading { height: 1; padding: 0 1; text-style: bold; }
    LayoutsView #layouts-verdict { height: auto; max-height: 6; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "turn", "Chart", id="layouts.chart", tooltip="The next picture"),
        Binding(
            "r",
            "search",
            "Search",
            show=False,
            id="layouts.search",
            tooltip="Search all layouts anew",
        ),
        Binding(
            "enter", "take", "By hand", show=False, id="layouts.take", tooltip="Edit this layout"
        ),
        Binding("d", "schedule", "Schedule", id="layouts.schedule", tooltip="Draw its schedule"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._cluster: Cluster | None = None
        self._looked: list[Row] = []
        self._timer: Timer | None = None
        self._quiet = False

    def body(self) -> Iterable[Widget]:
        """Return forms, table and pictures."""
        self._cluster = self.trnbench.cluster
        yield Horizontal(
            side_forms(self.trnbench.catalog, self._cluster.job, "layouts"),
            Vertical(
                TablePane(id="layouts-table"),
                Static("", id="layouts-verdict", markup=False),
                PictureSwitch(
                    [
                        ("step time", StackedBars(id="layouts-step")),
                        ("memory", StackedBars(id="layouts-memory")),
                    ],
                    id="layouts-pictures",
                ),
                classes="main",
            ),
        )

    @property
    def _job_form(self) -> Form:
        return self.query_one("#layouts-job", Form)

    @property
    def _hand(self) -> Form:
        return self.query_one("#layouts-hand", Form)

    def begin(self) -> None:
        """Rank all layouts."""
        self.action_search()

    def on_screen_resume(self) -> None:
        """Take the cluster that was chosen elsewhere."""
        if self._cluster is not None and self.trnbench.cluster is not self._cluster:
            self._cluster = self.trnbench.cluster
            self._job_form.put(dict(self._cluster.job))
            self._hand.put(dict(self._cluster.layout))
            for field in self.query(Field):
                field.look()

    def command(self) -> str:
        """Return the command line of the layout by hand."""
        from trnbench.app.command_lines import train_line

        return train_line(train_request(job_of(self._job_form), layout_by_hand(self._hand)))

    def facts(self) -> tuple[str, ...]:
        """Return what the numbers rest on."""
        return ("modelled", *footing(self._looked[:1]), "memory counted")

    def stale(self, topic: str) -> None:
        """Mark the ranking of the cluster before."""
        if topic == "layouts":
            self.query_one(ResultTable).stale = True

    def answered(self, topic: str, value: object) -> None:
        """Show the ranking, or one layout."""
        match value:
            case Ranked():
                keys = tuple(" ".join(layout_of(row).values()) for row in value.report.rows)
                self._looked.clear()
                self.query_one(ResultTable).show(
                    TableSource(report=value.report, keys=keys, deltas=DELTAS)
                )
                seen = "" if value.complete else " (cancelled: not all were seen)"
                self.query_one(TablePane).say(
                    f"of {value.feasible:,} that fit, {value.legal:,} legal{seen}, "
                    f"{value.elapsed_s:.2f} s"
                )
                if value.reasons:
                    self._verdict("no layout fits: " + "; ".join(value.reasons))
            case Detail():
                layout = layout_of(value.row)
                others = [row for row in self._looked if layout_of(row) != layout]
                self._looked = [value.row, *others[: MOST_BESIDE - 1]]
                self._tell_verdict(value)
                self._draw()
                self.state_facts()

    def cancelled(self, topic: str) -> None:
        """Say that rows are of the search before."""
        if topic == "layouts":
            self.query_one(TablePane).say("cancelled")

    def action_turn(self) -> None:
        """Show the next picture."""
        self.query_one(PictureSwitch).turn()

    def action_search(self) -> None:
        """Search all layouts of the cluster."""
        job = job_of(self._job_form)
        self.ask("layouts", partial(ranked_layouts, self.trnbench.catalog, job))

    def action_schedule(self) -> None:
        """Draw the schedule of the layout by hand, or under the cursor."""
        row = self.query_one(ResultTable).row
        texts = dict(self._hand.texts)
        layout = texts if any(texts.values()) or row is None else layout_of(row)
        self.trnbench.cluster = Cluster(job=dict(self._job_form.texts), layout=layout)
        self._cluster = self.trnbench.cluster
        self.trnbench.action_view("schedule")

    @on(ResultTable.Chosen)
    def _take(self, event: ResultTable.Chosen) -> None:
        """Put the layout into the fields, to be edited; replicas are what the ranks leave."""
        self._hand.put({**layout_of(event.row), "dp": ""})
        self.open_form(self._hand)

    @on(Field.Changed)
    def _changed(self, event: Field.Changed) -> None:
        if event.field in self._job_form.fields.values():
            self.action_search()
        if any(self._hand.texts.values()):
            self._look(layout_by_hand(self._hand), by_hand=True)

    @on(ResultTable.Highlighted)
    def _highlighted(self, event: ResultTable.Highlighted) -> None:
        if self._timer is not None:
            self._timer.stop()
        if event.row is not None:
            self._timer = self.set_timer(FOLLOW_S, self._look_at_row)

    @on(PictureSwitch.Turned)
    def _turned(self) -> None:
        self._draw()

    def _look_at_row(self) -> None:
        row = self.query_one(ResultTable).row
        if row is not None:
            self._look(partial_layout_of(row), by_hand=False)

    def _look(self, layout: PartialLayout, *, by_hand: bool) -> None:
        job = job_of(self._job_form)
        self.ask("layout", partial(layout_detail, self.trnbench.catalog, job, layout, by_hand))

    def _tell_verdict(self, detail: Detail) -> None:
        row = detail.row
        who = "by hand" if detail.by_hand else "row"
        reasons = row.get("reasons") or ()
        warnings = row.get("warnings") or ()
        assert isinstance(reasons, tuple)
        assert isinstance(warnings, tuple)
        head = f"{who}: {_layout_text(row)}"
        if reasons:
            self._verdict(f"{head}\nNO: {'; '.join(map(str, reasons))}")
            return
        step, low, high = (_number(row, f"{end}step_time_s") for end in ("", "low_", "high_"))
        memory, room = _number(row, "memory_bytes"), _number(row, "memory_available_bytes")
        text = (
            f"{head}\nfits: {show(step, Dimension.SECONDS, digits=4)} a step "
            f"({show(low, Dimension.SECONDS, digits=3)} to "
            f"{show(high, Dimension.SECONDS, digits=3)}), "
            f"MFU {100 * _number(row, 'mfu'):.1f} %, "
            f"memory {show(memory, Dimension.BYTES, digits=3)} of "
            f"{show(room, Dimension.BYTES, digits=3)}"
        )
        if warnings:
            text += f"\nwarning: {'; '.join(map(str, warnings))}"
        self._verdict(text)

    def _verdict(self, text: str) -> None:
        self.query_one("#layouts-verdict", Static).update(text)

    def _draw(self) -> None:
        rows = self._looked
        here = rows[0] if rows else None
        if self.query_one(PictureSwitch).shown == "step time":
            bars = time_bars(rows, here, label=_layout_text)
            self.query_one("#layouts-step", StackedBars).show(bars)
        else:
            bars = memory_bars(rows, here, label=_layout_text)
            self.query_one("#layouts-memory", StackedBars).show(bars)


def _layout_text(row: Row) -> str:
    parts = [f"{name}{row[name]}" for name in shown_degrees([partial_layout_of(row)])]
    parts.append(f"mb{row['micro_batch']}")
    parts += [str(row[name]) for name in ("recompute", "schedule") if row.get(name) is not None]
    return " ".join(parts)


def _number(row: Row, key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) else float("nan")
