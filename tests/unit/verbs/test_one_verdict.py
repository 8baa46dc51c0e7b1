"""Compare and plan answer the same question alike, and a pilot's advice holds on planted truths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.money.decision import regret_usd, rule_of
from trnbench.money.market import candidates
from trnbench.money.objective import ranked
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.step import drawn_times_s
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.compare.text import compare_verdict_text
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.plan.run import plan_run
from trnbench.verbs.plan.text import plan_verdict_text
from trnbench.verbs.quotes.draws import drawn_way
from trnbench.verbs.quotes.markets import explore_all
from trnbench.verbs.quotes.rivals import bills, rivals_of

TWO = "trn1.32xlarge,trn2.48xlarge"
QUICK = {"on": TWO, "max_nodes": "16", "tp": "8", "pp": "1", "dp": "any"}
ASKED = tuple(
    {"tokens": tokens, "deadline": deadline}
    for tokens, deadline in itertools.product(("20B", "50B", "100B", "200B"), ("10d", "30d", "60d"))
)


@pytest.mark.parametrize("more", ASKED[1::4])
def test_compare_and_plan_give_the_same_verdict(more):
    catalog = open_catalog()
    given = {"model": "llama2-7b", **QUICK, **more}
    compared = compare_run(catalog, CompareQuestion.asked(catalog, given))
    planned = plan_run(catalog, PlanQuestion.asked(catalog, given))
    if planned.best is None:
        assert compared.verdict.verdict_is == "none"
        return
    assert compare_verdict_text(compared) == plan_verdict_text(planned)
    assert compared.verdict.regret_usd == planned.verdict.regret_usd
    rows = {(one.instance, one.nodes): one for one in planned.front}
    for one in (one.quote for one in compared.compared):
        if not one.feasible:
            continue
        same = rows[one.instance, one.nodes]
        for name in ("elapsed_s", "cost_usd", "cheapest_probability", "on_time_probability"):
            assert getattr(one, name) == getattr(same, name), name
        assert (one.mean_cost_usd, one.regret_usd) == (same.mean_cost_usd, same.regret_usd)


@pytest.mark.slow
def test_who_follows_a_pilot_loses_what_was_said_on_truths_from_the_intervals():
    catalog = open_catalog()
    question = CompareQuestion.asked(
        catalog,
        {
            "model": "llama3.1-70b",
            "on": "trn2.48xlarge,p5.48xlarge",
            "deadline": "60d",
            "nodes": "64",
        },
    )
    explored = explore_all(catalog, question.run)
    by_name = {one.name: one for one in explored}
    verdict = compare_run(catalog, question, explored=explored).verdict
    assert verdict.pilots
    pilot = verdict.pilots[0]

    def world(draws: CommonDraws):
        """Bills of all plans, and what the pilot measures, in each draw."""
        ways = [
            (one, rival.way)
            for one in explored
            if one.market is not None
            for rival in rivals_of(
                one, ranked(candidates(one.market), question.limits, "cost"), CommonDraws()
            )
        ]
        costs = np.array([bills(drawn_way(one, way, draws)) for one, way in ways])
        known = by_name[pilot.instance]
        setup = replace(known.setup, nodes=pilot.nodes)
        row = f"pilot on {pilot.nodes} x {pilot.instance}"
        measured = drawn_times_s(setup, pilot.layout.complete(), draws, row=row)
        return costs, np.log(measured)

    costs, signal = world(CommonDraws())
    rule, at_once = rule_of(costs, signal), int(costs.mean(axis=1).argmin())
    assert regret_usd(costs, costs[at_once]) == pytest.approx(verdict.regret_usd)
    now, after = [], []
    for seed in (1, 2):
        truths, measured = world(CommonDraws(count=500, seed=seed))
        now.append(regret_usd(truths, truths[at_once]))
        after.append(regret_usd(truths, truths[rule.choose(measured), np.arange(500)]))
    assert np.mean(after) == pytest.approx(pilot.regret_after_usd, rel=0.15)
    assert np.mean(now) == pytest.approx(verdict.regret_usd, rel=0.15)
    assert np.mean(after) < np.mean(now)
