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
    assert (found.seconds, found.repeats, found.outliers, found.spread) == (1.0, 15, 0, 0.0)
    assert script.runs == 16, "the first run warms up"


def test_a_device_warms_up_for_a_while():
    _, script = timing([1.0], warm_s=2.5, budget_s=100)
    assert script.runs == 3 + 15


def test_a_scattered_run_is_repeated_until_the_budget_is_spent():
    found, _ = timing([0.0, *[1.0, 3.0] * 50], budget_s=20)
    assert found.repeats == 15, "five blocks of three, whose medians are 1, 3, 1, 3, 1"
    assert found.seconds == 1.0
    assert found.known_to == pytest.approx(1.57 * 2.0 / 5**0.5 / 1.0)
    assert found.spread == pytest.approx(1.0)


def test_blocks_of_slow_runs_are_single_repeats():
    found, script = timing([0.0, 3.0], budget_s=16, precision=0.1)
    assert (found.repeats, script.runs) == (5, 6)


def test_hiccups_of_the_host_move_neither_the_time_nor_the_spread():
    steady = [1.0, 1.001, 1.002, 1.001, 1.0]
    repeats = [second for second in steady for _ in range(3)]
    repeats[1] = repeats[7] = repeats[13] = 5.0
    found, _ = timing([0.0, *repeats], precision=1e-9, most=5, budget_s=100)
    assert (found.seconds, found.outliers) == (1.0, 0)
    assert found.spread == pytest.approx(0.001)
    assert found.high_s > 4


def test_a_slow_block_is_counted_and_is_no_part_of_the_spread():
    medians = [1.0, 1.001, 1.002, 1.001, 50.0]
    repeats = [second for second in medians for _ in range(3)]
    found, _ = timing([0.0, *repeats], precision=1e-9, most=5, budget_s=1000)
    assert (found.outliers, found.repeats) == (1, 15)
    assert found.spread == pytest.approx(0.001)


def test_a_share_of_a_repeat_has_the_launch_taken_off():
    found, _ = timing([0.0, 1.0], budget_s=100)
    assert found.each(4, less_s=0.2).seconds == pytest.approx(0.2)
    assert found.each(4, less_s=5.0).seconds == pytest.approx(0.025), "never nothing"
