"""The main view: cost and time of a training run on several instance types, with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from trnbench.errors import TrnbenchError
from trnbench.facts.records import replace
from trnbench.facts.units import counted
from trnbench.show.charts.record import GREY, BarChart, PointChart
from trnbench.show.figures import FIGURES
from trnbench.show.row import Row
from trnbench.tui.cluster_view import Cluster, cluster_of
from trnbench.tui.difference import difference_text, less_and_more
from trnbench.tui.questions.scenarios import (
    CompareFound,
    compare_points,
    compare_question,
    compare_rows,
    spec_report,
)
from trnbench.tui.scenario_view import ScenarioView, scenario_fields
from trnbench.tui.view import evidence_facts
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.panels import Picture, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work_process import TableFound
from trnbench.verbs.quotes.charts import (
    ClusterPoint,
    Picked,
    cluster_label,
    cost_bars,
    cost_chart,
    memory_bars,
    speed_chart,
    step_bars,
    time_chart,
)

if TYPE_CHECKING:
    from trnbench.verbs.quotes.answer import Quote


class CompareView(ScenarioView):
    """Scenario, table, and a picture that follows the cursor."""

    NAME: ClassVar[str] = "compare"
    GUIDE = "purchase"
    DELTAS = frozenset(
        {"days", "cost_usd", "tokens_per_s", "mfu", "usd_per_million_tokens", "step_time_s"}
    )
    BEST: ClassVar[Mapping[str, int]] = {
        "days": -1,
        "cost_usd": -1,
        "mfu": 1,
        "tokens_per_s": 1,
        "usd_per_million_tokens": -1,
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("enter", "choose", "Layouts", "compare.open", "The layouts of the marked row"),
        offered("c", "turn", "Chart", "compare.chart", "The next chart"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: CompareFound | None = None
        self._points: tuple[ClusterPoint, ...] = ()
        self._followed: Cluster | None = None

    def fields(self) -> Sequence[FieldSpec]:
        return scenario_fields(self.trnbench.catalog, self.trnbench.today)

    def pictures(self) -> Mapping[str, Picture]:
        return {
            "cost": StackedBars(),
            "days": StackedBars(),
            "cost/time": Chart(),
            "step time": StackedBars(),
            "memory": StackedBars(),
            "speed": Chart(),
            "difference": TextPanel(),
            "why": TextPanel(wrap=True),
        }

    def compose(self) -> ComposeResult:
        """Start the process that plans while the screen is painted."""
        self.warm("compare", "trnbench.verbs.compare.run", "trnbench.verbs.compare.text")
        yield from super().compose()

    def begin(self) -> None:
        self._show_specs()
        super().begin()

    def command(self) -> str:
        """The command line of the rows."""
        baseline = self.query_one(ResultTable).state.baseline
        question = compare_question(self.scenario)
        if baseline not in question.run.instances:
            baseline = None
        return self.line("compare", question.but(baseline=baseline))

    def facts(self) -> tuple[str, ...]:
        rows = () if self._found is None else self._found.report.rows
        date = self.query_one(Form).texts["price_date"]
        return ("modelled", f"USD, prices of {date}", *evidence_facts(rows), "80 % intervals")

    def answered(self, topic: str, value: object) -> None:
        match value:
            case CompareFound():
                self._found, self.pilot = value, value.pilot
                self._points = value.points
                self.show_table(value, "instance", chosen=value.winner)
                self.verdict(value.verdict)
                footing = str(value.report.summary.get("footing", "")).partition(" (")[0]
                self.query_one(TablePane).say(footing)
                if value.one_size:
                    self.ask("charts", compare_points, self.scenario)
            case tuple():
                self._points = value
        self.draw()

    @on(Field.Changed)
    def _changed(self, event: Field.Changed) -> None:
        if event.field.spec.key == "instances" and self._found is None:
            self._show_specs()

    @on(ResultTable.Chosen)
    def _chosen(self, event: ResultTable.Chosen) -> None:
        if event.row.get("nodes") is not None:
            self.trnbench.choose_cluster(cluster_of(event.row))

    def _show_specs(self) -> None:
        try:
            report = spec_report(self.trnbench.catalog, self.scenario["on"])
        except TrnbenchError as error:
            self.refused("specs", error.message, error.hint or "")
            return
        self.show_table(TableFound(report=report), "instance")
        self.query_one(TablePane).say("specs and prices as listed")

    def action_again(self) -> None:
        self.ask("compare", compare_rows, self.scenario)

    def follow(self) -> None:
        """Make the cluster under the cursor the cluster of the other views."""
        row = self.query_one(ResultTable).row
        if self._found is not None and row is not None and row.get("step_time_s") is not None:
            cluster = cluster_of(row)
            if cluster != self._followed:
                self._followed = self.trnbench.cluster = cluster
        super().follow()

    def drawn(self, picture: str) -> object:
        """Data of a picture of the rows, and of the row under the cursor."""
        found = self._found
        if found is None:
            return None
        table = self.query_one(ResultTable)
        quotes, here = table.answers, cast("Quote | None", table.answer)
        steps, step = [quote.step for quote in quotes], here.step if here else None
        winner = None if found.winner is None else found.answers[found.winner]
        picked = Picked(here=here, winner=winner, deadline_s=found.deadline_s)
        match picture:
            case "cost" | "days":
                return _ranked(picture, quotes, replace(picked, here=None))
            case "cost/time":
                return cost_chart(quotes, picked, self._points)
            case "speed":
                return self._speeds(quotes, here)
            case "step time":
                return step_bars(steps, step)
            case "memory":
                return memory_bars(steps, step)
            case "difference":
                pinned = [cast("Quote", line.answer) for line in table.pinned[:2]]
                pair = [(cluster_label(answer), answer.step) for answer in pinned]
                return difference_text(pair, self.room(picture).width, less_and_more(self.app))
            case _:
                place = found.answers.index(here) if here in found.answers else None
                rests = "" if place is None else found.rests_on[place]
                return _why(table.row, (found.verdict, rests))

    def _speeds(self, quotes: Sequence[Quote], here: Quote | None) -> PointChart:
        curves = [
            (
                quote.instance,
                sorted(
                    (float(other.nodes), other.tokens_per_s)
                    for other in self._points
                    if other.instance == quote.instance
                ),
            )
            for quote in quotes
        ]
        title = "tokens per second over nodes"
        chart = speed_chart(curves, title, "tokens/s", here=here.instance if here else None)
        return chart if self._points else replace(chart, missing="looking at every cluster ...")


def _ranked(what: str, quotes: Sequence[Quote], picked: Picked) -> BarChart:
    """Cost or days of the quotes, the least first, the winner in colour."""
    of = attrgetter("cost_usd" if what == "cost" else "elapsed_s")
    known = sorted((quote for quote in quotes if of(quote)), key=lambda quote: of(quote).value)
    chart = (cost_bars if what == "cost" else time_chart)(known, picked)
    bars = tuple(replace(bar, hue=0 if bar.strong else GREY) for bar in chart.bars)
    lacking = ", ".join(quote.instance for quote in quotes if not of(quote))
    why = "no price" if what == "cost" else "cannot run"
    missing = f"not drawn, {why}: {lacking}" if lacking else ""
    return replace(chart, bars=bars, missing=missing)


def _why(row: Row | None, told: tuple[str, str]) -> str:
    """The verdict in full, then the basis of a row, its reasons, warnings and notes."""
    verdict, rests_on = told
    if row is None:
        return verdict
    nodes = row.get("nodes")
    size = counted(nodes, "node") if isinstance(nodes, int) else "? nodes"
    lines = [f"{verdict}\n", f"{row['instance']} on {size}"]
    lines += [f"  {rests_on}"]
    for name in ("reasons", "warnings", "notes"):
        texts = row.get(name) or ()
        lines += [f"  {name[:-1]}: {text}" for text in _texts(texts)]
    for key in ("calibration", "basis", "evidence", "price_source"):
        value = row.get(key)
        words = FIGURES[key].words if key in FIGURES else {}
        said = f"  {key.replace('_', ' ')}: {words.get(str(value), value)}"
        lines += [said] if value else []
    return "\n".join(lines)


def _texts(cell: object) -> list[str]:
    return [str(item) for item in cell] if isinstance(cell, list | tuple) else [str(cell)]
