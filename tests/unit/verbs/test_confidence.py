"""Time and cost that are not exceeded with a confidence, of one cluster at a price of its own."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.market import candidates
from trnbench.predict.common_draws import CommonDraws
from trnbench.verbs.asking.run_parts import Part
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.draws import drawn_work_s, with_confidence
from trnbench.verbs.quotes.markets import explore_all
from trnbench.verbs.quotes.question import RunRequest


@pytest.fixture(scope="module")
def explored():
    run = RunRequest(
        model="tiny-gpt",
        parts=(Part(tokens=1e13),),
        instances=("trn1.2xlarge",),
        nodes=(1,),
        layout=PartialLayout(tp=2, global_batch=16),
        bought=Buying(price_date=datetime.date(2026, 11, 21), prices=("trn1.2xlarge=3.6",)),
    )
    (only,) = explore_all(open_catalog(environment={}), run)
    return only


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_a_cost_is_that_of_the_time_at_the_same_confidence(explored, confidence):
    way: Any = with_confidence(explored, candidates(explored.market), confidence)[0]
    # At one price, paid by the second, 3.6 USD/h are 0.001 USD a started second.
    assert way.sure_cost_usd == pytest.approx(0.001 * np.ceil(way.sure_elapsed_s))
    work_s = drawn_work_s(explored, 1, explored.layouts(1), CommonDraws())
    trained_s = np.quantile(work_s, confidence)
    # Besides training come starts, checkpoints and failures: few on one node.
    assert trained_s < way.sure_elapsed_s < 1.1 * trained_s


def test_a_cost_grows_with_the_confidence(explored):
    costs: list[Any] = [
        with_confidence(explored, candidates(explored.market), confidence)[0].sure_cost_usd
        for confidence in (0.5, 0.9, 0.99)
    ]
    assert costs == sorted(set(costs))
