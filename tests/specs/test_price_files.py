"""The price files: complete, dated, sourced, and a few rates by hand."""

from __future__ import annotations

import datetime
from collections import Counter

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.prices.price import PriceList, load_prices

CATALOG = open_catalog(environment={})
OCTOBER = datetime.date(2026, 10, 7)
"""Since when blocks of NVIDIA types cost 1.15 x those of July."""
ROWS = {
    "g5.xlarge": 4,
    "g5.12xlarge": 4,
    "g5.48xlarge": 4,
    "g6e.xlarge": 4,
    "g6e.12xlarge": 4,
    "g6e.48xlarge": 4,
    "p4d.24xlarge": 26,
    "p4de.24xlarge": 17,
    "p5.4xlarge": 30,
    "p5.48xlarge": 55,
    "p5e.48xlarge": 38,
    "p5en.48xlarge": 52,
    "p6-b200.48xlarge": 22,
    "p6-b300.48xlarge": 12,
    "trn1.2xlarge": 13,
    "trn1.32xlarge": 30,
    "trn1n.32xlarge": 12,
    "trn2.3xlarge": 6,
    "trn2.48xlarge": 6,
    "trn2u.48xlarge": 1,
    "trn2-ultraserver": 1,
    "trn3-ultraserver": 1,
    "u-p6e-gb200x36": 1,
    "u-p6e-gb200x72": 1,
}
OPTIONS = {"on-demand": 71, "reserved": 37, "spot": 42, "capacity-block": 195, "any": 3}
LISTS = {name: load_prices(CATALOG, name) for name in ROWS}


@pytest.fixture(params=ROWS)
def prices(request: pytest.FixtureRequest) -> PriceList:
    return LISTS[request.param]


def test_every_published_row_is_there() -> None:
    found = {entry.name for entry in CATALOG.entries("prices")}
    assert found == set(ROWS)
    assert {name: len(known.price) for name, known in LISTS.items()} == ROWS
    assert sum(ROWS.values()) == sum(OPTIONS.values()) == 348
    assert Counter(row.option for known in LISTS.values() for row in known.price) == OPTIONS


def test_no_row_is_there_twice(prices: PriceList) -> None:
    keys = [(row.region, row.option, row.date_from, row.date_to) for row in prices.price]
    assert len(set(keys)) == len(keys)


def test_rates_have_sources_and_the_others_say_why(prices: PriceList) -> None:
    for row in prices.price:
        if row.usd_per_hour is None:
            assert row.note
        else:
            source = prices.source_of(row)
            assert source is not None
            announced = (row.note or "").startswith("second-hand")
            assert source.date >= row.date_from or announced


def test_spot_is_a_range_over_zones(prices: PriceList) -> None:
    for row in prices.price:
        assert (row.option == "spot") is (row.zones is not None)
        if row.option == "spot":
            assert row.low_usd_per_hour is not None
            assert row.high_usd_per_hour is not None
            assert row.zones != 1 or row.low_usd_per_hour == row.high_usd_per_hour


def test_rows_of_an_option_are_in_order_of_date(prices: PriceList) -> None:
    for option in OPTIONS:
        dates = [(row.date_from, row.date_to) for row in prices.price if row.option == option]
        assert dates == sorted(dates)


def test_ultraservers_are_found_under_both_names() -> None:
    assert load_prices(CATALOG, "u-trn2x64").name == "trn2-ultraserver"
    assert load_prices(CATALOG, "trn3-ultraserver-gen1").name == "trn3-ultraserver"
    assert load_prices(CATALOG, "trn3-ultraserver-gen2").name == "trn3-ultraserver"


