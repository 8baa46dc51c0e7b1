"""One product in several formats: what casts, micro-scaling and sparsity do to it."""

from __future__ import annotations

import pytest

from trnbench.engines.execute.numbers.demonstrations import product_demos


def test_casts_lose_by_mantissa_scales_save_small_numbers_and_pruning_costs():
    found = {(demo.format, demo.pattern): demo for demo in product_demos()}
    near = [found[name, None].near_one for name in ("fp32", "tf32", "bf16", "fp8_e4m3")]
    # Mantissas of 23, 10, 7 and 3 bits. Each operand is off by 2^-bits / sqrt(48) or so of its own
    # size, both together by sqrt(2) of that, within a factor of 2: numbers are spread over octaves.
    for error, bits in zip(near[1:], (10, 7, 3), strict=True):
        rough = 2**0.5 * 2.0**-bits / 48**0.5
        assert rough < error < 3 * rough
    assert near[0] < 1e-6
    # 2^-14 is a power of two: formats with enough exponent lose the same; fp8 is left with nothing.
    for name in ("tf32", "bf16", "mxfp8_e4m3"):
        assert found[name, None].small == pytest.approx(found[name, None].near_one, rel=1e-6)
    assert found["fp8_e4m3", None].small == 1
    assert found["mxfp8_e4m3", None].near_one == pytest.approx(near[3], rel=0.1)
    # The four largest of 16 normal numbers hold about 0.69 of their squares: sqrt(0.31) is lost.
    assert found["bf16", "4:16"].near_one == pytest.approx(0.554, abs=0.02)


def test_other_operands_lose_alike():
    for one, other in zip(product_demos(), product_demos(seed=1), strict=True):
        assert one.near_one != other.near_one
        assert one.near_one == pytest.approx(other.near_one, rel=0.2)
