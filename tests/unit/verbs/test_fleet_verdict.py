"""The verdict on a fleet: the type of each job beside other types, in the draws of compare."""

from __future__ import annotations

from typing import Any

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.verbs.fleet.question import FleetQuestion
from trnbench.verbs.fleet.run import fleet_run
from trnbench.verbs.fleet.text import fleet_verdict
from trnbench.verbs.quotes.verdict import MOST_WORDS, words_of

FLEET = """
name = "two-types"
title = "One job on two types"
starts_on = 2027-01-04
price_date = 2026-11-21
horizon = "90 d"
prices = ["trn1.2xlarge=1.5", "trn1.32xlarge={usd}"]
on = ["trn1.2xlarge", "trn1.32xlarge"]
nodes = [1]
[[job]]
name = "tiny"
model = "tiny-gpt"
tokens = "1e11"
layout = { tp = 2, global_batch = 16 }
"""


@pytest.fixture
def planned(tmp_path):
    def plan(usd: float) -> Any:
        path = tmp_path / "two-types.toml"
        path.write_text(FLEET.replace("{usd}", str(usd)))
        catalog = open_catalog(environment={})
        question = FleetQuestion.asked(catalog, {"file": str(path), "limit_costs": False})
        return fleet_run(catalog, question)

    return plan


def test_a_type_that_costs_half_is_surely_the_cheapest(planned):
    answer = planned(30.0)
    (row,) = answer.rows
    assert (row.instance, row.cheapest_probability) == ("trn1.2xlarge", 1.0)
    assert answer.regret_usd == 0
    told = answer.summary()
    assert (told["verdict_is"], told["recommended"]) == ("clear", {"tiny": "trn1.2xlarge"})
    assert row.row()["mean_cost_usd"] == pytest.approx(row.cost_usd, rel=0.2)


def test_near_types_leave_a_regret(planned):
    answer = planned(2.9)
    (row,) = answer.rows
    assert answer.verdict_is == "tie"
    assert row.instance == "trn1.2xlarge"
    assert 0 < row.cheapest_probability < 1
    assert row.regret_usd > 0


def test_a_verdict_has_at_most_three_sentences_of_twenty_words(planned):
    sentences = fleet_verdict(planned(2.9)).rstrip(".").split(". ")
    assert len(sentences) <= 3
    assert all(words_of(one) <= MOST_WORDS for one in sentences)
    assert sentences[-1].startswith("The least certain choice, trn1.2xlarge for tiny, is ")
