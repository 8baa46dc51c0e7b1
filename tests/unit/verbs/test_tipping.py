"""Moves that change the choice are those at which the question, asked anew, has another answer."""

from __future__ import annotations

import pytest

from tests.unit.verbs.test_what_if import CATALOG, ONE, RUN, TWO
from trnbench.errors import InputError
from trnbench.show.report import change_text
from trnbench.verbs.asking.run_parts import Part
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.plan.run import plan_run
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.quotes.tipping import Tipping, tipping_chart
from trnbench.verbs.quotes.what_if import WhatIf

PRICES = {ONE: 1.5, TWO: 4.0}
DEADLINE_S = 2e8


def priced(prices: dict[str, float]) -> RunRequest:
    texts = tuple(f"{name}={usd!r}" for name, usd in prices.items())
    return RUN.but(bought=RUN.bought.but(prices=texts))


ASKED = CompareQuestion(run=priced(PRICES), deadline_s=DEADLINE_S, sensitivity=True)


def recommended(question: CompareQuestion) -> str:
    answer = compare_run(CATALOG, question.but(sensitivity=False))
    best = answer.verdict.recommended
    return "" if best is None else answer.compared[best].quote.instance


@pytest.fixture(scope="module")
def found():
    return compare_run(CATALOG, ASKED).sensitivity


def moved(one: Tipping, factor: float) -> CompareQuestion:
    """The question with an input at a multiple of what it is."""
    name, run = one.instance or "", ASKED.run
    if one.moved == "deadline":
        return ASKED.but(deadline_s=factor * DEADLINE_S)
    if one.moved == "tokens":
        return ASKED.but(run=run.but(parts=(Part(tokens=factor * 1e13),)))
    if one.moved == "speed":
        change = f"{name}={100 * (factor - 1):+.6f}%"
        return ASKED.but(run=run.but(what_if=WhatIf(speed=(change,))))
    return ASKED.but(run=priced({**PRICES, name: factor * PRICES[name]}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "up"),
    [
        (f"price of {ONE}", True),
        (f"price of {TWO}", False),
        (f"speed of {TWO}", True),
        ("deadline", False),
        ("tokens", True),
    ],
)
def test_the_choice_changes_where_it_is_said_to(found, title, up):
    (one,) = (one for one in found if one.title == title)
    factor, to = (one.up, one.up_to) if up else (one.down, one.down_to)
    assert to == TWO
    assert recommended(moved(one, factor**0.98)) == ONE
    assert recommended(moved(one, factor**1.02)) == TWO


@pytest.mark.slow
def test_a_plan_names_the_moves_of_the_comparison_and_of_its_budget(found):
    question = PlanQuestion(
        run=ASKED.run, deadline_s=DEADLINE_S, budget_usd=1e12, objective="cost", sensitivity=True
    )
    moves = plan_run(CATALOG, question).sensitivity or ()
    assert [one for one in moves if one.moved != "budget"] == [*found]
    (budget,) = (one for one in moves if one.moved == "budget")
    assert (budget.now, budget.up, budget.down) == ("USD 1,000B", None, None)


def test_only_a_choice_by_cost_has_moves():
    with pytest.raises(InputError, match="add --objective cost"):
        PlanQuestion(run=ASKED.run, budget_usd=1e9, sensitivity=True)


def test_the_nearest_move_comes_first(found):
    distances = [one.distance for one in found]
    assert distances == sorted(distances)


def test_changes_are_told_in_percent_and_drawn_from_end_to_end():
    assert (change_text(0.5), change_text(1.015)) == ("-50 %", "+1.5 %")
    one = Tipping(moved="price", instance=ONE, down=0.8, up=1.5, down_to=TWO, up_to=TWO)
    (bar,) = tipping_chart((one, Tipping(moved="tokens"))).bars
    assert [bar.start, *bar.parts.values()] == pytest.approx([-20, 20, 50])
