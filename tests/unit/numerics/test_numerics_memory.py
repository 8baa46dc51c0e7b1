from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from trnbench.engines.execute.numbers import accuracy
from trnbench.engines.execute.numbers.accuracy import (
    available_bytes,
    bytes_needed,
    check_memory,
    error_against_float64,
)
from trnbench.engines.execute.numbers.demonstrations import operands
from trnbench.engines.execute.numbers.product import ProductRecipe, matmul
from trnbench.errors import EnvironmentFault, InputError

RECIPES = [
    {},
    {"format_in_a": "tf32", "format_in_b": "tf32", "format_out": "tf32"},
    {"format_in_a": "int8", "format_in_b": "fp8", "format_out": "fp8", "rounding": "sr"},
    {"overflow": "saturate", "format_out": "bf16"},
    {"format_in_a": "mxfp8", "format_in_b": "mxfp4"},
    {"pattern": "1:2"},
    {"accumulate": "bf16", "overflow": "saturate"},
]
SHAPES = [(2048, 256, 16), (16, 256, 2048), (512, 256, 512)]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", RECIPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("check", [False, True])
def test_the_need_covers_what_is_allocated_and_not_much_more(arguments, shape, check, monkeypatch):
    monkeypatch.setattr(accuracy, "CHECK_BLOCK_BYTES", 1 << 18)
    recipe = ProductRecipe.named(**arguments)
    matmul(*operands(16, 16, 16), recipe)  # imports and tables are not the product's
    tracemalloc.start()
    try:
        a, b = operands(*shape)
        result = matmul(a, b, recipe)
        if check:
            error_against_float64(result, a, b)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Index and bookkeeping arrays along m or k only are not counted.
    small = 64 << 10
    needed = bytes_needed(*shape, recipe=recipe, check=check)
    assert peak <= needed + small
    assert needed <= 2.5 * peak


def test_need_grows_with_the_batch():
    # Operands as given and as rounded take 8 bytes an element: 1000 products of 8 + 8 elements.
    assert bytes_needed(1, 8, 1, batch=1000) >= 8 * 16 * 1000


def test_too_large_is_said_before_anything_is_allocated():
    with pytest.raises(EnvironmentFault) as refused:
        operands(10**7, 10**7, 10**7, batch=3)
    assert refused.value.exit_code == 3
    # 8 bytes for each of 2 * 3e14 operand elements and 17 for each of 3e14 results: 9.9e15.
    assert "computing 3 of 10000000x10000000x10000000 needs 8.793 PiB" in refused.value.message
    assert "is available" in refused.value.message


def test_the_limit_is_what_is_free(monkeypatch):
    needed = bytes_needed(64, 64, 64)
    assert check_memory(64, 64, 64) == needed
    monkeypatch.setattr(accuracy, "available_bytes", lambda: needed)
    assert check_memory(64, 64, 64) == needed
    monkeypatch.setattr(accuracy, "available_bytes", lambda: needed - 1)
    with pytest.raises(EnvironmentFault, match="64x64x64 needs"):
        check_memory(64, 64, 64)


def test_available_memory_without_meminfo(monkeypatch, tmp_path):
    assert available_bytes() > 0
    monkeypatch.setattr(accuracy, "_MEMINFO", tmp_path / "absent")
    assert available_bytes() > 1 << 20
    listing = tmp_path / "meminfo"
    listing.write_text("MemTotal:  9 kB\nMemAvailable:  7 kB\n")
    monkeypatch.setattr(accuracy, "_MEMINFO", listing)
    assert available_bytes() == 7 * 1024


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -4, 1), (1, 1, 0)])
def test_sizes_must_be_positive(sizes):
    with pytest.raises(InputError, match="must be at least 1"):
        operands(*sizes)
    with pytest.raises(InputError, match="batch must be at least 1"):
        bytes_needed(1, 1, 1, batch=0)


def test_operands_follow_their_seed():
    a, b = operands(5, 6, 7, batch=2, seed=3)
    assert (a.shape, b.shape) == ((2, 5, 6), (2, 6, 7))
    assert a.dtype == b.dtype == np.float32
    again, _ = operands(5, 6, 7, batch=2, seed=3)
    other, _ = operands(5, 6, 7, batch=2, seed=4)
    np.testing.assert_array_equal(a, again)
    assert (a != other).all()
    with pytest.raises(InputError, match="seed"):
        operands(1, 1, 1, seed=-1)
