"""Repeats end when their median is known or the budget is spent, and say how they scattered."""

from __future__ import annotations

import pytest

from trnbench.evidence.measure.loops import Repeats, timed


class Script:
    """A clock that a scripted run moves on."""

    def __init__(self, seconds):
        self.seconds, self.now, self.runs = list(seconds), 0.0, 0

    def run(self):
        self.now += self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1

    def clock(self):
        return self.now


def timing(seconds, **rule):
    script = Script(seconds)
    found = timed(script.run, Repeats(**rule), clock=script.clock, processor=script.clock)
    return found, script


def test_a_steady_run_is_repeated_as_often_as_must_be_and_no_more():
    found, script = timing([9.0, 1.0], budget_s=100)
    assert (found.median_s, found.repeats, found.outliers, found.spread) == (1.0, 5, 0, 0.0)
    assert script.runs == 6, "the first run warms up"


def test_a_scattered_run_is_repeated_until_the_budget_is_spent():
    found, _ = timing([0.0, *[1.0, 3.0] * 50], budget_s=20)
    assert found.repeats == 10
    assert found.known_to == pytest.approx(1.57 * 2.0 / 10**0.5 / 2.0)
    assert found.spread == pytest.approx(0.5)


def test_outliers_are_counted_and_left_in():
    found, _ = timing([0.0, 1.0, 1.0, 1.1, 0.9, 50.0], precision=1e-9, most=5)
    assert (found.outliers, found.repeats) == (1, 5)
    assert found.high_s > 40


def test_a_share_of_a_repeat_has_the_launch_taken_off():
    found, _ = timing([0.0, 1.0])
    assert found.each(4, less_s=0.2).median_s == pytest.approx(0.2)
    assert found.each(4, less_s=5.0).median_s == pytest.approx(0.025), "never nothing"
