"""The main job: what a training run costs and takes on several instance types, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
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
    ClusterPoint,
    CompareFound,
    compare_points,
    compare_request,
    compare_rows,
    spec_report,
)
from trnbench.tui.found import TableFound
from trnbench.tui.scenario_form import scenario_fields, scenario_of, texts_of
from trnbench.tui.view import View, evidence_facts, hidden
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.panels import TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.switch import PictureSwitch
from trnbench.tui.widgets.table_pane import TablePane

if TYPE_CHECKING:
    from trnbench.answers.quote import Quote


class CompareView(View):
    """Scenario, table, and a picture that follows the cursor."""

    NAME: ClassVar[str] = "compare"
    DELTAS = frozenset(
        {"days", "cost_usd", "tokens_per_s", "mfu", "usd_per_million_tokens", "step_time_s"}
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "turn", "Chart", id="compare.chart", tooltip="The next picture"),
        hidden("C", "turn(-1)", "Chart back", "compare.chart_back"),
        hidden("w", "app.save", "Save", "compare.save", "Save the scenario"),
        hidden("o", "app.load", "Open", "compare.load", "Load a scenario"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: CompareFound | None = None
        self._points: tuple[ClusterPoint, ...] = ()
        self._refused = ""

    def fields(self) -> Sequence[FieldSpec]:
        """Return the fields of a scenario."""
        return scenario_fields(self.trnbench.catalog, self.trnbench.today)

    def pictures(self) -> Mapping[str, Widget]:
        """Return the pictures."""
        return {
            "cost/time": Chart(id="compare-cost"),
            "speed/nodes": Chart(id="compare-speed"),
            "step time": StackedBars(id="compare-step"),
            "memory": StackedBars(id="compare-memory"),
            "days": Chart(id="compare-days"),
            "why": TextPanel(id="compare-why", wrap=True),
        }

    @property
    def scenario(self) -> Scenario:
        """The last good scenario."""
        return scenario_of(self.query_one(Form))

    def compose(self) -> ComposeResult:
        """Start the process that plans while the screen is painted."""
        self.warm("compare", "trnbench.app.verbs.compare", "trnbench.report.compare")
        yield from super().compose()

    def begin(self) -> None:
        """Show specs and prices of the instances, then plan."""
        self._show_specs()
        self._ask()

    def take(self, scenario: Scenario) -> None:
        """Put a scenario into the form."""
        form = self.query_one(Form)
        form.put(texts_of(scenario))
        form.look()

    def command(self) -> str:
        """Return the command line of the rows."""
        from trnbench.app.command_lines import compare_line

        baseline = self.query_one(ResultTable).state.baseline
        request = compare_request(self.scenario)
        if baseline not in request.run.instances:
            baseline = None
        return compare_line(replace(request, baseline=baseline))

    def facts(self) -> tuple[str, ...]:
        """Return where the numbers come from."""
        rows = () if self._found is None else self._found.report.rows
        date = self.query_one(Form).texts["price_date"]
        return ("modelled", f"USD, prices of {date}", *evidence_facts(rows), "intervals hold 80%")

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
                self.show_table(value, "instance")
                self.query_one(TablePane).say(str(value.report.summary.get("footing", "")))
                if value.one_size:
                    self.ask("charts", compare_points, self.scenario)
            case tuple():
                self._points = value
        self._draw()

    def refused(self, topic: str, message: str, hint: str) -> None:
        """Say why the scenario cannot be planned; the rows stay, marked."""
        super().refused(topic, message, hint)
        before = "of the scenario before" if self._found else "specs and prices as listed"
        self.query_one(TablePane).say(before)

    @on(Field.Changed)
    def _changed(self, event: Field.Changed) -> None:
        if event.field.spec.key == "instances" and self._found is None:
            self._show_specs()
        self.state_facts()
        self._ask()

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
        self.show_table(TableFound(report=report), "instance")
        self.query_one(TablePane).say("specs and prices as listed; planning ...")

    def _ask(self) -> None:
        self.ask("compare", compare_rows, self.scenario)

    @on(PictureSwitch.Turned)
    @on(ResultTable.Highlighted)
    def _draw(self) -> None:
        if self._found is None:
            return
        table = self.query_one(ResultTable)
        quotes, here = table.answers, cast("Quote | None", table.answer)
        steps, step = [quote.step for quote in quotes], here.step if here else None
        match self.picture:
            case "cost/time":
                self.query_one("#compare-cost", Chart).show(cost_chart(quotes, self._points, here))
            case "speed/nodes":
                self.query_one("#compare-speed", Chart).show(
                    speed_chart(quotes, self._points, here)
                )
            case "step time":
                self.query_one("#compare-step", StackedBars).show(time_bars(steps, step))
            case "memory":
                self.query_one("#compare-memory", StackedBars).show(memory_bars(steps, step))
            case "days":
                self.query_one("#compare-days", Chart).show(time_interval_chart(quotes, here))
            case "why":
                self.query_one("#compare-why", TextPanel).show(_why(table.row))


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
