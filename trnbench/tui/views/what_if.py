"""What if: a number is moved in steps of 5 %, and the verdict and the bills follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from textual.binding import BindingType

from trnbench.facts.parsing import count_text, share_text
from trnbench.facts.records import replace
from trnbench.facts.units import DAY_S, Dimension, significant
from trnbench.show.charts.record import Bar, BarChart, ChartAxis, axis_of
from trnbench.show.figures import Figure
from trnbench.show.report import Column, Report
from trnbench.show.row import Row
from trnbench.tui.questions.scenarios import compare_question
from trnbench.tui.questions.what_if import sensitivity_chart, what_if
from trnbench.tui.scenario_view import ScenarioView, scenario_fields
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.field import FieldSpec
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.panels import Picture
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work_process import TableFound
from trnbench.verbs.compare.moves import (
    LEAST,
    MOST,
    STEP,
    Supposed,
    WhatIfFound,
    discount_of,
    moved_scenario,
)

_COLUMNS = tuple(
    Column(figure=Figure(key=key, title=title))
    for key, title in (("number", "number"), ("is", "is"), ("supposed", "supposed"))
)
TOPIC, TORNADO = "what if", "sensitivity"


class WhatIfView(ScenarioView):
    """Numbers to move, and the plans that follow from them."""

    NAME: ClassVar[str] = "what_if"
    GUIDE = "purchase"
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("plus,equals_sign", "step(1)", "+5 %", "what_if.more", "5 % more of the number"),
        offered("minus", "step(-1)", "-5 %", "what_if.less", "5 % less of the number"),
        offered("0", "reset", "Reset", "what_if.reset", "All numbers as they are"),
        offered("c", "turn", "Chart", "what_if.chart", "The next chart"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._steps: dict[tuple[str, str], int] = {}
        self._found: WhatIfFound | None = None
        self._tornado: BarChart | None = None
        self._plans_asked = False

    def fields(self) -> Sequence[FieldSpec]:
        return scenario_fields(self.trnbench.catalog, self.trnbench.today)

    def pictures(self) -> Mapping[str, Picture]:
        return {"cost": StackedBars(), "days": StackedBars(), TORNADO: StackedBars()}

    def command(self) -> str:
        """The command line of the comparison with the moved numbers."""
        limits = compare_question(self.scenario).limits
        moved = moved_scenario(self.scenario, self._steps, limits.deadline_s)
        return self.line("compare", compare_question(moved))

    def facts(self) -> tuple[str, ...]:
        return ("modelled", "mean bills and 80 % of draws", "layouts as they are")

    def answered(self, topic: str, value: object) -> None:
        """Show the plans, or the chart of what would change the choice."""
        if isinstance(value, WhatIfFound):
            self._found = value
            self._show_numbers()
            self.verdict(value.verdict)
            if value.steps != self._steps:
                self._ask_plans()
        else:
            self._tornado = cast("BarChart", value)
        self.turned()

    def action_again(self) -> None:
        self._found = self._tornado = None
        self._show_numbers()
        self._ask_plans()

    def _move(self) -> None:
        """Ask for the moved numbers, once the answer before is there: it has searched for both."""
        self._show_numbers()
        if not (self._busy and self._plans_asked):
            self._ask_plans()

    def _ask_plans(self) -> None:
        self._plans_asked = True
        self.ask(TOPIC, what_if, self.scenario, dict(self._steps))

    @property
    def _busy(self) -> bool:
        lane = self.lane(TOPIC)
        return lane is not None and lane.busy

    def turned(self) -> None:
        """Draw; the tornado is asked for when it is to be seen, and the plans are there."""
        super().turned()
        wanted = TORNADO in self.visible_pictures and self._tornado is None
        if wanted and self._found is not None and not self._busy:
            self._plans_asked = False
            self.ask(TOPIC, sensitivity_chart, self.scenario)

    def action_step(self, by: int) -> None:
        here = self._here
        if here is not None:
            count = min(max(self._steps.get(here, 0) + by, LEAST), MOST)
            self._steps = {key: n for key, n in {**self._steps, here: count}.items() if n}
            self._move()

    def action_reset(self) -> None:
        self._steps = {}
        self._move()

    @property
    def _here(self) -> tuple[str, str] | None:
        return cast("tuple[str, str] | None", self.query_one(ResultTable).answer)

    def _show_numbers(self) -> None:
        """List the numbers, those of the whole run first, as they are and as they are supposed."""
        limits, scenario = compare_question(self.scenario).limits, self.scenario
        length = "tokens" if scenario.get("tokens") else "samples"
        keys = [("deadline", "")] * (limits.deadline_s is not None)
        keys += [("tokens", "")] * bool(scenario.get(length)) + [("discount", "")]
        keys += [(what, name) for what in ("price", "speed") for name in scenario["on"]]
        rates = (
            {one.instance: one.usd_per_hour for one in self._found.before} if self._found else {}
        )
        rows: list[Row] = []
        for key in keys:
            what, of = key
            count = self._steps.get(key, 0)
            factor = 1 + STEP * count
            change = f" ({round(100 * STEP * count):+d} %)" if count else ""
            now, then = "", f"{change.strip(' ()')}"
            if what == "deadline" and limits.deadline_s is not None:
                days = limits.deadline_s / DAY_S
                now, then = f"{significant(days)} d", f"{significant(factor * days)} d{change}"
            elif what == "tokens":
                amount = scenario[length]
                now, then = count_text(amount), f"{count_text(factor * amount)}{change}"
            elif what == "discount":
                discount = scenario.get("discount") or 0.0
                then = share_text(discount_of(discount, self._steps))
                now = share_text(discount)
            elif what == "speed":
                now = "as predicted"
            elif (rate := rates.get(of)) is None:
                now = "no price" if rates else "..."
            else:
                now = f"{significant(rate)} USD/h"
                then = f"{significant(factor * rate)} USD/h{change}"
            name = f"{what} of {of}" if of else length if what == "tokens" else what
            rows.append({"number": name, "is": now, "supposed": then if count else ""})
        report = Report(verb="compare", inputs={}, rows=tuple(rows), columns=_COLUMNS)
        self.show_table(TableFound(report=report, answers=tuple(keys)), "number")
        self.query_one(TablePane).say("+ and - move the marked number by 5 %, 0 resets")

    @property
    def report(self) -> Report | None:
        return None if self._found is None else super().report

    def drawn(self, picture: str) -> object:
        """The bills or the days of the plans, or the tornado."""
        if picture == TORNADO:
            return self._tornado
        if self._found is None:
            return None
        return cost_bars(self._found) if picture == "cost" else day_bars(self._found)


def cost_bars(found: WhatIfFound) -> BarChart:
    """Mean bills with 80 % of the draws, the cheapest first and in colour."""
    priced = [(one, one.cost_usd) for one in found.moved if one.cost_usd is not None]
    axis = axis_of("cost", Dimension.USD, [cost.value for _, cost in priced], kind="linear")
    before = {one.instance: one.cost_usd for one in found.before}
    bars = []
    for number, (plan, cost) in enumerate(priced):
        was = before.get(plan.instance)
        change = cost.value / was.value - 1 if was else 0.0
        moved = f"{100 * change:+.0f} %  " if abs(change) >= 0.005 else ""
        bars.append(_bar(plan, cost, number == 0, text=f"{moved}{axis.text(cost.value)}"))
    return BarChart(
        title="mean cost to train",
        caption="with 80 % of the draws",
        axis=axis,
        bars=tuple(bars),
        missing="" if bars else "no plan has a price",
    )


def day_bars(found: WhatIfFound) -> BarChart:
    """Mean days with 80 % of the draws, and the deadline."""
    limit = None if found.deadline_s is None else found.deadline_s / DAY_S
    bars = tuple(
        replace(_bar(plan, plan.days, number == 0), limit=limit)
        for number, plan in enumerate(found.moved)
    )
    return BarChart(
        title="days to train",
        caption="with 80 % of the draws",
        axis=ChartAxis(title="days"),
        bars=bars,
        limit="deadline",
    )


def _bar(plan: Supposed, of: Any, best: bool, *, text: str = "") -> Bar:  # noqa: ANN401
    label = f"{plan.instance}:{plan.nodes}"
    return Bar(label=label, estimate=of, strong=best, hue=0 if best else 7, text=text)
