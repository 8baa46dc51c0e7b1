"""Tariffs: which published rate is used, the user's own, and the way out where there is none."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.prices.price import find_prices
from trnbench.facts.prices.purchase import load_purchase_rules
from trnbench.facts.records import replace
from trnbench.money.price_terms import (
    Multiple,
    PriceTerms,
    check_region,
    load_price_terms,
    parse_assumption,
    parse_own_price,
    parse_price_change,
)
from trnbench.money.purchase import load_offers, offers_of

CATALOG = open_catalog(environment={})
TODAY = datetime.date(2026, 11, 21)


def offers(name, **terms):
    on = terms.pop("on", TODAY)
    return load_offers(
        CATALOG, load_instance(CATALOG, name), load_price_terms(CATALOG, on=on, **terms)
    )


def rates(found):
    return {tariff.option: tariff.usd_per_hour for tariff in found.tariffs}


def test_committed_options_are_offered_unasked():
    found = offers("trn1.32xlarge")
    assert rates(found) == {"on-demand": 21.5, "capacity-block": 9.532, "reserved": 13.22895}
    assert found.refused == ()
    assert found.reasons == ()


def test_the_row_used_is_told_with_its_date_and_source():
    (tariff,) = offers("trn2.48xlarge", options=["capacity-block"]).tariffs
    assert (tariff.region, tariff.list_usd_per_hour) == ("us-east-2", 35.7608)
    assert tariff.price.date_to == datetime.date(2026, 10, 8)
    assert "capacityblocks" in tariff.source.title
    assert "second-hand" in tariff.notes
    assert tariff.origin == "published"


@pytest.mark.parametrize(
    ("on", "usd"), [("2025-06-22", 98.32), ("2025-06-23", 55.04), ("2026-11-21", 55.04)]
)
def test_the_price_date_decides(on, usd):
    found = offers(
        "p5.48xlarge",
        on=datetime.date.fromisoformat(on),
        options=["on-demand"],
        region="us-east-1",
    )
    assert rates(found) == {"on-demand": usd}


def test_before_the_first_price_the_date_of_it_is_told():
    found = offers("trn2.48xlarge", on=datetime.date(2025, 1, 1), options=["capacity-block"])
    assert found.tariffs == ()
    assert "the earliest price as capacity-block is of 2026-01-31" in found.reasons[0]


def test_a_region_without_a_price_names_those_with_one():
    found = offers("trn2.48xlarge", region="us-east-1", options=["capacity-block"])
    assert found.tariffs == ()
    (reason,) = found.reasons
    assert "published in us-east-2 (35.7608 USD/h)" in reason
    assert "--price trn2.48xlarge=USD" in reason


def test_unasked_the_us_regions_are_looked_at_and_a_cheaper_one_is_told():
    (tariff,) = offers("p5.48xlarge", options=["capacity-block"]).tariffs
    assert (tariff.region, tariff.usd_per_hour) == ("us-east-1", 47.76)
    assert not any("cheaper" in note for note in tariff.notes)
    july = {"options": ["capacity-block"], "on": datetime.date(2026, 8, 1)}
    (tariff,) = offers("p5.48xlarge", **july).tariffs
    assert (tariff.region, tariff.usd_per_hour) == ("us-east-1", 41.528)
    assert "cheaper in ap-northeast-1: 37.76 USD/h" in tariff.notes
    (tariff,) = offers("trn2.3xlarge", options=["capacity-block"]).tariffs
    assert tariff.region == "ap-southeast-4"
    (named,) = offers("p5.48xlarge", options=["capacity-block"], region="us-east-2").tariffs
    assert not any("cheaper" in note for note in named.notes)


def test_sources_that_round_differently_are_one_price():
    # us-east-1 has 21.957642, us-east-2 21.95764: the first region stands.
    (tariff,) = offers("p4d.24xlarge", options=["on-demand"]).tariffs
    assert tariff.region == "us-east-1"


def test_a_newer_rate_without_a_region_is_told():
    at_news: dict[str, Any] = {"options": ["capacity-block"], "region": "us-east-1"}
    prices = find_prices(CATALOG, "p5en.48xlarge")
    assert prices is not None
    rows = [row for row in prices.price if row.date_to.isoformat() != "2026-10-07"]
    instance = load_instance(CATALOG, "p5en.48xlarge")
    (tariff,) = offers_of(
        instance,
        load_price_terms(CATALOG, on=TODAY, **at_news),
        prices=replace(prices, price=tuple(rows)),
        rules=load_purchase_rules(CATALOG, "AWS"),
    ).tariffs
    assert tariff.usd_per_hour == 54.92
    assert any("63.158 USD/h is quoted on 2026-10-08" in note for note in tariff.notes)
    assert any(note.startswith("read before the change of 2026-10-07") for note in tariff.notes)
    # Sources that round differently quote one rate.
    (tariff,) = offers("p5en.48xlarge", **at_news).tariffs
    assert (tariff.usd_per_hour, tariff.low_usd_per_hour) == (63.16, 54.92)
    assert not any("quoted on" in note or "change of" in note for note in tariff.notes)


def test_a_rate_older_than_an_announced_change_says_so():
    (tariff,) = offers("trn1.32xlarge", options=["capacity-block"]).tariffs
    assert any("stayed as they were" in note for note in tariff.notes)
    before = datetime.date(2026, 10, 6)
    (tariff,) = offers("trn1.32xlarge", options=["capacity-block"], on=before).tariffs
    assert not any("change of" in note for note in tariff.notes)
    (tariff,) = offers("trn1.32xlarge", options=["on-demand"]).tariffs
    assert not any("change of" in note for note in tariff.notes)


def test_spot_is_a_range_over_zones_and_only_on_request():
    assert "spot" not in rates(offers("trn1.32xlarge"))
    (tariff,) = offers("trn1.32xlarge", options=["spot"], region="us-east-1").tariffs
    assert tariff.usd_per_hour == 7.5346
    assert (tariff.low_usd_per_hour, tariff.high_usd_per_hour) == (3.0474, 8.3747)


@pytest.mark.parametrize(
    "name", ["trn2-ultraserver", "trn2u.48xlarge", "trn3-ultraserver-gen2", "dgx-h100"]
)
def test_nothing_published_is_an_answer_with_the_way_out(name):
    found = offers(name)
    assert found.tariffs == ()
    assert [refused.option for refused in found.refused] == [
        "on-demand",
        "capacity-block",
        "reserved",
    ]
    (reason,) = found.reasons
    assert reason.startswith(f"no published price of {name} as on-demand, capacity-block, reserved")
    assert reason.endswith(f'give --price {name}=USD or --assume-price "{name}=Nx OTHER"')


def test_the_users_own_price():
    found = offers("trn2-ultraserver", prices=["u-trn2x64=143.04"], discount=0.18)
    assert rates(found) == {"quote": 143.04}
    (tariff,) = found.tariffs
    assert tariff.origin == "own"
    assert any("discount" in note for note in tariff.notes)
    asked = offers("trn2-ultraserver", prices=["u-trn2x64=143.04"], options=["capacity-block"])
    assert rates(asked) == {"capacity-block": 143.04}


def test_an_assumed_price_is_a_multiple_and_says_so():
    found = offers("trn2-ultraserver", assumptions=["u-trn2x64=4x trn2.48xlarge"], discount=0.18)
    # 4 x 35.7608 = 143.0432; less 18 %: 117.295424
    (tariff,) = found.tariffs
    assert (tariff.option, tariff.origin) == ("capacity-block", "assumed")
    assert tariff.list_usd_per_hour == pytest.approx(143.0432)
    assert tariff.usd_per_hour == pytest.approx(117.295424)
    assert "assumed: 4 x the price of trn2.48xlarge" in tariff.notes


def test_the_discount_is_off_published_prices():
    (tariff,) = offers("trn1.32xlarge", options=["on-demand"], discount=0.25).tariffs
    assert tariff.list_usd_per_hour == 21.5
    assert tariff.usd_per_hour == 16.125


def test_a_term_of_another_length_is_no_price():
    asked = {"options": ["reserved"], "region": "us-east-1"}
    assert rates(offers("trn1.32xlarge", **asked, term_years=1)) == {"reserved": 13.22895}
    found = offers("trn1.32xlarge", **asked, term_years=3)
    assert found.tariffs == ()
    assert "known for terms of 1 years, not 3" in found.reasons[0]
    assert "terms of 1, 3 years, not 2" in offers("trn1.32xlarge", **asked, term_years=2).reasons[0]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("trn2-ultraserver=143.04", ("trn2-ultraserver", 143.04)),
        (" a = 1,200 USD/h ", ("a", 1200.0)),
    ],
)
def test_prices_as_text(text, parsed):
    assert parse_own_price(text) == parsed


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a=4x b", ("a", Multiple(times=4.0, of="b"))),
        ("a = 0.5 * b.c", ("a", Multiple(times=0.5, of="b.c"))),
    ],
)
def test_assumptions_as_text(text, parsed):
    assert parse_assumption(text) == parsed


@pytest.mark.parametrize(
    ("text", "change"),
    [("a=-20%", ("a", 0.8)), ("a = +50 %", ("a", 1.5)), ("a=20", None), ("a=20%", None)],
)
def test_changes_of_prices_as_text(text, change):
    assert parse_price_change(text) == change


@pytest.mark.parametrize("text", ["a=-100%", "a=-120%", "a=+901%"])
def test_changes_that_leave_no_price_are_refused(text):
    with pytest.raises(InputError, match="must change by more than -100%"):
        parse_price_change(text)


def test_a_changed_price_keeps_its_options_and_its_range():
    as_read = offers("trn1.32xlarge").tariffs
    dearer = offers("trn1.32xlarge", prices=("trn1.32xlarge=+25%",)).tariffs
    assert [one.option for one in dearer] == [one.option for one in as_read]
    for one, other in zip(dearer, as_read, strict=True):
        for name in ("usd_per_hour", "low_usd_per_hour", "high_usd_per_hour"):
            assert getattr(one, name) == pytest.approx(1.25 * getattr(other, name))
        assert one.notes[0] == "what if: +25 %"
        assert one.origin == "assumed"
    with pytest.raises(InputError, match="both a price and a change"):
        offers("trn1.32xlarge", prices=("trn1.32xlarge=+25%", "trn1.32xlarge=3"))


@pytest.mark.parametrize(
    "text", ["", "a", "a=", "=3", "a=b=3", "a=x", "a=-3", "a=0", "a=3 USD", "a=1e300"]
)
def test_malformed_prices_are_refused(text):
    with pytest.raises(InputError, match="price "):
        parse_own_price(text)


@pytest.mark.parametrize(
    "text", ["", "a=4", "a=4x", "a=x b", "a=0x b", "a=1x a", "a=..x b", "a=9999999x b"]
)
def test_malformed_assumptions_are_refused(text):
    with pytest.raises(InputError, match="assumed price "):
        parse_assumption(text)


@pytest.mark.parametrize(
    ("error", "terms"),
    [
        (UnknownNameError, {"region": "us-eats-1"}),
        (UnknownNameError, {"options": ["on-demnd"]}),
        (UnknownNameError, {"prices": ["trn9=1"]}),
        (UnknownNameError, {"assumptions": ["trn1.32xlarge=2x trn9"]}),
        (InputError, {"options": ["spot", "spot"]}),
        (InputError, {"kept": "3"}),
        (InputError, {"kept": "@s3-standard"}),
        (InputError, {"kept": "0@s3-standard"}),
        (InputError, {"discount": 1.0}),
        (InputError, {"discount": -0.1}),
        (InputError, {"prices": ["u-trn2x64=1", "trn2-ultraserver=2"]}),
        (InputError, {"prices": ["u-trn2x64=1"], "assumptions": ["u-trn2x64=2x trn1n.32xlarge"]}),
    ],
)
def test_malformed_terms_are_refused(error, terms):
    with pytest.raises(error):
        load_price_terms(CATALOG, on=TODAY, **terms)


def test_a_mistyped_region_proposes_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'us-east-1'"):
        check_region(CATALOG, "us-eats-1")
    check_region(CATALOG, "eu-north-1")


def test_terms_are_checked_when_made():
    with pytest.raises(InputError, match="discount"):
        PriceTerms(on=TODAY, discount=2.0)
