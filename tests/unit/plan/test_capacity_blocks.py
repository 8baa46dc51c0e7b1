"""Capacity Blocks: the fewest paid days, by hand and against every combination."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.prices.purchase import BlockRules, load_purchase_rules
from trnbench.facts.units import DAY_S
from trnbench.money.capacity_blocks import (
    cheapest_row,
    durations_of,
    single_block_days,
    sizes_of,
)

RULES: Any = load_purchase_rules(open_catalog(environment={}), "AWS")
BLOCK = RULES.block
HOUR_S = 3600.0


def bought(days: float, seam_s: float = 1200.0, rules: BlockRules = BLOCK) -> tuple[int, ...]:
    """The lengths of blocks bought for a run of some days."""
    paid_days, blocks = cheapest_row(rules, days * DAY_S, seam_s)
    assert np.isfinite(paid_days)
    lengths = durations_of(rules, int(paid_days))
    assert len(lengths) == blocks
    return lengths


def test_legal_lengths():
    assert BLOCK.durations_days == (*range(1, 15), *range(21, 183, 7))
    assert len(BLOCK.durations_days) == 14 + 24


def test_by_hand():
    assert bought(9.2) == (10,)
    # 17 d = 408 h. 14 + 3 days: 408 h less two half hours and the seam: too short. 14 + 4: 432 h.
    assert bought(17) == (14, 4)
    assert single_block_days(BLOCK, 17 * DAY_S) == 21
    # A 14-day block ends half an hour early: 335.5 h of 336.
    assert bought(14.0) == (14, 1)
    assert single_block_days(BLOCK, 14 * DAY_S) == 21
    assert bought(14 - 0.5 / 24) == (14,)
    assert bought(14 - 0.49 / 24) == (14, 1)
    assert bought(0.01) == (1,)


def test_the_seam_is_paid_for():
    # 14 + 4 days hold 432 - 2 x 0.5 = 431 h with the seam, the run has 408: 23 h are left for it.
    assert bought(17, seam_s=23 * HOUR_S) == (14, 4)
    assert bought(17, seam_s=23 * HOUR_S + 1) == (14, 5)
    # 14 + 7 = 21 days is one block without a seam, so that is where longer seams end.
    assert bought(17, seam_s=100 * HOUR_S) == (21,)


def test_runs_longer_than_the_longest_block():
    assert bought(181.9) == (182,)
    # 182 + 1 days hold 183 x 24 - 1 - 1/3 = 4,390.67 h; 182.9 d are 4,389.6 h.
    assert bought(182.9) == (182, 1)
    assert single_block_days(BLOCK, 182 * DAY_S) is None


def test_a_run_that_never_ends_and_a_seam_longer_than_a_block_cannot_be_bought():
    paid_days, _ = cheapest_row(
        BLOCK, [np.inf, np.nan, DAY_S, DAY_S], [60.0, 60.0, 182 * DAY_S, 60.0]
    )
    assert np.isfinite(paid_days).tolist() == [False, False, False, True]
    assert np.isnan(paid_days[:3]).all()
    assert paid_days[3] == 2


small_rules = st.builds(
    lambda single, step, multiples, early: BlockRules(
        single_days_to=single,
        step_days=step,
        longest_days=max(single, (single // step + multiples) * step),
        sizes=(1,),
        ends_early_s=early * HOUR_S,
        ahead_s=DAY_S,
    ),
    st.integers(1, 4),
    st.integers(2, 5),
    st.integers(0, 2),
    st.floats(0, 12),
)


@settings(deadline=None, max_examples=60)
@given(rules=small_rules, days=st.floats(0.05, 9), seam_h=st.floats(0, 10))
def test_no_combination_is_cheaper(rules, days, seam_h):
    # 9 days in blocks of at least 1 day, of which 2 to 24 h are usable, take up to 108 blocks:
    # so many are not tried, only those of up to 5, and compared where the answer has as few.
    paid_days, blocks = cheapest_row(rules, days * DAY_S, seam_h * HOUR_S)
    lost = rules.ends_early_s + seam_h * HOUR_S
    if np.isnan(paid_days):
        assert rules.longest_days * DAY_S <= lost
        return
    needed = days * DAY_S - seam_h * HOUR_S
    tried = [
        (sum(blocks), count)
        for count in range(1, 6)
        for blocks in combinations_with_replacement(rules.durations_days, count)
        if sum(blocks) * DAY_S - count * lost >= needed
    ]
    answer = (int(paid_days), int(blocks))
    assert not tried or answer <= min(tried)
    assert answer in tried or blocks > 5


def test_long_runs_agree_with_a_long_table():
    # Fewest blocks for every number of days up to 5,000, one day at a time.
    lengths = BLOCK.durations_days
    fewest = [0]
    for total in range(1, 5001):
        fewest.append(1 + min(fewest[total - d] for d in lengths if d <= total))
    seam_s, lost = 900.0, 900.0 + 1800.0
    holds = np.arange(5001) * DAY_S - np.array(fewest) * lost + seam_s
    for days in (1.0, 180.3, 365.0, 1000.7, 1821.0, 2500.25, 4000.0, 4900.5):
        least = int(np.flatnonzero(holds >= days * DAY_S)[0])
        assert sum(bought(days, seam_s)) == least
        assert len(bought(days, seam_s)) == fewest[least]


def test_many_runs_at_once_are_each_as_alone():
    walls = np.linspace(0.1, 700, 500) * DAY_S
    seams = np.linspace(0, 90000, 500)
    paid_days, blocks = cheapest_row(BLOCK, walls, seams)
    alone = [cheapest_row(BLOCK, w, s) for w, s in zip(walls, seams, strict=True)]
    assert paid_days.tolist() == [float(one) for one, _ in alone]
    assert blocks.tolist() == [float(one) for _, one in alone]


@pytest.mark.parametrize(("wall_s", "seam_s"), [(np.inf, 900.0), (DAY_S, np.inf), (DAY_S, np.nan)])
def test_a_run_without_an_end_has_no_blocks(wall_s, seam_s):
    assert np.isnan(cheapest_row(BLOCK, wall_s, seam_s)).all()
    # Nor do the runs beside it lose theirs.
    days, _ = cheapest_row(BLOCK, [DAY_S, wall_s], [900.0, seam_s])
    assert days[0] == cheapest_row(BLOCK, DAY_S, 900.0)[0]


@settings(deadline=None, max_examples=60)
@given(days=st.integers(1, 9000))
def test_lengths_are_legal_and_add_up(days):
    lengths = durations_of(BLOCK, days)
    assert sum(lengths) == days
    assert set(lengths) <= set(BLOCK.durations_days)
    assert list(lengths) == sorted(lengths, reverse=True)


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [
        (1, (1,)),
        (64, (64,)),
        (65, (64, 1)),
        (100, (64, 32, 4)),
        (256, (64, 64, 64, 64)),
        (257, None),
    ],
)
def test_sizes(nodes, sizes):
    assert sizes_of(BLOCK, nodes) == sizes


def test_ultraservers_come_one_to_a_block():
    assert RULES.ultraserver_block.sizes == (1,)
    assert sizes_of(RULES.ultraserver_block, 5) == (1, 1, 1, 1, 1)


def test_where_no_sizes_fit_more_machines_are_bought():
    coarse = BlockRules(
        single_days_to=1,
        step_days=1,
        longest_days=1,
        sizes=(4, 6),
        most=12,
        ends_early_s=0.0,
        ahead_s=0.0,
    )
    # 7 = no sum of 4 and 6; 8 = 4 + 4 is the next. 11: 12 = 6 + 6. 13 is above what is sold.
    assert sizes_of(coarse, 7) == (4, 4)
    assert sizes_of(coarse, 11) == (6, 6)
    assert sizes_of(coarse, 13) is None
