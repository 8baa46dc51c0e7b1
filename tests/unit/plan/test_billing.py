"""Bills by hand, one purchase option after the other."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.prices.price import Price, PriceList
from trnbench.facts.prices.purchase import load_purchase_rules
from trnbench.facts.records import replace
from trnbench.money.billing import Bill, RateEnd, added, bill, charges
from trnbench.money.price_terms import PriceTerms
from trnbench.money.purchase import Offers, offers_of

CATALOG = open_catalog(environment={})
RULES: Any = load_purchase_rules(CATALOG, "AWS")
INSTANCE = load_instance(CATALOG, "trn1.32xlarge")
ULTRASERVER = load_instance(CATALOG, "trn2-ultraserver")
DAY = datetime.date(2026, 1, 1)
DAY_S = 86400.0


def offered(option, usd=10.0, *, instance=INSTANCE, terms=None, rules=RULES, **row) -> Offers:
    price = Price(
        region="us-east-1", option=option, usd_per_hour=usd, date_from=DAY, date_to=DAY, **row
    )
    asked = terms or PriceTerms(on=DAY, options=(option,))
    prices = PriceList(name="a", title="A", price=(price,))
    return offers_of(instance, asked, prices=prices, rules=rules)


def billed(option, *, days=None, wall_s=None, nodes=1, seam_s=0.0, **row) -> Any:
    found = offered(option, **row)
    wall = days * DAY_S if days is not None else wall_s
    return bill(found, found.tariffs[0], wall_s=wall, nodes=nodes, seam_s=seam_s)


def paid_for(found: Offers, wall_s: float, nodes: int = 1) -> Bill:
    paid = bill(found, found.tariffs[0], wall_s=wall_s, nodes=nodes)
    assert isinstance(paid, Bill)
    return paid


@pytest.mark.parametrize("option", ["on-demand", "spot"])
def test_metered_by_the_second_with_a_minimum(option):
    # 2 machines, 2.5 h, 10 USD/h: 50 USD.
    assert billed(option, wall_s=9000, nodes=2).charged.cost_usd == 50
    # 100.2 s are 101 started seconds: 101 / 3600 h x 10 USD.
    assert billed(option, wall_s=100.2).charged.cost_usd == pytest.approx(101 / 360)
    # 5 s cost as much as 60.
    short = billed(option, wall_s=5)
    assert short.charged.billed_hours == pytest.approx(1 / 60)
    assert short.charged.cost_usd == pytest.approx(10 / 60)


def test_a_discount_is_taken_off_the_rate():
    found = offered("on-demand", terms=PriceTerms(on=DAY, options=("on-demand",), discount=0.18))
    # 24 h x 3 machines x 10 USD/h x 0.82 = 590.40 USD
    paid = paid_for(found, DAY_S, 3)
    assert paid.charged.cost_usd == pytest.approx(590.4)
    assert (paid.tariff.list_usd_per_hour, paid.tariff.discount) == (10.0, 0.18)


def test_spot_has_a_bill_for_every_end_of_its_zones():
    found = offered("spot", low_usd_per_hour=4.0, high_usd_per_hour=25.0, zones=3)
    (tariff,) = found.tariffs
    # 10 h on 2 machines
    rates: tuple[RateEnd, ...] = ("low", "used", "high")
    ends = [
        float(charges(found, tariff, wall_s=36000, nodes=2, rate=rate).cost_usd) for rate in rates
    ]
    assert ends == [80, 200, 500]
    notes = paid_for(found, 36000, 2).notes
    assert notes[0] == "the median of 3 zones, 4 to 25 USD/h"
    assert "2 min notice" in notes[1]


def test_a_term_that_is_not_stated_is_taken_for_the_longest():
    paid = billed("reserved", days=100, nodes=2)
    # 3 years of 8,760 h: 2 x 10 USD/h x 26,280 h = 525,600 USD
    assert paid.charged.cost_usd == paid.charged.committed_usd == 525600
    # The run uses 2,400 h x 2 x 10 USD/h of it.
    assert paid.charged.share_usd == 48000
    assert paid.charged.upfront_usd == 0
    assert any("3 years (assumed)" in note for note in paid.notes)


def one_year(commitment) -> Offers:
    price = Price(
        region="us-east-1",
        option="reserved",
        terms="1 year, standard, no upfront",
        usd_per_hour=10.0,
        date_from=DAY,
        date_to=DAY,
    )
    return offers_of(
        INSTANCE,
        PriceTerms(on=DAY, options=("reserved",), commitment=commitment),
        prices=PriceList(name="a", title="A", price=(price,)),
        rules=RULES,
    )


def test_a_term_of_a_year_is_paid_whole_or_by_the_share_that_is_used():
    # 100 days on 2 machines: 8,760 h x 2 x 10 = 175,200 USD, of which 2,400 h x 2 x 10 = 48,000.
    whole = paid_for(one_year("whole"), 100 * DAY_S, 2)
    charged = whole.charged
    assert (charged.cost_usd, charged.committed_usd, charged.share_usd) == (175200, 175200, 48000)
    assert whole.charged.billed_hours == 8760
    assert any("1 year;" in note and "48,000" in note for note in whole.notes)
    share = paid_for(one_year("share"), 100 * DAY_S, 2)
    charged = share.charged
    assert (charged.cost_usd, charged.committed_usd, charged.share_usd) == (48000, 175200, 48000)
    assert share.charged.billed_hours == 2400
    # 366 days need a second term.
    longer = paid_for(one_year("whole"), 366 * DAY_S, 1)
    assert longer.charged.cost_usd == 175200


def test_a_savings_plan_at_the_users_own_rate_is_one_year():
    terms = PriceTerms(on=DAY, options=("savings-plan",), own={INSTANCE.name: 8.0})
    found = offers_of(INSTANCE, terms, prices=None, rules=RULES)
    paid = paid_for(found, DAY_S, 1)
    # 8,760 h x 8 USD/h
    assert paid.charged.cost_usd == 70080
    assert any("1 year (assumed)" in note for note in paid.notes)
    longer = offers_of(INSTANCE, replace(terms, term_years=3), prices=None, rules=RULES)
    assert paid_for(longer, DAY_S, 1).charged.cost_usd == 3 * 70080


def test_blocks_are_paid_whole():
    # 9.2 days pay 10: 240 h x 10 USD/h x 4 machines, all of it before the start.
    paid = billed("capacity-block", days=9.2, nodes=4)
    assert paid.blocks_days == (10,)
    assert paid.block_sizes == (4,)
    assert paid.charged.cost_usd == paid.charged.upfront_usd == paid.charged.committed_usd == 9600
    # The block ends half an hour early; the run uses 9.2 x 24 = 220.8 h of it.
    assert (paid.charged.billed_hours, paid.charged.usable_hours) == (240, 239.5)
    assert paid.charged.share_usd == pytest.approx(8832)
    assert paid.restarts == 0
    assert paid.charged.elapsed_s == paid.wall_s


def test_seventeen_days_are_fourteen_and_four():
    # 14 + 4 = 18 days: 432 h x 10 = 4,320 USD; one block would be 21 days: 5,040 USD.
    paid = billed("capacity-block", days=17, seam_s=1200)
    assert paid.blocks_days == (14, 4)
    assert paid.charged.cost_usd == 4320
    assert paid.restarts == 1
    assert paid.charged.seam_hours == pytest.approx(1 / 3)
    assert paid.charged.usable_hours == 431
    # Half an hour without machines, then 20 minutes to stop and start.
    assert paid.charged.elapsed_s - paid.wall_s == 1800 + 1200
    assert any("bought as one 21-day block: 5,040 USD" in note for note in paid.notes)
    # A restart of 24 h leaves too little of 18 days: 19 days, 4,560 USD.
    assert billed("capacity-block", days=17, seam_s=DAY_S).charged.cost_usd == 4560


def test_a_full_fortnight_needs_a_fifteenth_day():
    assert billed("capacity-block", days=14.0, seam_s=600).blocks_days == (14, 1)
    assert billed("capacity-block", days=13.9, seam_s=600).blocks_days == (14,)


def test_sixty_five_machines_are_two_blocks():
    paid = billed("capacity-block", days=1.5, nodes=65)
    # 2 days x 24 h x 65 x 10 USD/h
    assert paid.charged.cost_usd == 31200
    assert (paid.machines, paid.block_sizes) == (65, (64, 1))
    assert any("64 + 1 machines" in warning and "zone" in warning for warning in paid.warnings)


def test_more_machines_than_are_sold():
    refused = billed("capacity-block", days=1, nodes=512)
    assert isinstance(refused, tuple)
    assert refused == ("512 machines: Capacity Blocks hold 256 on a day at most",)


def test_a_run_that_never_ends_has_no_bill():
    for option in ("on-demand", "reserved", "capacity-block"):
        refused = billed(option, wall_s=float("inf"))
        assert isinstance(refused, tuple)
        assert refused == ("the run never ends",)


def test_a_run_of_ages_never_ends():
    for option in ("on-demand", "reserved", "capacity-block"):
        refused = billed(option, wall_s=1e25)
        assert isinstance(refused, tuple)
        assert refused == ("the run never ends",)


def test_sums_name_what_is_repeated():
    assert added((14, 4)) == "14 + 4"
    assert added((182, 182, 182, 119)) == "3 x 182 + 119"
    assert added((64, 64)) == "2 x 64"


def test_spot_says_what_is_assumed_of_interruptions():
    (words,) = [note for note in billed("spot", days=1).notes if "taken back in" in note]
    assert words.startswith("assumed: 5 % of machines are taken back in 30 d (1-20 %)")
    assert "after 30 min (5 min to 1 d)" in words


def test_blocks_far_ahead_are_bought_at_the_rates_of_then():
    notes = billed("capacity-block", days=200).notes
    assert any("at most 56 d ahead" in note for note in notes)
    assert not any("ahead" in note for note in billed("capacity-block", days=30).notes)


def test_an_ultraserver_block_ends_an_hour_early():
    paid = billed("capacity-block", days=13.97, nodes=2, instance=ULTRASERVER)
    # 13.97 d = 335.28 h; 14 days less an hour hold 335.
    assert paid.blocks_days == (14, 1)
    assert paid.block_sizes == (1, 1)
    assert any("2 x 1 machines" in warning for warning in paid.warnings)


def test_the_discount_on_blocks_is_questioned():
    terms = PriceTerms(on=DAY, options=("capacity-block",), discount=0.1)
    notes = billed("capacity-block", days=1, terms=terms).notes
    assert any("whether the discount covers" in note for note in notes)


def test_a_seller_without_rules_is_paid_by_time():
    terms = PriceTerms(on=DAY, own={INSTANCE.name: 3.0})
    found = offers_of(INSTANCE, terms, prices=None, rules=None)
    paid = paid_for(found, 1800, 2)
    assert (paid.tariff.option, paid.charged.cost_usd) == ("quote", 3.0)


@pytest.mark.parametrize("option", ["on-demand", "reserved", "capacity-block"])
def test_many_runs_at_once_are_each_as_alone(option):
    found = offered(option)
    (tariff,) = found.tariffs
    walls = np.array([0.5, 9.2, 17.0, 400.0, np.inf]) * DAY_S
    nodes = np.array([1.0, 65.0, 256.0, 300.0])[:, None]
    together = charges(found, tariff, wall_s=walls, nodes=nodes, seam_s=900.0)
    assert together.cost_usd.shape == (4, 5)
    for i, count in enumerate(nodes[:, 0]):
        for j, wall in enumerate(walls):
            alone = charges(found, tariff, wall_s=wall, nodes=count, seam_s=900.0)
            np.testing.assert_equal(together.cost_usd[i, j], float(alone.cost_usd))
            np.testing.assert_equal(together.elapsed_s[i, j], float(alone.elapsed_s))
    assert not np.isfinite(together.cost_usd)[:, -1].any()
    assert np.isfinite(together.cost_usd)[3, 0] == (option != "capacity-block")
