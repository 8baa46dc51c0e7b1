"""Verdicts: who leads, by how much, how surely, and when it is a tie."""

from __future__ import annotations

import pytest

from tests.unit.show.test_quote_text import bill
from trnbench.facts.records import replace
from trnbench.show.row import Interval
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.lead import Lead, verdict_is
from trnbench.verbs.quotes.verdict import _apart, _error, _minimum, share_text


def lead(*shares, winner=0):
    return Lead(winner=winner, rival=None, cost=None, shares=shares)


@pytest.mark.parametrize(
    ("found", "word", "tied"),
    [
        (lead(0.8, 0.2), "clear", ()),
        (lead(0.79, 0.11, 0.1), "tie", (1, 2)),
        (lead(0.45, 0.05, 0.5), "tie", (2,)),
        (lead(0.1, 0.9), "tie", (1,)),
        (lead(1.0), "clear", ()),
    ],
)
def test_below_80_percent_it_is_a_tie_of_all_with_10(found, word, tied):
    assert verdict_is(found) == word
    assert found.tied == tied


def test_nothing_with_a_price_is_no_tie():
    assert verdict_is(None) == "clear"


def test_ratios_are_said_as_percentages():
    assert _apart(0.95) == "5 % below"
    assert _apart(1.4) == "40 % above"
    assert _apart(1.001) == "as much as"
    assert _apart(0.00001) == ">99 % below"
    within = Interval(value=0.95, low=0.75, high=1.4)
    assert _error(within) == "within the error (25 % below to 40 % above"
    beyond = Interval(value=0.7, low=0.5, high=0.9)
    assert _error(beyond).startswith("beyond the error (50 % below to 10 % below")


def test_what_is_not_all_is_not_called_all():
    assert share_text(0.998) == ">99 % of draws"
    assert share_text(1.0) == "100 % of draws"
    assert share_text(0.567) == "57 % of draws"


@pytest.mark.parametrize(("used_h", "told"), [(12.0, False), (11.9, True), (6.0, True)])
def test_blocks_of_which_less_than_half_is_used_are_said_to_be_sold_by_the_day(used_h, told):
    # One block of a day: 24 h are paid.
    paid = bill("capacity-block", billed_hours=24.0, wall_s=3600 * used_h)
    quote = Quote(
        instance="trn2.48xlarge", nodes=1, steps=(), main=0, tokens=None, samples=1.0, bill=paid
    )
    assert ("sold by the day here" in _minimum(quote)) is told
    by_use = bill("on-demand", billed_hours=24.0, wall_s=3600 * used_h)
    assert _minimum(replace(quote, bill=by_use)) == ""
