from __future__ import annotations

import numpy as np
import pytest

from tests.steps import operand_bytes
from trnbench.errors import InputError
from trnbench.program.matrix import matrix_product


def test_operations_and_bytes_of_a_product():
    product = matrix_product(2, 3, 4, batch=5, format_a="bf16", format_out="fp32")
    assert float(product.flop) == 2 * 2 * 3 * 4 * 5
    # a 6, b 12 elements of 2 bytes, result 8 of 4, five times
    assert float(operand_bytes(product)) == 5 * (12 + 24 + 32)


def test_sizes_broadcast():
    product = matrix_product(np.array([[1], [2]]), 3, np.array([4, 5, 6]))
    assert product.shape == (2, 3)
    assert np.array_equal(product.flop, [[24, 30, 36], [48, 60, 72]])


def test_pruning_leaves_out_operations_and_stores_tags():
    product = matrix_product(128, 256, 512, pattern="4:16")
    assert float(product.flop) * 4 == float(product.dense_flop)
    # of each four elements one bf16 and its 4-bit tag: 2.5 bytes
    assert product.element_bytes_a == 2.5 / 4
    assert product.element_bytes_b == 2


def test_formats_follow_the_first_unless_said():
    product = matrix_product(1, 1, 1, format_a="FP8", format_b="e5m2")
    assert (product.format_a, product.format_b) == ("fp8_e4m3", "fp8_e5m2")
    assert product.format_out == "fp8_e4m3"


@pytest.mark.parametrize("size", [0, -1, 2.5, np.nan, np.inf, "x"])
def test_malformed_sizes_are_input_errors(size: float | str):
    with pytest.raises(InputError, match="k of a matrix product: expected whole numbers"):
        matrix_product(1, size, 1)


def test_sizes_that_do_not_broadcast_are_input_errors():
    with pytest.raises(InputError, match="do not broadcast"):
        matrix_product([1, 2], 1, [1, 2, 3])


def test_unknown_names_are_input_errors():
    with pytest.raises(InputError, match="number format"):
        matrix_product(1, 1, 1, format_a="bf61")
    with pytest.raises(InputError, match="sparsity pattern"):
        matrix_product(1, 1, 1, pattern="3:16")
