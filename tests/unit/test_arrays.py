"""What is lighter than numpy's own gives what numpy's own does, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.facts.arrays import combined, distinct, quantiles, times, true_in_rows, uneven


@pytest.mark.parametrize("size", [1, 2, 3, 10, 257])
@pytest.mark.parametrize("last", [0.5, np.inf, np.nan])
def test_quantiles_are_those_of_numpy(size, last):
    values = np.random.default_rng(size).lognormal(sigma=3, size=size)
    values[-1] = last
    shares = (0.0, 0.1, 0.5, 0.77, 0.9, 1.0)
    with np.errstate(invalid="ignore"):
        expected = np.quantile(values, shares)
    np.testing.assert_array_equal(quantiles(values, shares), expected)


@pytest.mark.parametrize("values", [[], [[3, 1], [3, 2]], [5]])
def test_distinct_numbers_are_those_of_numpy(values):
    np.testing.assert_array_equal(distinct(np.array(values)), np.unique(np.array(values)))


@pytest.mark.parametrize("shape", [(0, 3), (4, 1), (2, 3, 70_000)])
def test_true_values_of_rows_are_counted_as_numpy_counts_them(shape):
    mask = np.random.default_rng(len(shape)).random(shape) < 0.9
    found = true_in_rows(mask)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.count_nonzero(mask, axis=-1))


def test_whole_numbers_divide_where_they_leave_no_remainder():
    whole = np.array([1, 63, 64, 65, 10**6, 2**52, 2**52 - 1, 2**53 - 1])[:, None]
    parts = np.array([1, 2, 3, 7, 64, 10**6 + 3, 2**26 - 1])
    np.testing.assert_array_equal(uneven(whole, parts), whole % parts != 0)


def test_combinations_of_arrays_are_found_once_and_told_apart():
    rng = np.random.default_rng(7)
    rows = rng.integers(1, 4, (5, 1, 3)).astype(float)
    columns = rng.integers(1, 3, (4, 1)).astype(float)
    lone, alike = np.array(7.0), rng.integers(1, 3, (5, 4, 3)).astype(float)
    found, places = combined((rows, columns, lone, alike))
    whole = np.stack(np.broadcast_arrays(rows, columns, lone, alike))
    assert np.array_equal(found[:, places], whole)
    assert found.shape[1] == len(set(zip(*whole.reshape(4, -1), strict=True)))
    one, place = combined((np.full((1, 1), 2.0), np.array(3.0)))
    assert one.tolist() == [[2.0], [3.0]]
    assert place.tolist() == [[0]]


@pytest.mark.parametrize("each", [0.0, 1.0, 2.5, np.array([0.0, 1.0, 3.0])])
def test_products_with_plain_numbers_are_those_of_numpy(each):
    share = np.array([2.0, 0.0, 5.0])
    np.testing.assert_array_equal(np.broadcast_to(times(share, each), 3), share * each)
