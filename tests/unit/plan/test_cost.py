"""From tokens to USD: the chain by hand, its ends, and the cheapest offer for every run."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance, load_reliability
from trnbench.facts.prices.purchase import load_purchase_rules
from trnbench.facts.records import replace
from trnbench.money.billing import Bill
from trnbench.money.cost import RunPhase, TrainingJob, training_cost
from trnbench.money.failures import Stated
from trnbench.money.price_terms import Kept, PriceTerms
from trnbench.money.purchase import load_offers, offers_of

CATALOG = open_catalog(environment={})
RULES: Any = load_purchase_rules(CATALOG, "AWS")
TODAY = datetime.date(2026, 11, 21)
RELIABLE = Stated(failures_per_node_day=0.0, start_s=0.0, write_per_node_bytes_per_s=1e9)
DAY_S = 86400.0


def cost(name, phases, *, nodes=1, size=1e9, stated=RELIABLE, ranges=True, **terms):
    instance = load_instance(CATALOG, name)
    return training_cost(
        TrainingJob(phases=phases, nodes=nodes, checkpoint_bytes=size),
        load_offers(CATALOG, instance, PriceTerms(on=TODAY, **terms)),
        load_reliability(CATALOG, instance.chip),
        stated=stated,
        ranges=ranges,
    )


def phase(days, tokens=1e9, **ends):
    """A phase that takes some days of pure training; ends as days, too."""
    speeds = {f"{end}_tokens_per_s": tokens / (d * DAY_S) for end, d in ends.items()}
    return RunPhase(tokens=tokens, tokens_per_s=tokens / (days * DAY_S), **speeds)


def test_the_chain_by_hand():
    # 1e9 tokens in 10 days on 4 machines without failures: one checkpoint of 4e9 bytes at the end
    # takes 1 s. 864,001 s x 4 x 21.50 / 3,600 = 20,640.02 USD; 1,000 million tokens.
    found = cost(
        "trn1.32xlarge", [phase(10)], nodes=4, size=4e9, options=("on-demand",), ranges=False
    )
    assert found.wall_s == pytest.approx(864001)
    assert found.days == pytest.approx(864001 / DAY_S)
    assert found.goodput == pytest.approx(864000 / 864001)
    assert found.cost_usd == pytest.approx(864001 * 4 * 21.5 / 3600)
    assert found.low_cost_usd == found.cost_usd == found.high_cost_usd
    assert found.usd_per_hour == 21.5
    paid = found.bill()
    assert isinstance(paid, Bill)
    assert paid.charged.cost_usd == found.cost_usd


def test_phases_follow_each_other():
    # 8k context: 8e8 tokens at 1e5/s, 8,000 s; 128k: 2e8 at 1e4/s, 20,000 s.
    short = RunPhase(tokens=8e8, tokens_per_s=1e5)
    long = RunPhase(tokens=2e8, tokens_per_s=1e4)
    found = cost("trn1.32xlarge", [short, long], options=("on-demand",))
    assert found.wall_s == pytest.approx(28001)
    assert found.tokens == 1e9


def test_unasked_the_cheapest_committed_offer_is_taken():
    # 10 days on a machine of trn1.32xlarge: 10 paid days at 9.532 are 2,287.68 USD + a day, since
    # the block ends early; on-demand 5,160; a year reserved 115,886.
    found = cost("trn1.32xlarge", [phase(10)])
    assert found.bought().tariff.option == "capacity-block"
    assert found.bill().blocks_days == (11,)
    assert found.cost_usd == pytest.approx(11 * 24 * 9.532)
    # 2 hours cost a whole day of a block, 228.77 USD; by the second 43.01.
    brief = cost("trn1.32xlarge", [phase(1 / 12)])
    assert brief.bought().tariff.option == "on-demand"
    # 300 days are more than 0.615 of a year, where a year reserved (0.827 USD/h) costs less than
    # by the second (1.344 USD/h); the small one is not sold in blocks.
    long = cost("trn1.2xlarge", [phase(300)])
    assert long.bought().tariff.option == "reserved"
    assert long.cost_usd == pytest.approx(8760 * 0.82681)
    assert cost("trn1.2xlarge", [phase(200)]).bought().tariff.option == "on-demand"


def test_runs_with_different_answers_stand_in_one_array():
    days = np.array([1 / 12, 10.0, 10.0])
    nodes = np.array([1, 4, 512])
    speed = RunPhase(tokens=1e9, tokens_per_s=1e9 / (days * DAY_S))
    found = cost("trn1.32xlarge", [speed], nodes=nodes)
    options = [found.bought((i,)).tariff.option for i in range(3)]
    # 512 machines are more than can be bought in blocks.
    assert options == ["on-demand", "capacity-block", "on-demand"]
    for i in range(3):
        alone = cost("trn1.32xlarge", [phase(days[i])], nodes=int(nodes[i]))
        for name in ("cost_usd", "low_cost_usd", "high_cost_usd", "elapsed_s", "goodput"):
            assert getattr(found, name)[i] == pytest.approx(float(getattr(alone, name)))
        assert found.bill((i,)).charged.cost_usd == found.cost_usd[i]
    refused = found.bill_under(found.priced[1], (2,))
    assert isinstance(refused, tuple)


def test_spot_pays_for_its_interruptions_and_has_the_range_of_its_zones():
    runs = {"nodes": 64, "size": 1e12, "region": "us-east-1", "stated": Stated()}
    spot = cost("trn1.32xlarge", [phase(10)], options=("spot",), **runs)
    steady = cost("trn1.32xlarge", [phase(10)], options=("on-demand",), **runs)
    assert spot.wall_s > steady.wall_s
    assert spot.goodput < steady.goodput
    hours = float(spot.wall_s) / 3600
    assert spot.cost_usd == pytest.approx(hours * 64 * 7.5346, rel=1e-5)
    assert spot.low_cost_usd == pytest.approx(float(spot.low_wall_s) / 3600 * 64 * 3.0474, rel=1e-5)
    assert spot.high_cost_usd == pytest.approx(
        float(spot.high_wall_s) / 3600 * 64 * 8.3747, rel=1e-5
    )


def test_days_on_spot_machines_hold_the_time_without_them_and_the_bill_does_not():
    runs = {"nodes": 16, "size": 1e12, "stated": Stated(), "region": "us-east-1"}
    spot = cost("trn1.32xlarge", [phase(10)], options=("spot",), **runs)
    # There 52 % of the time (30 to 99): the run itself is paid, the wait is not.
    assert spot.elapsed_s == pytest.approx(float(spot.wall_s) / 0.52)
    assert spot.low_elapsed_s < 0.6 * spot.elapsed_s
    assert spot.high_elapsed_s > 1.7 * spot.elapsed_s
    assert spot.bill().charged.elapsed_s == pytest.approx(float(spot.elapsed_s))
    assert spot.bill().charged.billed_hours == pytest.approx(float(spot.wall_s) / 3600, rel=1e-3)
    steady = cost("trn1.32xlarge", [phase(10)], options=("on-demand",), **runs)
    assert steady.elapsed_s == steady.wall_s


def test_the_wait_for_a_zone_and_its_share_move_the_days():
    def days(**changed):
        instance = load_instance(CATALOG, "trn1.32xlarge")
        rules = replace(RULES, spot=replace(RULES.spot, **changed))
        offers = load_offers(CATALOG, instance, PriceTerms(on=TODAY, options=("spot",)))
        found = training_cost(
            TrainingJob(phases=[phase(10)], nodes=256, checkpoint_bytes=1e12),
            replace(offers, rules=rules),
            load_reliability(CATALOG, "trainium1"),
        )
        return float(found.days)

    # Away for half as long and there as large a share: lost twice as often, more work repeated.
    assert days(zone_wait_s=3600.0) > 1.05 * days()
    assert days(available=0.3) > 1.5 * days()
    # What is not lost with its zone is lost machine by machine, and of 256 some always are.
    assert days(zone_share=0.0) > 1.005 * days()


def test_the_ends_are_billed_anew():
    # 9.9 days, from 9 to 12: blocks of 10, 9 + 1 = 10 (9.0 days do not fit 9) and 13 days.
    found = cost("trn1.32xlarge", [phase(9.9, high=9.0, low=12.0)], options=("capacity-block",))
    day = 24 * 9.532
    assert found.cost_usd == pytest.approx(10 * day)
    assert found.low_cost_usd == pytest.approx(10 * day)
    assert found.high_cost_usd == pytest.approx(13 * day)
    assert found.low_wall_s == pytest.approx(9 * DAY_S, abs=5)
    assert found.high_wall_s == pytest.approx(12 * DAY_S, abs=5)


def test_ends_hold_the_figure_between_them():
    speeds = np.geomspace(1e3, 1e6, 50)
    jobs = RunPhase(
        tokens=1e12,
        tokens_per_s=speeds,
        low_tokens_per_s=speeds * 0.8,
        high_tokens_per_s=speeds * 1.1,
    )
    found = cost("trn2.48xlarge", [jobs], nodes=64, size=1e12, stated=Stated())
    for low, middle, high in (
        (found.low_wall_s, found.wall_s, found.high_wall_s),
        (found.low_elapsed_s, found.elapsed_s, found.high_elapsed_s),
        (found.low_cost_usd, found.cost_usd, found.high_cost_usd),
    ):
        assert (low <= middle).all()
        assert (middle <= high).all()


def test_without_a_price_time_is_still_known():
    found = cost("trn2-ultraserver", [phase(10)], nodes=4)
    assert found.choice == -1
    assert np.isnan(found.cost_usd)
    assert found.days == pytest.approx(10, abs=1e-3)
    assert found.bought() is None
    assert found.bill() is None
    assert "--assume-price" in found.reasons()[0]
    priced = cost("trn2-ultraserver", [phase(10)], nodes=4, own={"trn2-ultraserver": 100.0})
    assert priced.reasons() == ()
    assert priced.cost_usd == pytest.approx(4 * 240 * 100, rel=1e-4)


def test_what_cannot_be_bought_says_why():
    found = cost("trn2.48xlarge", [phase(10)], nodes=512)
    assert found.choice == -1
    reasons = found.reasons()
    assert "512 machines" in reasons[0]
    assert "no published price of trn2.48xlarge as on-demand" in reasons[1]
    assert isinstance(found.bill(), tuple)


def test_a_run_without_a_speed_has_no_price():
    found = cost("trn1.32xlarge", [RunPhase(tokens=1e9, tokens_per_s=[0.0, np.nan, 1e6])])
    assert found.choice.tolist() == [-1, -1, 0]
    assert "the run never ends" in found.reasons((0,))


@pytest.mark.parametrize("tokens", [0.0, -1.0, float("inf"), float("nan")])
def test_a_phase_of_nothing_is_refused(tokens):
    with pytest.raises(InputError, match="tokens"):
        RunPhase(tokens=tokens, tokens_per_s=1.0)


def test_checkpoints_are_stored_by_size_and_month():
    asked: Any = {"options": ("on-demand",)}
    alone = cost("trn1.32xlarge", [phase(365 / 24)], size=1e12, **asked)
    kept = Kept(count=3, store="fsx-lustre")
    found = cost("trn1.32xlarge", [phase(365 / 24)], size=1e12, kept=kept, **asked)
    # Half a month of 730 h (and the last dump, 1,000 s) at 0.145 USD/GB: 3,000 x 0.5 x 0.145
    elapsed_h = float(found.elapsed_s) / 3600
    usd = 3000 * 0.145 * elapsed_h / 730
    assert usd == pytest.approx(217.5, rel=2e-3)
    assert float(found.cost_usd - alone.cost_usd) == pytest.approx(usd)
    assert float(found.low_cost_usd) > float(alone.low_cost_usd)
    paid = found.bill()
    assert isinstance(paid, Bill)
    assert paid.storage_usd == pytest.approx(usd)
    assert paid.charged.cost_usd == pytest.approx(float(found.cost_usd))


def test_a_store_that_is_not_known_is_refused():
    with pytest.raises(UnknownNameError, match="unknown store"):
        cost("trn1.32xlarge", [phase(1)], kept=Kept(count=1, store="attic"))
    with pytest.raises(InputError, match="no store"):
        offers_of(
            load_instance(CATALOG, "trn1.32xlarge"),
            PriceTerms(on=TODAY, kept=Kept(count=1, store="attic")),
            prices=None,
            rules=None,
        )


def test_the_single_block_is_the_upper_end_of_blocks_in_a_row():
    # 44 days: 42 + 3, or one of 49. The interval of the run itself ends at 45 paid days.
    found = cost("trn1.32xlarge", [phase(44.0)], options=("capacity-block",))
    day = 24 * 9.532
    assert found.cost_usd == pytest.approx(45 * day)
    assert found.high_cost_usd == pytest.approx(49 * day)
    assert any("49-day" in note and "upper end" in note for note in found.bill().notes)
    # A run that one block holds has no such end, nor has one that no block holds.
    assert cost("trn1.32xlarge", [phase(34.0)], options=("capacity-block",)).high_cost_usd == (
        pytest.approx(35 * day)
    )
    long = cost("trn1.32xlarge", [phase(190.0)], options=("capacity-block",))
    assert long.high_cost_usd == long.cost_usd
    assert any("assumed to be on sale" in note for note in long.bill().notes)
