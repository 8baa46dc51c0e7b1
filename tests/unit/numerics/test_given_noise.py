"""Rounding with noise that is given, and small products computed many at once."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.engines.execute.numbers.product import ProductRecipe, matmul
from trnbench.engines.execute.numbers.rounding import round_to, round_with
from trnbench.errors import InputError


def test_noise_decides_which_way_a_number_goes():
    """1 + 2^-9 is a quarter of bf16's step of 2^-7 above 1: it rises from three quarters on."""
    number = np.float32(1 + 2.0**-9)
    noise = (np.array([0.0, 0.74, 0.76, 0.999]) * 2**32).astype(np.uint32)
    rounded = round_with(np.full(4, number), "bf16", noise)
    assert rounded.tolist() == [1, 1, 1 + 2.0**-7, 1 + 2.0**-7]


def test_given_noise_rounds_as_drawn_noise_does():
    random = np.random.default_rng(5)
    numbers = random.normal(size=(300, 300)).astype(np.float32)
    drawn = round_to(numbers, "bf16", rounding="sr", rng=np.random.default_rng(8))
    noise = np.random.default_rng(8).integers(0, 1 << 32, numbers.shape, dtype=np.uint32)
    assert (round_with(numbers, "bf16", noise) == drawn).all()
    assert round_with(numbers, "fp32", noise) is numbers


def test_noise_of_another_shape_is_refused():
    with pytest.raises(InputError, match="shape"):
        round_with(np.ones(3, np.float32), "bf16", np.zeros(4, np.uint32))


@pytest.mark.parametrize("number_format", ["fp32", "bf16", "mxfp8_e4m3"])
def test_members_of_a_batch_do_not_meet(number_format):
    random = np.random.default_rng(2)
    left = random.normal(size=(3, 2, 5, 300)).astype(np.float32)
    right = random.normal(size=(2, 300, 7)).astype(np.float32)
    recipe = ProductRecipe.named(format_in_a=number_format, format_in_b=number_format, k_tile=64)
    together = matmul(left, right, recipe).values
    for i, j in np.ndindex(3, 2):
        alone = matmul(left[i, j], right[j], recipe).values
        assert np.array_equal(together[i, j], alone)