@pytest.mark.parametrize(
    ("name", "region", "option", "on", "usd_per_hour"),
    [
        # On-demand before and after the cut of June 2025, and a rate that never moved.
        ("p4d.24xlarge", "us-east-1", "on-demand", "2025-05-01", 32.7726),
        ("p4d.24xlarge", "us-east-1", "on-demand", "2025-06-22", 32.7726),
        ("p4d.24xlarge", "us-east-1", "on-demand", "2025-06-23", 21.957642),
        ("p5.48xlarge", "us-east-1", "on-demand", "2025-04-27", None),
        ("p5.48xlarge", "us-east-1", "on-demand", "2025-04-28", 98.32),
        ("trn1.32xlarge", "us-east-1", "on-demand", "2022-10-17", 21.5),
        ("trn1n.32xlarge", "us-east-1", "on-demand", "2026-10-01", 24.78),
        # Capacity Blocks rose through 2026; second-hand rates without a region are no region's.
        ("p5en.48xlarge", "us-east-2", "capacity-block", "2026-07-21", 41.612),
        ("p5en.48xlarge", "us-east-2", "capacity-block", "2026-10-06", 54.92),
        ("p5en.48xlarge", "us-east-2", "capacity-block", "2026-10-07", 63.16),
        ("p5en.48xlarge", "us (region not stated)", "capacity-block", "2026-12-01", 63.158),
        ("trn2.48xlarge", "us-east-2", "capacity-block", "2026-10-08", 35.7608),
        ("trn1.32xlarge", "ap-southeast-4", "capacity-block", "2025-06-01", 15.49),
        # Reserved: the newer of two terms; spot: the newer of two undated snapshots.
        ("trn1.32xlarge", "us-east-1", "reserved", "2025-12-31", 8.197),
        ("trn1.32xlarge", "us-east-1", "reserved", "2026-02-01", 13.22895),
        ("trn1.32xlarge", "us-east-1", "spot", "2026-11-21", 7.5346),
        ("trn2.48xlarge", "us-east-2", "spot", "2026-11-21", 8.5964),
        # Searched for and not published.
        ("trn2.48xlarge", "us-east-2", "on-demand", "2026-11-21", None),
        ("trn2-ultraserver", "us-east-2", "capacity-block", "2026-11-21", None),
        ("u-p6e-gb200x72", "us-east-1-dfw-2a", "capacity-block", "2026-08-01", 761.904),
    ],
)
def test_rates_by_hand(
    name: str, region: str, option: str, on: str, usd_per_hour: float | None
) -> None:
    day = datetime.date.fromisoformat(on)
    row = LISTS[name].price_at(region=region, option=option, on=day)
    assert (row.usd_per_hour if row else None) == usd_per_hour


def test_second_hand_rates_are_flagged() -> None:
    flagged = {
        (known.name, row.usd_per_hour)
        for known in LISTS.values()
        for row in known.price
        if row.note and row.note.startswith("second-hand") and row.date_to != OCTOBER
    }
    assert flagged == {
        ("p5e.48xlarge", 34.61),
        ("p5en.48xlarge", 36.18),
        ("p5en.48xlarge", 63.158),
        ("trn1.32xlarge", 9.532),
        ("trn2.48xlarge", 35.7608),
    }


def test_blocks_of_october_2026_hold_the_rate_they_replaced(prices: PriceList) -> None:
    for row in prices.price:
        if row.date_to != OCTOBER:
            continue
        assert (row.note or "").startswith("second-hand")
        before = prices.price_at(
            region=row.region, option=row.option, on=OCTOBER - datetime.timedelta(days=1)
        )
        assert before is not None
        assert before.usd_per_hour == row.low_usd_per_hour
        assert row.usd_per_hour == row.high_usd_per_hour
        if row.region in ("us-east-1", "us-east-2", "us-west-2"):
            assert row.usd_per_hour == pytest.approx(1.15 * (before.usd_per_hour or 0), rel=2e-4)


def test_spot_zones_of_trn1() -> None:
    row = LISTS["trn1.32xlarge"].price_at(
        region="us-east-1", option="spot", on=datetime.date(2026, 11, 21)
    )
    assert row is not None
    assert (row.low_usd_per_hour, row.high_usd_per_hour, row.zones) == (3.0474, 8.3747, 3)
