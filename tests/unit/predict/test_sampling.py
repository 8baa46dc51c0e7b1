"""Samples keep the ranges that files give; intervals widen with what is not known."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import fakes
from tests.fakes import CHIP
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.training_stack import (
    TrainingEfficiency,
)
from trnbench.facts.catalog.provenance import Evidence, Kind, Provenance
from trnbench.facts.records import replace
from trnbench.predict.sampling import _shuffled as shuffled
from trnbench.predict.sampling import interval, sampled

STACK = replace(
    fakes.STACK, release="2.20", releases={"2.20": 0.95}, spread=Spread(low=0.9, high=1.2)
)


def ranges(**ends):
    return fakes.known({path.replace("__", "."): range_ for path, range_ in ends.items()})


def efficiency(chip=None, stack=None):
    return TrainingEfficiency(
        chip=replace(CHIP, provenance=chip or Provenance()),
        stack=replace(STACK, provenance=stack or Provenance()),
    )


def share_below(samples, end):
    return float(np.mean(samples < end))


def test_ends_of_a_range_are_the_ends_of_an_80_percent_interval():
    ends = {"memory_share": (0.6, 0.75)}
    stack = {"kernels__block_pass": (10e-6, 60e-6), "step": (0.01, 0.05)}
    drawn = sampled(efficiency(ranges(**ends), ranges(**stack)), count=200, seed=1)
    for samples, low, value, high in (
        (drawn.chip.memory_share, 0.6, 0.7, 0.75),
        (drawn.stack.kernels.block_pass_s, 10e-6, 30e-6, 60e-6),
        (drawn.stack.step_s, 0.01, 0.02, 0.05),
    ):
        assert isinstance(samples, np.ndarray)
        assert share_below(samples, low) == pytest.approx(0.1, abs=0.006)
        assert share_below(samples, value) == pytest.approx(0.5, abs=0.006)
        assert share_below(samples, high) == pytest.approx(0.9, abs=0.006)
        assert samples.min() > 0


def test_overlaps_scatter_in_themselves_and_stay_shares():
    stack = ranges(overlaps__tensor=(0.0, 0.7), overlaps__data=(0.5, 1.0))
    drawn = sampled(efficiency(stack=stack), count=200, seed=1).stack.overlaps
    assert isinstance(drawn.tensor, np.ndarray)
    assert share_below(drawn.tensor, 0.7) == pytest.approx(0.9, abs=0.006)
    assert drawn.tensor.min() == 0
    assert np.max(drawn.data) == 1
    assert drawn.context == 0.5


def test_a_release_with_a_dot_in_its_name_has_its_range():
    stack = Provenance(
        evidence={
            'releases."2.20"': Evidence(text="", source="s", kind=Kind.ASSUMED, low=0.9, high=1.0)
        }
    )
    drawn = sampled(efficiency(stack=stack), count=50, seed=1)
    assert drawn.samples == 52
    assert isinstance(drawn.whole_factor, np.ndarray)


def test_what_has_no_range_stays_one_number():
    assert sampled(efficiency(), count=50, seed=1).samples is None


def test_a_seed_gives_the_same_samples_again_and_numbers_scatter_apart():
    ends = {"memory_share": (0.6, 0.75), "tensor_share": (0.7, 0.9)}
    once, again, other = (
        sampled(efficiency(ranges(**ends)), count=100, seed=seed).chip for seed in (3, 3, 4)
    )
    assert np.array_equal(once.memory_share, again.memory_share)
    assert not np.array_equal(once.memory_share, other.memory_share)
    assert abs(np.corrcoef(once.memory_share, once.tensor_share)[0, 1]) < 0.3


def test_an_interval_adds_both_reasons_to_be_wrong_in_squares():
    # Parameters: 10 % quantile 8, median 10, 90 % quantile 12.5, both ends ln 1.25 away.
    # Spread: ln 0.8 = -ln 1.25 below, ln 1.25 above. Together sqrt(2) ln 1.25 each way.
    times_s = np.array([10.0] + [8.0] * 20 + [10.0] * 60 + [12.5] * 20 + [0.0])
    low, high = interval(times_s, Spread(low=0.8, high=1.25))
    assert low == pytest.approx(10 * math.exp(-math.sqrt(2) * math.log(1.25)))
    assert high == pytest.approx(10 * math.exp(math.sqrt(2) * math.log(1.25)))


@pytest.mark.parametrize(
    ("calibration_s", "low_s", "high_s"),
    # The samples 1, 2 ... 11 s have the 10 % quantile 2, the median 6 and the 90 % quantile 10 s
    # exactly: a third, and five thirds, of the middle, which is the calibration's own time.
    [(6.0, 2.0, 10.0), (3.0, 1.0, 5.0), (12.0, 4.0, 20.0)],
)
def test_samples_tell_the_reach_of_an_interval_and_the_calibration_its_middle(
    calibration_s, low_s, high_s
):
    times_s = np.array([calibration_s, *range(1, 12), 0.0])
    ends = interval(times_s, Spread(low=1.0, high=1.0))
    assert ends == pytest.approx((low_s, high_s), rel=1e-12)


def test_samples_stand_behind_the_number_itself():
    drawn = sampled(efficiency(ranges(memory_share=(0.6, 0.75))), count=50, seed=1)
    shares = np.asarray(drawn.chip.memory_share)
    # None of 50 equally likely values on both sides of the median is the median.
    assert (shares == CHIP.memory_share).tolist() == [True] + [False] * 51


def test_no_end_of_an_interval_passes_the_least_that_physics_allows():
    # Samples from 2 to 10 s about 6 s and a spread of half: the low end would be 1 s.
    times_s = np.array([6.0, *range(1, 12), 3.0])
    low, high = interval(times_s, Spread(low=0.5, high=1.0))
    assert low == 3.0
    assert high == pytest.approx(10.0)
    # The calibration's own time is in the interval all the same.
    times_s[0] = 2.5
    assert interval(times_s, Spread(low=0.5, high=1.0))[0] == 2.5


def test_the_last_sample_is_the_fastest_that_software_can_be():
    known = ranges(factor=(0.8, 1.25), memory_share=(0.6, 0.75))
    given_ = TrainingEfficiency(
        chip=replace(CHIP, provenance=known), stack=replace(STACK, factor=1.1, provenance=known)
    )
    drawn = sampled(given_, count=20, seed=1)
    # Not faster than the chip itself, although the factor's range goes below 1.
    assert np.asarray(drawn.stack.factor)[-1] == 1.0
    assert np.asarray(drawn.chip.memory_share)[-1] == 0.75


@settings(deadline=None, max_examples=30)
@given(time_s=st.floats(1e-3, 1e3), low=st.floats(0.2, 1.0), high=st.floats(1.0, 5.0))
def test_without_samples_the_spread_is_all_there_is(time_s, low, high):
    ends = interval(np.array([time_s]), Spread(low=low, high=high))
    assert ends == pytest.approx((time_s * low, time_s * high))


def test_numbers_of_one_kernel_go_up_and_down_together():
    known = ranges(
        kernels__attention_forward_share=(0.4, 0.6), kernels__attention_backward_share=(0.3, 0.5)
    )
    given = TrainingEfficiency(chip=CHIP, stack=replace(STACK, provenance=known))
    drawn = sampled(given, count=50, seed=1).stack.kernels
    forward, backward = drawn.attention_forward_share, drawn.attention_backward_share
    assert np.array_equal(np.argsort(forward), np.argsort(backward))


def test_what_was_told_together_is_drawn_together():
    stack = replace(
        STACK,
        provenance=ranges(factor=(0.8, 1.25), communication=(0.7, 1.4)),
        correlations={"factor": {"chip.tensor_share": 0.95}},
    )
    chip = replace(CHIP, provenance=ranges(tensor_share=(0.7, 0.9)))
    drawn = sampled(TrainingEfficiency(chip=chip, stack=stack), count=400, seed=1)
    rows = (drawn.chip.tensor_share, drawn.stack.factor, drawn.stack.communication)
    logs = np.log(np.stack([np.asarray(row) for row in rows]))
    found = np.corrcoef(logs)
    assert found[0, 1] == pytest.approx(0.95, abs=0.03)
    assert abs(found[0, 2]) < 0.15
    # The ratio is known better than either.
    assert np.std(logs[1] - logs[0]) < np.std(logs[1])


def test_samples_asked_for_by_several_threads_are_those_of_one():
    widths, count, seed = range(1, 24), 40, 977
    alone = Random(seed)
    quantile = NormalDist().inv_cdf
    likely = [quantile((i + 0.5) / count) for i in range(count)]
    rows = np.array([alone.sample(likely, count) for _ in widths])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda wide: shuffled(wide, count, seed), widths))
    finally:
        sys.setswitchinterval(before)
    for wide, samples in zip(widths, found, strict=True):
        np.testing.assert_array_equal(samples, rows[:wide])
