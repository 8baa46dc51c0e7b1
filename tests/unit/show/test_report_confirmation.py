"""What a plan says of its best configurations once they were played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trnbench.verbs.plan import text as plan
from trnbench.verbs.plan.answer import replayed
from trnbench.verbs.quotes.answer import Quote


def quote(name: str, step_s: float, cost_usd: float) -> Quote:
    figures = SimpleNamespace(step_time_s=step_s)
    step = SimpleNamespace(step=figures, layout=name, place=name)
    cost, elapsed = SimpleNamespace(value=cost_usd), SimpleNamespace(value=step_s)
    return cast(Quote, SimpleNamespace(step=step, cost_usd=cost, elapsed_s=elapsed))


@pytest.fixture(autouse=True)
def names(monkeypatch: Any) -> None:
    monkeypatch.setattr(plan, "cluster_text", lambda one: one.step.place)
    monkeypatch.setattr(plan, "layout_text", lambda layout: "its layout")


def told(*played: tuple[float, float]) -> tuple[list[int], str]:
    closed = (("first", 10.0, 100.0), ("second", 11.0, 110.0), ("third", 12.0, 120.0))
    pairs = [(quote(*a), quote(a[0], s, usd)) for a, (s, usd) in zip(closed, played, strict=False)]
    found = replayed(pairs, "cost")
    return [one.rank for one in found], plan.confirmation(found)


def test_plans_that_keep_their_order_are_confirmed_within_the_largest_difference():
    assert told((10.1, 101.0), (11.33, 113.0)) == ([1, 2], "confirmed within 3 %")


def test_a_plan_that_is_cheaper_as_played_overtakes():
    ranks, words = told((13.0, 130.0), (11.0, 110.0))
    assert ranks == [2, 1]
    assert words == "second its layout overtakes"


def test_others_may_change_places():
    ranks, words = told((10.0, 100.0), (13.0, 130.0), (12.0, 120.0))
    assert ranks == [1, 3, 2]
    assert words == "the best is confirmed within 18 %; others change places"
