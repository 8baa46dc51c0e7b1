"""A market by hand: ways to buy, break-even speeds, and what would change a plan."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance, load_reliability
from trnbench.facts.records import replace
from trnbench.money.failures import Stated
from trnbench.money.market import Market, candidates, cheapest, cost_of
from trnbench.money.objective import Limits, ranked
from trnbench.money.price_terms import PriceTerms
from trnbench.money.purchase import load_offers
from trnbench.money.sensitivity import break_even_speed, sensitivity

CATALOG = open_catalog(environment={})
TODAY = datetime.date(2026, 11, 21)
SURE = Stated(failures_per_node_day=0.0, start_s=0.0, write_per_node_bytes_per_s=1e12)
DAY_S = 86400.0


def market(name="trn1.32xlarge", *, days=(40.0, 20.0), nodes=(1, 2), stated=SURE, **terms):
    """A run of 1e9 tokens that takes so many days of pure training on each cluster."""
    instance = load_instance(CATALOG, name)
    return Market(
        instance=instance,
        nodes=np.array(nodes),
        speeds=((1e9, 1e9 / (np.array(days) * DAY_S)),),
        checkpoint_bytes=1.0,
        offers=load_offers(CATALOG, instance, PriceTerms(on=TODAY, **terms)),
        reliability=load_reliability(CATALOG, instance.chip),
        stated=stated,
    )


def test_every_way_to_buy_is_a_candidate():
    ways = candidates(market(options=("on-demand", "capacity-block")))
    assert [(way.nodes, way.option) for way in ways] == [
        (1, "on-demand"),
        (1, "capacity-block"),
        (2, "on-demand"),
        (2, "capacity-block"),
    ]
    # 40 days x 24 h x 21.50 USD, and the second that the last checkpoint takes
    assert ways[0].cost_usd == pytest.approx(40 * 24 * 21.5, rel=1e-5)
    # 40 days need 35 + 6, of which 30 minutes each are lost.
    assert ways[1].cost_usd == pytest.approx(41 * 24 * 9.532)
    assert ways[1].elapsed_s > 40 * DAY_S


def test_a_cluster_that_is_not_on_sale_is_known_by_its_time():
    (alone, _) = candidates(market("trn2-ultraserver"))
    assert alone.option is None
    assert alone.cost_usd is None
    assert alone.elapsed_s == pytest.approx(40 * DAY_S, rel=1e-6)


def test_the_cheapest_way_to_buy_each_cluster():
    several = market(options=("on-demand", "capacity-block"))
    found = cheapest(several)
    assert [way.nodes for way in found] == [1, 2]
    for best in found:
        costs: list[Any] = [way.cost_usd for way in candidates(several) if way.nodes == best.nodes]
        assert len(costs) == 2
        assert best.cost_usd == min(costs) < max(costs)
    (unsold, _) = cheapest(market("trn2-ultraserver"))
    assert unsold.cost_usd is None


def test_one_cluster_at_other_speeds():
    found = market().at(2, speed=[0.5, 1.0, 2.0])
    assert found.nodes.tolist() == [2, 2, 2]
    assert cost_of(found).wall_s == pytest.approx(np.array([40, 20, 10]) * DAY_S, rel=1e-6)


def test_one_part_at_another_speed():
    whole = market()
    two = replace(whole, speeds=(*whole.speeds, *whole.speeds))
    # 20 days twice; the second part at half its speed takes 40.
    found = two.at(2, speed=0.5, part=1)
    assert cost_of(found).wall_s == pytest.approx([60 * DAY_S], rel=1e-6)


def test_break_even_by_the_second_is_a_ratio():
    # On demand a run at s times the speed costs 1/s: 40 x 24 x 21.5 = 20,640 USD, 10,320 at 2.
    found = market(options=("on-demand",))
    assert break_even_speed(found, 1, 10_320.0) == pytest.approx(2.0, rel=1e-4)
    assert break_even_speed(found, 1, 41_280.0) == pytest.approx(0.5, rel=1e-4)


def test_break_even_of_blocks_is_where_a_day_is_saved():
    # 41 days are paid at speed 1. For 7 days of 9.532 USD x 24 the run may take 7 d - 30 min:
    # 40 / (7 - 1/48) = 5.7313 times the speed.
    found = market(options=("capacity-block",))
    speed = break_even_speed(found, 1, 7 * 24 * 9.532)
    assert speed == pytest.approx(40 / (7 - 1 / 48), rel=1e-4)


def test_break_even_out_of_reach():
    # No speed makes a day of a block cheaper than a day.
    found = market(options=("capacity-block",))
    assert break_even_speed(found, 1, 24 * 9.532 - 0.01) is None
    assert break_even_speed(market("trn2-ultraserver"), 1, 1e6) is None


def test_changed_moves_one_thing():
    before = market(options=("on-demand",))
    dearer = cost_of(before.changed(price=1.25))
    assert dearer.cost_usd == pytest.approx(1.25 * cost_of(before).cost_usd)
    faster = cost_of(before.changed(speed=2.0))
    assert faster.wall_s == pytest.approx(cost_of(before).wall_s / 2, rel=1e-5)
    failing = cost_of(before.changed(failures_per_node_day=1.0))
    assert np.all(failing.goodput < cost_of(before).goodput)


def test_sensitivity_by_hand():
    # Two types by the second: 20,640 USD beside 21,000 (as own price). A fifth less keeps the
    # first, a quarter more (25,800) hands over to the second.
    cheap = market(options=("on-demand",), days=(40.0,), nodes=(1,))
    other = market("p5.48xlarge", own={"p5.48xlarge": 21.875}, days=(40.0,), nodes=(1,))
    limits = Limits(deadline_s=45 * DAY_S)
    (plan, *_) = ranked([*candidates(cheap), *candidates(other)], limits, "cost")
    assert plan.instance == "trn1.32xlarge"
    changes: Any = sensitivity([cheap, other], plan, limits, "cost", speeds=(0.8, 1.25))
    told = {(change.moved, change.factor): change for change in changes}
    assert list(told) == [("price", 0.8), ("price", 1.25), ("speed", 0.8), ("speed", 1.25)]
    assert told["price", 0.8].best.instance == "trn1.32xlarge"
    assert told["price", 0.8].same.cost_usd == pytest.approx(0.8 * 20_640, rel=1e-5)
    assert told["price", 1.25].best.instance == "p5.48xlarge"
    # At 0.8 of the speed it takes 50 days.
    assert not told["speed", 0.8].kept
    assert told["speed", 0.8].best.instance == "p5.48xlarge"
    assert told["speed", 1.25].kept


def test_failures_move_between_the_ends_of_their_range():
    known = market(options=("on-demand",), days=(40.0,), nodes=(1,), stated=Stated())
    (plan, *_) = candidates(known)
    changes: Any = sensitivity([known], plan, Limits(), "cost", speeds=())
    low, high = [change for change in changes if change.moved == "failures"]
    # specs/reliability/trainium.toml: 5e-3, from 2.3e-3 to 1.3e-2
    assert [low.factor, high.factor] == pytest.approx([0.46, 1.8])
    assert low.same.cost_usd < plan.cost_usd < high.same.cost_usd
