from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.execute.numbers.product import ProductRecipe, matmul
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.numbers.sparsity import (
    PATTERNS,
    compress,
    decompress,
    parse_pattern,
    pattern_problem,
    prune,
)

NAMES = ["4:16", "4:12", "4:8", "2:8", "2:4", "1:4", "1:2"]


def test_patterns_are_those_of_the_hardware():
    assert [str(pattern) for pattern in PATTERNS] == NAMES
    assert [parse_pattern(name).ratio for name in NAMES] == [4, 3, 2, 4, 2, 4, 2]


@pytest.mark.parametrize("text", ["3:7", "4-16", "", "16:4"])
def test_unknown_pattern(text):
    with pytest.raises(UnknownNameError, match="unknown sparsity pattern"):
        parse_pattern(text)


def test_pattern_problem_names_the_nearest_legal_k():
    pattern = parse_pattern("4:16")
    assert pattern_problem(pattern, 4096) is None
    assert pattern_problem(pattern, 100) == (
        "sparsity 4:16 needs k to be a multiple of 16; k=100, try 96 or 112"
    )
    assert pattern_problem(pattern, 7) == (
        "sparsity 4:16 needs k to be a multiple of 16; k=7, try 16"
    )


def test_compressed_form_by_hand():
    # 2:4 keeps 5 and -7 of the first four; of three equal 3s the first two. Four compressed rows
    # cover a window of 8: tags 1, 2, 4, 5 packed from the lowest bits = 0x5421.
    compressed = compress([[0, 5, -7, 1, 3, 3, 3, 0]], parse_pattern("2:4"))
    np.testing.assert_array_equal(compressed.values, [[5, -7, 3, 3]])
    np.testing.assert_array_equal(compressed.tags, [[0x5421]])
    np.testing.assert_array_equal(compressed.positions, [[1, 2, 4, 5]])
    np.testing.assert_array_equal(decompress(compressed), [[0, 5, -7, 0, 3, 3, 0, 0]])


def test_tags_of_a_128_row_tile_fill_32_words():
    # The documented shape: 128 compressed rows of 128 columns have tags of 128 x 32 words.
    values = np.random.default_rng(0).standard_normal((128, 512), dtype=np.float32)
    compressed = compress(values, parse_pattern("4:16"))
    assert compressed.values.shape == (128, 128)
    assert compressed.tags.shape == (128, 32)
    assert compressed.tags.dtype == np.uint16


def test_nan_is_never_pruned():
    values = np.array([[1.0, 9.0, np.nan, 2.0]])
    assert np.isnan(prune(values, parse_pattern("1:4"))[0, 2])


@given(name=st.sampled_from(NAMES), groups=st.integers(1, 9), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_each_group_keeps_its_largest_and_round_trips(name, groups, seed):
    pattern = parse_pattern(name)
    k = groups * pattern.group
    values = np.random.default_rng(seed).integers(-9, 10, (3, 5, k)).astype(np.float32)
    compressed = compress(values, pattern)
    pruned = decompress(compressed)
    assert compressed.values.shape == (3, 5, k // pattern.ratio)
    assert ((pruned == values) | (pruned == 0)).all()
    grouped = np.sort(np.abs(values.reshape(3, 5, groups, pattern.group)), axis=-1)
    kept = np.sort(np.abs(pruned.reshape(grouped.shape)), axis=-1)
    np.testing.assert_array_equal(kept[..., -pattern.keep :], grouped[..., -pattern.keep :])
    assert (np.count_nonzero(kept, axis=-1) <= pattern.keep).all()
    np.testing.assert_array_equal(prune(pruned, pattern), pruned)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 37, 512])
def test_product_of_the_compressed_form_is_that_of_the_pruned_matrix(name, n):
    pattern = parse_pattern(name)
    rng = np.random.default_rng(4)
    k = 48 * pattern.ratio * 5  # a whole number of groups for each pattern, no whole K-tiles
    a = rng.integers(-8, 9, (2, 19, k)).astype(np.float32)
    b = rng.integers(-8, 9, (2, k, n)).astype(np.float32)
    product = matmul(a, b, ProductRecipe.named(pattern=name))
    np.testing.assert_array_equal(product.values, prune(a, pattern).astype(np.float64) @ b)
    # 240 compressed rows fill one K-tile of 128 and part of a second.
    assert product.k_tiles == 2


def test_pruned_rows_of_the_moving_operand_are_never_read():
    a = np.array([[1.0, 2.0, 3.0, 0.5]], dtype=np.float32)
    b = np.array([[np.nan], [np.inf], [5.0], [np.nan]], dtype=np.float32)
    assert matmul(a, b, ProductRecipe.named(pattern="1:4")).values.item() == 15.0


def test_product_refuses_a_k_that_does_not_divide():
    recipe = ProductRecipe.named(pattern="1:4")
    with pytest.raises(InputError, match="try 4 or 8"):
        matmul(np.ones((2, 6)), np.ones((6, 2)), recipe)
    with pytest.raises(InputError, match="try 4 or 8"):
        compress(np.ones((2, 6)), parse_pattern("1:4"))
