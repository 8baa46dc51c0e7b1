"""The purchase: kind and number of machines, way of buying, and facts that would change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import BindingType

from trnbench.show.text_table import Style
from trnbench.tui.cluster_view import cluster_of
from trnbench.tui.questions.scenarios import PlanFound, plan_question, plan_rows
from trnbench.tui.scenario_view import ScenarioView, plan_fields, scenario_fields
from trnbench.tui.view import evidence_facts
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import FieldSpec
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.panels import Picture, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.verbs.quotes.charts import Picked, front_chart

if TYPE_CHECKING:
    from trnbench.verbs.asking.option import Given
    from trnbench.verbs.quotes.answer import Quote


class PlanView(ScenarioView):
    """Scenario and limits, the plans that no other beats, and the basis of the choice."""

    NAME: ClassVar[str] = "plan"
    GUIDE = "purchase"
    DELTAS = frozenset({"days", "cost_usd", "mfu", "goodput"})
    BEST: ClassVar[Mapping[str, int]] = {"days": -1, "cost_usd": -1}
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("enter", "choose", "Layouts", "plan.open", "The layouts of the marked plan"),
        offered("c", "turn", "Chart", "plan.chart", "The next chart"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: PlanFound | None = None

    def fields(self) -> Sequence[FieldSpec]:
        catalog, today = self.trnbench.catalog, self.trnbench.today
        return [*scenario_fields(catalog, today), *plan_fields()]

    def card(self, texts: Mapping[str, str]) -> Sequence[str]:
        return (*super().card(texts), "budget")

    def pictures(self) -> Mapping[str, Picture]:
        texts = ("purchase", "what if", "break-even", "needs", "in words")
        return {"cost/time": Chart(), **{name: TextPanel(wrap=True) for name in texts}}

    def action_again(self) -> None:
        self.ask("plan", plan_rows, self._plan_asked)

    def command(self) -> str:
        return self.line("plan", plan_question(self._plan_asked))

    def facts(self) -> tuple[str, ...]:
        rows = () if self._found is None else self._found.report.rows
        return ("modelled", "USD", *evidence_facts(rows), "80 % intervals")

    def answered(self, topic: str, value: object) -> None:
        assert isinstance(value, PlanFound)
        self._found, self.pilot = value, value.pilot
        quotes, best = value.answers, value.plan.best
        chosen = next((place for place, quote in enumerate(quotes) if quote is best), None)
        self.show_table(value, "instance", "nodes", "purchase", chosen=chosen)
        self.query_one(TablePane).say("plans that no other beats in both cost and time")
        self.verdict(value.verdict)
        self.draw()

    @property
    def _plan_asked(self) -> Given:
        values, limits = self.form.values, [spec.key for spec in plan_fields()]
        return {**self.scenario, **{key: values[key] for key in limits if values[key] is not None}}

    @on(ResultTable.Chosen)
    def _chosen(self, event: ResultTable.Chosen) -> None:
        self.trnbench.choose_cluster(cluster_of(event.row))

    def drawn(self, picture: str) -> object:
        """A chart, or a block of the plan in words."""
        answer = self._found
        if answer is None:
            return None
        table = self.query_one(ResultTable)
        here, best = cast("Quote | None", table.answer), answer.plan.best
        if picture == "cost/time":
            deadline_s = answer.plan.asked.deadline_s
            picked = Picked(here=here, winner=best, word="the plan", deadline_s=deadline_s)
            return front_chart(table.answers, picked)
        from trnbench.verbs.plan import details

        style = Style(width=self.room(picture).width + 1, terminal=True)
        blocks = {
            "purchase": lambda: [details.purchase_block(here, style)],
            "what if": lambda: [details.change_block(answer.plan, style)],
            "break-even": lambda: [details.break_even_block(answer.plan, style)],
            "needs": lambda: details.need_blocks(answer.plan, style),
            "in words": lambda: [answer.words],
        }
        return "\n\n".join(filter(None, blocks[picture]())) or "none for this plan"
