"""The main job: what a training run costs and takes on several instance types, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from trnbench.answers.row import Row
from trnbench.errors import TrnbenchError
from trnbench.scenario import Scenario
from trnbench.tui.cluster import cluster_of
from trnbench.tui.compare_pictures import (
    cost_chart,
    memory_bars,
    speed_chart,
    time_bars,
    time_interval_chart,
)
from trnbench.tui.compare_questions import (
    CompareFound,
    Point,
    compare_points,
    compare_request,
    compare_rows,
    spec_report,
)
from trnbench.tui.scenario_form import scenario_fields, scenario_of, texts_of
from trnbench.tui.view import View, footing
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, Form
from trnbench.tui.widgets.panels import TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.switch import PictureSwitch
from trnbench.tui.widgets.table_model import TableSource
from trnbench.tui.widgets.table_pane import TablePane

DELTAS = frozenset(
    {"days", "cost_usd", "tokens_per_s", "mfu", "usd_per_million_tokens", "step_time_s"}
)


class CompareView(View):
    """Scenario, table, and a picture that follows the cursor."""

    NAME: ClassVar[str] = "compare"
    LABEL: ClassVar[str] = "Compare"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "turn", "Chart", id="compare.chart", tooltip="The next picture"),
        Binding("C", "turn_back", "Chart back", show=False, id="compare.chart_back"),
        Binding(
            "w", "app.save", "Save", show=False, id="compare.save", tooltip="Save the scenario"
        ),
        Binding("o", "app.load", "Open", show=False, id="compare.load", tooltip="Load a scenario"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: CompareFound | None = None
        self._points: tuple[Point, ...] = ()
        self._refused = ""

    def body(self) -> Iterable[Widget]:
        """Return form, table and pictures."""
        specs = scenario_fields(self.trnbench.catalog, self.trnbench.today)
        yield Horizontal(
            Vertical(Form(specs, id="compare-form"), classes="side"),
            Vertical(
                TablePane(id="compare-table"),
                PictureSwitch(
                    [
                        ("cost/time", Chart(id="compare-cost")),
                        ("speed/nodes", Chart(id="compare-speed")),
                        ("step time", StackedBars(id="compare-step")),
                        ("memory", StackedBars(id="compare-memory")),
                        ("days", Chart(id="compare-days")),
                        ("why", TextPanel(id="compare-why", wrap=True)),
                    ],
                    id="compare-pictures",
                ),
                classes="main",
            ),
        )

    @property
    def scenario(self) -> Scenario:
        """The last good scenario."""
        return scenario_of(self.query_one(Form))

    def compose(self) -> ComposeResult:
        """Start what plans beside painting."""
        self.warm("compare", "trnbench.app.verbs.compare", "trnbench.report.compare")
        yield from super().compose()

    def begin(self) -> None:
        """Show what is known of the instances, then plan."""
        self._show_specs()
        self._ask()

    def take(self, scenario: Scenario) -> None:
        """Put a scenario into the form."""
        self.query_one(Form).put(texts_of(scenario))
        for field in self.query(Field):
            field.look()

    def command(self) -> str:
        """Return the command line of the rows."""
        from trnbench.app.command_lines import compare_line

        baseline = self.query_one(ResultTable).state.baseline
        request = compare_request(self.scenario)
        if baseline not in request.run.instances:
            baseline = None
        return compare_line(replace(request, baseline=baseline))

    def facts(self) -> tuple[str, ...]:
        """Return what the numbers rest on."""
        rows = () if self._found is None else self._found.report.rows
        date = self.query_one(Form).texts["price_date"]
        return ("modelled", f"USD, prices of {date}", *footing(rows), "intervals hold 80%")

    def stale(self, topic: str) -> None:
        """Mark the answers of the scenario before."""
        if topic == "compare" and self._found is not None:
            self.query_one(ResultTable).stale = True
            self.query_one(TablePane).say("of the scenario before; planning ...")

    def answered(self, topic: str, value: object) -> None:
        """Show rows, then what the charts need."""
        match value:
            case CompareFound():
                self._found = value
                self._points = value.points
                self.query_one(ResultTable).show(
                    TableSource(report=value.report, keys=_keys(value.report.rows), deltas=DELTAS)
                )
                self.query_one(TablePane).say(str(value.report.summary.get("footing", "")))
                self.state_facts()
                if value.one_size:
                    scenario = self.scenario
                    self.ask("charts", partial(compare_points, self.trnbench.catalog, scenario))
            case tuple():
                self._points = value
        self._draw()

    def refused(self, topic: str, message: str, hint: str) -> None:
        """Say why the scenario cannot be planned; the rows stay, marked."""
        super().refused(topic, message, hint)
        before = "of the scenario before" if self._found else "specs and prices as listed"
        self.query_one(TablePane).say(before)

    def action_turn(self) -> None:
        """Show the next picture."""
        self.query_one(PictureSwitch).turn()

    def action_turn_back(self) -> None:
        """Show the picture before."""
        self.query_one(PictureSwitch).turn(-1)

    @on(Field.Changed)
    def _changed(self, event: Field.Changed) -> None:
        if event.key == "instances" and self._found is None:
            self._show_specs()
        self.state_facts()
        self._ask()

    @on(PictureSwitch.Turned)
    @on(ResultTable.Highlighted)
    def _follow(self) -> None:
        self._draw()

    @on(ResultTable.Chosen)
    def _chosen(self, event: ResultTable.Chosen) -> None:
        if event.row.get("nodes") is not None:
            self.trnbench.choose_cluster(cluster_of(event.row))

    def _show_specs(self) -> None:
        try:
            report = spec_report(self.trnbench.catalog, self.scenario.instances)
        except TrnbenchError as error:
            self.refused("specs", error.message, error.hint or "")
            return
        self.query_one(ResultTable).show(TableSource(report=report, keys=_keys(report.rows)))
        self.query_one(TablePane).say("specs and prices as listed; planning ...")

    def _ask(self) -> None:
        self.ask("compare", partial(compare_rows, self.trnbench.catalog, self.scenario))

    def _draw(self) -> None:
        table, shown = self.query_one(ResultTable), self.query_one(PictureSwitch).shown
        if self._found is None:
            return
        rows = table.report.rows
        here = table.row
        match shown:
            case "cost/time":
                self.query_one("#compare-cost", Chart).show(cost_chart(rows, self._points, here))
            case "speed/nodes":
                self.query_one("#compare-speed", Chart).show(speed_chart(rows, self._points, here))
            case "step time":
                self.query_one("#compare-step", StackedBars).show(time_bars(rows, here))
            case "memory":
                self.query_one("#compare-memory", StackedBars).show(memory_bars(rows, here))
            case "days":
                self.query_one("#compare-days", Chart).show(time_interval_chart(rows, here))
            case "why":
                self.query_one("#compare-why", TextPanel).show(_why(here))


def _keys(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(f"{row['instance']}" for row in rows)


def _why(row: Row | None) -> str:
    """Return the reasons, warnings and notes of a row."""
    if row is None:
        return ""
    lines = [f"{row['instance']} on {row.get('nodes') or '?'} nodes"]
    for name in ("reasons", "warnings", "notes"):
        texts = row.get(name) or ()
        lines += [f"  {name[:-1]}: {text}" for text in _texts(texts)]
    searched: Mapping[str, object] = {
        key: row.get(key) for key in ("calibration", "basis", "evidence", "price_source")
    }
    lines += [f"  {key.replace('_', ' ')}: {value}" for key, value in searched.items() if value]
    return "\n".join(lines)


def _texts(cell: object) -> list[str]:
    return [str(one) for one in cell] if isinstance(cell, list | tuple) else [str(cell)]
