"""Which row of a price list holds on a day."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.facts.prices.price import Price, PriceList

NEW_YEAR = datetime.date(2026, 1, 1)


def day(number: int) -> datetime.date:
    return NEW_YEAR + datetime.timedelta(days=number)


def row(usd: float | None, seen: int, until: int | None = None, **more: Any) -> Price:
    keys: dict[str, Any] = {"region": "us-east-1", "option": "on-demand"} | more
    last = seen if until is None else until
    return Price(usd_per_hour=usd, date_from=day(seen), date_to=day(last), **keys)


def usd_on(number: int, *rows: Price, region: str = "us-east-1") -> float | None:
    prices = PriceList(name="a", title="A", price=rows)
    found = prices.price_at(region=region, option="on-demand", on=day(number))
    return found.usd_per_hour if found else None


def test_the_newest_row_not_after_the_day() -> None:
    rows = (row(3, 20), row(1, 0), row(2, 10))
    assert [usd_on(n, *rows) for n in (-1, 0, 9, 10, 19, 20, 99)] == [None, 1, 1, 2, 2, 3, 3]


def test_an_imprecise_row_applies_from_its_last_possible_day() -> None:
    rows = (row(1, 0), row(2, 5, 30))
    assert [usd_on(n, *rows) for n in (5, 29, 30)] == [1, 1, 2]


def test_a_rate_unchanged_since_an_earlier_day_applies_from_there() -> None:
    late = row(1, 30, unchanged_since=day(0))
    assert [usd_on(n, late) for n in (-1, 0, 31)] == [None, 1, 1]


def test_a_tie_goes_to_the_later_first_day_and_then_to_the_later_row() -> None:
    assert usd_on(9, row(1, 3, 9), row(2, 1, 9)) == 1
    assert usd_on(9, row(1, 3, 9), row(2, 3, 9)) == 2


def test_other_regions_and_options_do_not_count() -> None:
    rows = (row(1, 0, region="us-west-2"), row(2, 0, option="spot"))
    assert usd_on(9, *rows) is None
    assert usd_on(9, *rows, region="us-west-2") == 1


def test_a_row_without_a_rate_ends_an_older_one_and_any_speaks_of_all() -> None:
    assert usd_on(9, row(1, 0), row(None, 5)) is None
    assert usd_on(4, row(1, 0), row(None, 5)) == 1
    nowhere = PriceList(name="a", title="A", price=(row(None, 0, region="any", option="any"),))
    assert nowhere.price_at(region="eu-west-1", option="spot", on=day(0)) is nowhere.price[0]


@pytest.mark.parametrize(
    ("fault", "more"),
    [
        ("`date_from` is after", {"until": -1}),
        ("`unchanged_since` is after", {"unchanged_since": day(1)}),
        ("expected `low` <=", {"low_usd_per_hour": 3.0}),
        ("expected `low` <=", {"high_usd_per_hour": 1.0}),
    ],
)
def test_contradictions_are_refused(fault: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=fault):
        row(2, 0, **more)


@settings(deadline=None, max_examples=100)
@given(
    starts=st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True),
    on=st.integers(-5, 50),
)
def test_order_in_the_file_decides_nothing_but_ties(starts: list[int], on: int) -> None:
    rows = [row(1 + start, start) for start in starts]
    earlier = [start for start in starts if start <= on]
    expected = 1 + max(earlier) if earlier else None
    assert usd_on(on, *rows) == usd_on(on, *reversed(rows)) == expected
