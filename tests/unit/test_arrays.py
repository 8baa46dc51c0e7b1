"""What is lighter than numpy's own gives what numpy's own does, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.arrays import distinct, quantiles


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
