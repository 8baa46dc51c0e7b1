"""Choices under uncertainty by hand, and advice that is followed on planted truths."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.money.decision import (
    least_per_group,
    regret_after_usd,
    regret_usd,
    rule_of,
)
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import Range

TRUTHS = 500


def test_a_group_costs_what_its_cheapest_option_does_in_each_draw():
    costs = np.array([[3.0, 1.0], [2.0, 4.0], [5.0, 5.0]])
    found = least_per_group(costs, ["a", "a", "b"])
    assert {name: one.tolist() for name, one in found.items()} == {"a": [2, 1], "b": [5, 5]}


def test_regret_is_the_mean_of_what_the_best_would_have_saved():
    costs = np.array([[3.0, 1.0, 2.0, 2.0], [2.0, 4.0, 2.0, 0.0]])
    # Of the first option: 1, 0, 0 and 2 more than the best; of the second: 0, 3, 0, 0.
    assert regret_usd(costs, costs[0]) == 0.75
    assert regret_usd(costs, costs[1]) == 0.75


def test_after_a_measurement_each_bin_has_its_own_choice():
    signal = np.array([4.0, 1.0, 3.0, 2.0])
    costs = np.array([[9.0, 1.0, 8.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    rule = rule_of(costs, signal, bins=2)
    assert rule.edges.tolist() == [3.0]
    assert rule.choices.tolist() == [0, 1]
    assert rule.choose(np.array([0.0, 2.9, 3.0, 99.0])).tolist() == [0, 0, 1, 1]


def _planted(draws: CommonDraws, scatter: float) -> tuple[np.ndarray, np.ndarray]:
    """Bills in millions of three machines, and what a measurement of the first one's speed says.

    The first one's speed is known within a factor of 1.5; `scatter` tells what a pilot measures
    from what the run will be.
    """
    level = draws.of("level", Range(value=1.0, low=1 / 1.5, high=1.5))
    own = draws.of("own", Range(value=1.0, low=1 / scatter, high=scatter))
    pilot = draws.of("pilot", Range(value=1.0, low=1 / scatter, high=scatter))
    second = draws.of("second", Range(value=1.0, low=1 / 1.2, high=1.2))
    third = draws.of("third", Range(value=1.0, low=1 / 1.05, high=1.05))
    # Bills grow by whole blocks, as those of Capacity Blocks do.
    costs = np.array([3.0 * level * own, 3.1 * second, 3.2 * third])
    return np.ceil(costs * 20) / 20, np.log(level * pilot)


@pytest.mark.parametrize("scatter", [1.02, 1.1])
def test_who_follows_the_advice_loses_what_was_said_and_less_than_at_once(scatter):
    costs, signal = _planted(CommonDraws(), scatter)
    at_once = int(costs.mean(axis=1).argmin())
    said_now, said_after = regret_usd(costs, costs[at_once]), regret_after_usd(costs, signal)
    rule = rule_of(costs, signal)
    now, after = [], []
    for seed in (1, 2, 3):
        truths, measured = _planted(CommonDraws(count=TRUTHS, seed=seed), scatter)
        now.append(regret_usd(truths, truths[at_once]))
        chosen = truths[rule.choose(measured), np.arange(TRUTHS)]
        after.append(regret_usd(truths, chosen))
    assert np.mean(now) == pytest.approx(said_now, rel=0.15)
    assert np.mean(after) == pytest.approx(said_after, rel=0.15)
    assert said_after < 0.75 * said_now


def test_what_says_nothing_cuts_nothing():
    draws = CommonDraws()
    costs, _ = _planted(draws, 1.1)
    noise = draws.deviations("noise")
    at_once = regret_usd(costs, costs[int(costs.mean(axis=1).argmin())])
    assert regret_after_usd(costs, noise) == pytest.approx(at_once, rel=0.1)
    assert regret_after_usd(costs, noise) > 0.95 * at_once
