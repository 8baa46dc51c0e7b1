"""Choosing among purchases: limits, ties, what comes nearest, and the front."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.money import Objective
from trnbench.money.objective import (
    NO_LIMITS,
    Candidate,
    Limits,
    cheapest_first,
    nearest,
    pareto,
    ranked,
    soonest_first,
)

DAY_S = 86400.0


def way(days, usd, nodes=1, instance="a", option="on-demand"):
    return Candidate(
        instance=instance,
        nodes=nodes,
        option=option if usd is not None else None,
        elapsed_s=days * DAY_S,
        cost_usd=usd,
    )


CANDIDATES = st.lists(
    st.builds(
        way,
        days=st.integers(1, 8),
        usd=st.none() | st.integers(1, 8).map(float),
        nodes=st.sampled_from([1, 2, 4]),
        instance=st.sampled_from(["a", "b"]),
    ),
    max_size=12,
)


def test_the_cheapest_in_time_is_taken():
    slow, fast, dear = way(40, 1.0), way(20, 2.0), way(10, 5.0)
    limits = Limits(deadline_s=30 * DAY_S)
    assert ranked([slow, fast, dear], limits, "cost") == [fast, dear]
    assert ranked([slow, fast, dear], limits, "time") == [dear, fast]
    assert ranked([slow, fast, dear], Limits(budget_usd=4.0), "time") == [fast, slow]


def test_a_limit_is_kept_to_the_last_second_and_cent():
    assert Limits(deadline_s=DAY_S, budget_usd=5.0).kept_by(way(1, 5.0))
    assert Limits(deadline_s=DAY_S).excess(way(2, 5.0)) == {"deadline": 2.0}
    assert Limits(budget_usd=4.0).excess(way(2, 5.0)) == {"budget": 1.25}


def test_what_has_no_price_is_no_purchase():
    unsold = way(1, None)
    assert Limits().excess(unsold) == {"price": math.inf}
    assert ranked([unsold], Limits(), "time") == []
    assert ranked([unsold, way(2, 3.0)], NO_LIMITS, "cost")[-1] is unsold


def test_equals_go_to_the_faster_then_to_fewer_nodes_then_to_the_first_named():
    first, second = way(2, 3.0, instance="a"), way(2, 3.0, instance="b")
    faster, larger = way(1, 3.0), way(2, 3.0, nodes=2)
    assert ranked([larger, second, first, faster], Limits(), "cost") == [
        faster,
        second,
        first,
        larger,
    ]
    # A difference in the eighth digit is none.
    assert ranked([way(2, 3.00000001), way(2, 3.0)], Limits(), "cost")[0].cost_usd == 3.00000001


def test_nearest_breaks_its_worst_limit_least():
    limits = Limits(deadline_s=10 * DAY_S, budget_usd=10.0)
    late, dear = way(30, 5.0), way(5, 20.0)  # 3 x the deadline; 2 x the budget
    assert nearest([late, dear, way(1, None)], limits) is dear
    # Of what has no price, in time before late, then the least machine time: 16 before 20 days.
    large, small = way(2, None, nodes=10), way(8, None, nodes=2)
    assert nearest([way(40, None), large, small], limits) is small
    assert nearest([], limits) is None


def test_the_front_by_hand():
    ways = [way(1, 9.0), way(2, 9.0), way(3, 5.0), way(4, 6.0), way(5, 4.0), way(1, None)]
    assert pareto(ways) == [ways[0], ways[2], ways[4]]


@settings(max_examples=200)
@given(ways=CANDIDATES)
def test_the_front_is_what_nothing_beats(ways):
    sold = [one for one in ways if one.cost_usd is not None]

    def beaten(one):
        return any(
            other.elapsed_s <= one.elapsed_s
            and other.cost_usd <= one.cost_usd
            and (other.elapsed_s, other.cost_usd) != (one.elapsed_s, one.cost_usd)
            for other in sold
        )

    front = {(one.elapsed_s, one.cost_usd) for one in pareto(ways)}
    assert front == {(one.elapsed_s, one.cost_usd) for one in sold if not beaten(one)}


@settings(max_examples=200)
@given(ways=CANDIDATES, days=st.integers(1, 8), usd=st.integers(1, 8))
def test_the_best_is_on_the_front_and_none_is_better(ways, days, usd):
    limits = Limits(deadline_s=days * DAY_S, budget_usd=float(usd))
    kept = [one for one in ways if limits.kept_by(one)]
    deciding: dict[Objective, str] = {"cost": "cost_usd", "time": "elapsed_s"}
    for objective, figure in deciding.items():
        best = ranked(ways, limits, objective)
        assert len(best) == len(kept)
        if best:
            assert getattr(best[0], figure) == min(getattr(one, figure) for one in kept)
            assert any(
                (one.elapsed_s, one.cost_usd) == (best[0].elapsed_s, best[0].cost_usd)
                for one in pareto(kept)
            )


@settings(max_examples=100)
@given(ways=CANDIDATES)
def test_the_order_of_unequals_does_not_depend_on_the_order_given(ways):
    def figures(found):
        return [(one.cost_usd, one.elapsed_s, one.nodes) for one in found]

    assert figures(cheapest_first(ways)) == figures(cheapest_first(reversed(ways)))


def test_of_those_equally_late_the_cheapest_is_nearest():
    # 100 days at the earliest: 102 are as late, 102.5 are not; of 10 days 11 are, 11.5 are not.
    limits = Limits(deadline_s=5 * DAY_S)
    early, cheap, cheaper = way(100, 9.0), way(102, 4.0), way(102.5, 1.0)
    assert nearest([early, cheap, cheaper], limits) is cheap
    early, cheap, cheaper = way(10, 9.0), way(11, 4.0), way(11.5, 1.0)
    assert nearest([early, cheap, cheaper], limits) is cheap
    # What keeps the deadline is nearer than what does not, however little that is late.
    in_time, just_late = way(5, 20.0), way(5.1, 1.0)
    assert nearest([in_time, just_late], Limits(deadline_s=5 * DAY_S, budget_usd=25.0)) is in_time


def test_the_soonest_is_the_cheapest_of_the_earliest_ends():
    early, cheap, late = way(100, 9.0), way(101, 4.0), way(110, 1.0)
    assert ranked([early, late, cheap], NO_LIMITS, "soonest") == [cheap, early, late]
    assert soonest_first([]) == []


@settings(max_examples=300)
@given(
    days=st.lists(st.floats(1, 400), min_size=1, max_size=8),
    usd=st.lists(st.integers(1, 9), min_size=8, max_size=8),
    deadline=st.floats(0.1, 0.999),
)
def test_a_missed_deadline_never_makes_the_purchase_dearer_at_an_equal_end(days, usd, deadline):
    ways = [way(d, float(u)) for d, u in zip(days, usd, strict=False)]
    shown = nearest(ways, Limits(deadline_s=deadline * min(days) * DAY_S))
    without = cheapest_first(ways)[0]
    earliest = min(one.elapsed_s for one in ways)
    assert shown is not None
    assert shown.cost_usd is not None
    assert without.cost_usd is not None
    reach = max(DAY_S, 0.02 * earliest)
    assert shown.elapsed_s <= (earliest + reach) * (1 + 1e-6)
    if without.elapsed_s <= earliest + reach:
        assert shown.cost_usd <= without.cost_usd
