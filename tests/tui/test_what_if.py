"""What if: moved numbers beside the command that asks for them, and the keys that move them."""

from __future__ import annotations

import datetime

import pytest

from trnbench.show.charts.dots import DOT, LIMIT, dot_lines
from trnbench.show.charts.record import Bar, BarChart, ChartAxis
from trnbench.show.row import Interval
from trnbench.tui.questions.scenarios import compare_question
from trnbench.tui.questions.what_if import what_if
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.work_process import WorkHooks
from trnbench.verbs.compare.moves import Supposed, WhatIfFound, moved_scenario
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.compare.text import compare_verdict_text

SCENARIO = {
    **{"model": "llama2-7b", "tokens": 100e9, "on": ("trn1.32xlarge", "p5.48xlarge")},
    **{"price_date": datetime.date(2026, 11, 21), "deadline": 30 * 86400.0, "max_nodes": 16},
    "price": ("p5.48xlarge=60",),
}
DAY_S = 86400.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        {("price", "trn1.32xlarge"): -4, ("speed", "p5.48xlarge"): 3},
        {("price", "p5.48xlarge"): 6, ("tokens", ""): 2},
        {("discount", ""): 2, ("deadline", ""): -10},
    ],
)
def test_moved_numbers_are_those_of_the_command(catalog, steps):
    found = what_if(catalog, SCENARIO, steps, WorkHooks(lambda _: None, lambda: None))
    question = compare_question(moved_scenario(SCENARIO, steps, 30 * DAY_S)).settled(catalog)
    answer = compare_run(catalog, question)
    told = {one.quote.instance: one.quote for one in answer.compared}
    assert found.verdict.partition(" As it is, ")[0] == compare_verdict_text(answer)
    assert found.moved != found.before
    for plan in found.moved:
        quote = told[plan.instance]
        assert plan.nodes == quote.nodes
        assert plan.cost_usd is not None
        assert plan.cost_usd.value == pytest.approx(quote.mean_cost_usd)
        assert plan.cheapest == pytest.approx(quote.cheapest_probability)


def test_a_moved_question_says_changes_as_its_command_does():
    asked = {**SCENARIO, "discount": 0.1}
    steps = {
        **{("price", "trn1.32xlarge"): -2, ("price", "p5.48xlarge"): 2},
        **{("speed", "trn1.32xlarge"): 1, ("tokens", ""): 4, ("discount", ""): 1},
    }
    moved = moved_scenario(asked, steps, 30 * DAY_S)
    assert moved["price"] == ("p5.48xlarge=66", "trn1.32xlarge=-10%")
    assert moved["speed"] == ("trn1.32xlarge=+5%",)
    assert (moved["tokens"], moved["discount"]) == ("120B", "15%")
    # A change of published prices is itself changed: 0.8 x 1.1 = 0.88.
    changed = {**asked, "price": ("p5.48xlarge=-20%",)}
    assert moved_scenario(changed, steps, None)["price"][0] == "p5.48xlarge=-12%"


def plan(name, usd, chance, nodes=4):
    cost = Interval(value=usd, low=0.8 * usd, high=1.3 * usd)
    days = Interval(value=20.0, low=18.0, high=25.0)
    return Supposed(
        instance=name,
        nodes=nodes,
        days=days,
        cost_usd=cost,
        cheapest=chance,
        usd_per_hour=40.0,
    )


def found(steps, *moved):
    before = (plan("trn2.48xlarge", 1e6, 0.9), plan("p5.48xlarge", 2e6, 0.1))
    return WhatIfFound(
        steps=steps, moved=moved or before, before=before, deadline_s=30 * DAY_S, verdict="-"
    )


@pytest.mark.slow
@pytest.mark.asyncio
async def test_keys_move_the_marked_number_and_reset_all(made, silent, until, monkeypatch):
    asked: list = []
    monkeypatch.setattr("trnbench.tui.view.View.ask", lambda self, *what: asked.append(what))
    app = made("what_if")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: bool(asked))
        view = app.view
        view.answered("what if", found({}))
        await pilot.press("down", "plus", "plus", "minus")
        assert asked[-1][-1] == {("tokens", ""): 1}
        assert view.query_one(ResultTable).row["supposed"] == "2.1T (+5 %)"
        assert "--tokens 2.1T" in view.command()
        await pilot.press("minus")
        assert asked[-1][-1] == {}
        await pilot.press("plus", "down", "plus", "0")
        assert asked[-1][-1] == {}
        assert "--tokens 2T" in view.command()
        table = view.query_one(ResultTable)
        await pilot.press("down", "down", "down", "plus")
        assert table.row["number"] == "price of trn2.48xlarge"
        assert table.row["is"] == "40 USD/h"
        assert table.row["supposed"] == "42 USD/h (+5 %)"


def test_estimates_are_dots_on_intervals_with_the_limit_in_its_column():
    bars = tuple(
        Bar(label=name, estimate=Interval(value=v, low=v - 10, high=v + 10), limit=60.0, hue=0)
        for name, v in (("a", 20.0), ("bb", 50.0))
    )
    chart = BarChart(title="days", caption="", axis=ChartAxis(title="days"), bars=bars, limit="due")
    lines = ["".join(one.text for one in line) for line in dot_lines(chart, 60)]
    assert max(map(len, lines)) <= 60
    first, second = lines[0], lines[1]
    assert first.index(DOT) < second.index(DOT)
    assert first.index(LIMIT) > first.index(DOT)
    # The second's interval ends at the limit.
    assert second.rindex("\u2524") == first.index(LIMIT)
    assert lines[-1].strip() == f"{LIMIT} due"
