"""Numbers of measured products: right ones pass, one wrong tile fails."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from trnbench.evidence.measure.kernels import checked

M, K, N = 512, 1024, 512


def operands(dtype, seed=0):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    return [side.astype(dtype) for side in (left, right)]


def cut(values, bits):
    """Numbers towards zero, to this many bits of mantissa."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.trunc(np.ldexp(fraction, bits)), exponent - bits)


def narrow_product(left, right, bits, depth=32):
    """A product whose sums of 32 products keep some bits only."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    total = np.zeros((left.shape[0], right.shape[1]))
    for start in range(0, K, depth):
        part = left[:, start : start + depth] @ right[start : start + depth]
        total = cut(total + cut(part, bits), bits)
    return total


CASES = [
    ("bf16", ml_dtypes.bfloat16, None),
    ("fp16", np.float16, None),
    ("fp8_e4m3fn", ml_dtypes.float8_e4m3fn, 14),
]


@pytest.mark.parametrize(("name", "dtype", "bits"), CASES)
def test_a_right_product_passes_and_one_wrong_tile_fails(name, dtype, bits):
    left, right = operands(dtype)
    exact = left.astype(np.float32) @ right.astype(np.float32)
    out = np.float16 if name == "fp16" else ml_dtypes.bfloat16
    values = exact.astype(out)
    assert checked(values, (left, right), name, sum_bits=bits) <= 1
    # A tile that was computed from the neighbour's operands.
    wrong = values.copy()
    wrong[128:192, 256:320] = values[192:256, 256:320]
    assert checked(wrong, (left, right), name, sum_bits=bits) > 1


def test_sums_of_14_bits_are_right_on_hopper_and_wrong_elsewhere():
    left, right = operands(ml_dtypes.float8_e4m3fn)
    values = narrow_product(left, right, 14).astype(ml_dtypes.bfloat16)
    assert checked(values, (left, right), "fp8_e4m3fn", sum_bits=14) <= 1
    assert checked(values, (left, right), "fp8_e4m3fn", sum_bits=None) > 1
    coarse = narrow_product(left, right, 9).astype(ml_dtypes.bfloat16)
    assert checked(coarse, (left, right), "fp8_e4m3fn", sum_bits=14) > 1


def test_a_batch_is_checked_product_by_product():
    left, right = operands(ml_dtypes.bfloat16)
    both = np.stack([left, left]), np.stack([right, right])
    values = (both[0].astype(np.float32) @ both[1].astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert checked(values, both, "bf16", sum_bits=None) <= 1
    values[1] = 0
    assert checked(values, both, "bf16", sum_bits=None) > 1
