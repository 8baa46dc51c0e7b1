from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.execute.numbers import accuracy, product
from trnbench.engines.execute.numbers.accuracy import error_against_float64
from trnbench.engines.execute.numbers.demonstrations import operands
from trnbench.engines.execute.numbers.product import ProductRecipe, matmul, product_problem
from trnbench.engines.execute.numbers.rounding import round_to
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.numbers.formats import FORMATS
from trnbench.facts.records import replace

INPUTS = [name for name in FORMATS if name != "fp64"]
EXACT = [name for name in INPUTS if name != "nvfp4"]  # whose scales are no powers of two
OUTPUTS = [name for name in INPUTS if FORMATS[name].block == 1]


def integers(m, k, n, *, batch=1):
    """Return operands from -3 .. 3, which every format holds exactly."""
    rng = np.random.default_rng(1)
    shapes = (batch, m, k), (batch, k, n)
    return tuple(rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize("name", EXACT)
def test_integers_multiply_exactly(name):
    a, b = integers(33, 300, 29, batch=2)
    recipe = ProductRecipe.named(format_in_a=name, format_in_b=name)
    result = matmul(a, b, recipe)
    np.testing.assert_array_equal(result.values, a.astype(np.int64) @ b.astype(np.int64))
    assert error_against_float64(result, a, b).max_abs == 0


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_the_rounded_sum(name):
    a, b = integers(17, 200, 13)
    exact = matmul(a, b).values
    out = matmul(a, b, ProductRecipe.named(format_out=name)).values
    np.testing.assert_array_equal(out, round_to(exact, name))


def test_inputs_are_rounded_first():
    # bf16 steps by 2^-7 at 1: 1 + 2^-8 ties to 1 and 1 + 3 * 2^-8 to 1 + 2^-6.
    a = np.array([[1 + 2**-8]])
    b = np.array([[1 + 3 * 2**-8]])
    assert matmul(a, b).values.item() == 1 + 2**-6
    mixed = ProductRecipe.named(format_in_a="fp32", format_in_b="bf16")
    assert matmul(a, b, mixed).values.item() == np.float32((1 + 2**-8) * (1 + 2**-6))


def test_tiles_are_added_in_order_in_fp32():
    # fp32 steps by 2 above 2^24: adding 1 twice is lost, adding 2 once is not.
    ones = np.ones((3, 1))
    recipe = ProductRecipe.named(k_tile=1)
    assert matmul([[2.0**24, 1, 1]], ones, recipe).values.item() == 2.0**24
    assert matmul([[1, 1, 2.0**24]], ones, recipe).values.item() == 2.0**24 + 2
    two_tiles = ProductRecipe.named(k_tile=2)
    result = matmul([[2.0**24, 0, 1, 1]], np.ones((4, 1)), two_tiles)
    assert result.values.item() == 2.0**24 + 2
    assert result.k_tiles == 2


def test_bf16_accumulation_rounds_at_each_write():
    # bf16 steps by 2 above 256: each 1 ties back to 256; in fp32 the sum is 259.
    a, ones = [[256, 1, 1, 1]], np.ones((4, 1))
    assert matmul(a, ones, ProductRecipe.named(k_tile=1)).values.item() == 259
    assert matmul(a, ones, ProductRecipe.named(k_tile=1, accumulate="bf16")).values.item() == 256
    assert matmul(a, ones, ProductRecipe.named(k_tile=4, accumulate="bf16")).values.item() == 260


def test_row_blocks_do_not_change_the_result(monkeypatch):
    a, b = integers(130, 64, 24, batch=2)
    whole = matmul(a, b, ProductRecipe.named(format_out="bf16")).values
    monkeypatch.setattr(product, "BLOCK_BYTES", 24 * 4 * 7)
    np.testing.assert_array_equal(
        matmul(a, b, ProductRecipe.named(format_out="bf16")).values, whole
    )


def test_batches_broadcast_like_numpy():
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (3, 1, 5, 40)).astype(np.float32)
    b = rng.integers(-4, 5, (2, 40, 6)).astype(np.float32)
    expected = np.matmul(a, b)
    np.testing.assert_array_equal(matmul(a, b).values, expected)
    np.testing.assert_array_equal(matmul(a[0, 0], b).values, np.matmul(a[0, 0], b))
    np.testing.assert_array_equal(matmul(a, b[0]).values, np.matmul(a, b[0]))


def test_stochastic_output_is_seeded_and_unbiased():
    # Every element of the product is 1 + 2^-9, a quarter of a bf16 step above 1.
    a = np.tile(np.array([[1.0, 2.0**-9]], dtype=np.float32), (400, 1))
    b = np.ones((2, 500), dtype=np.float32)
    recipe = ProductRecipe.named(format_out="bf16", rounding="sr", seed=5)
    values = matmul(a, b, recipe).values
    assert set(np.unique(values)) == {np.float32(1), np.float32(1 + 2**-7)}
    # 200000 draws with p = 1/4: sigma of the share is sqrt(3/16 / 200000).
    share = float((values > 1).mean())
    assert abs(share - 0.25) <= 4 * (3 / 16 / values.size) ** 0.5
    np.testing.assert_array_equal(matmul(a, b, recipe).values, values)
    other = matmul(a, b, replace(recipe, seed=6)).values
    assert (other != values).any()


def test_infinities_follow_ieee_and_saturation_removes_them():
    a = np.array([[1e38, 1e38], [1e38, -1e38]], dtype=np.float32)
    b = np.full((2, 1), 10, dtype=np.float32)
    native = matmul(a, b, ProductRecipe.named(k_tile=1)).values.ravel()
    assert native[0] == np.inf
    assert np.isnan(native[1])
    out = matmul([[300.0]], [[1.0]], ProductRecipe.named(format_out="fp8", overflow="saturate"))
    assert out.values.item() == 240


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 400), st.integers(1, 20)),
    batch=st.integers(1, 2),
    inputs=st.tuples(st.sampled_from(INPUTS), st.sampled_from(INPUTS)),
    out=st.sampled_from(OUTPUTS),
    accumulate=st.sampled_from(["fp32", "bf16"]),
    rounding=st.sampled_from(["rne", "sr"]),
    k_tile=st.sampled_from([1, 32, 128, 512]),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 100.0]),
    seed=st.integers(0, 10_000),
)
@settings(deadline=None, max_examples=150)
def test_products_keep_the_tile_bound(
    shape, batch, inputs, out, accumulate, rounding, k_tile, scale, seed
):
    a, b = operands(*shape, batch=batch, seed=seed)
    a = a * np.float32(scale)
    recipe = ProductRecipe.named(
        format_in_a=inputs[0],
        format_in_b=inputs[1],
        format_out=out,
        accumulate=accumulate,
        rounding=rounding,
        k_tile=k_tile,
        seed=seed,
    )
    report = error_against_float64(matmul(a, b, recipe), a, b)
    assert report.within_bound
    assert report.elements == batch * shape[0] * shape[2]


def test_operands_past_the_range_of_their_format_are_left_out_of_the_bound():
    # fp8_e4m3 overflows to infinity beyond 240; an fp32 output adds no rounding to an infinity.
    a = np.full((2, 16), 1.0, dtype=np.float32)
    a[0, 3] = 1000.0
    b = np.ones((16, 3), dtype=np.float32)
    recipe = ProductRecipe.named(
        format_in_a="fp8_e4m3", format_in_b="fp32", format_out="fp32", k_tile=1
    )
    report = error_against_float64(matmul(a, b, recipe), a, b)
    assert (report.elements, report.excluded) == (6, 3)
    assert report.within_bound


@pytest.mark.parametrize("pattern", ["4:16", "1:2"])
def test_sparse_products_keep_the_tile_bound(pattern):
    a, b = operands(40, 640, 24, seed=2)
    result = matmul(a, b, ProductRecipe.named(pattern=pattern, format_out="bf16"))
    report = error_against_float64(result, a, b)
    assert report.within_bound
    assert 1e-4 < report.rms_rel < 1e-2


def _wrong(result, change):
    return product.ProductResult(
        values=change(result.values), recipe=result.recipe, k_tiles=result.k_tiles
    )


def test_the_bound_finds_wrong_products():
    a, b = operands(64, 1024, 48, seed=3)
    good = matmul(a, b)
    assert error_against_float64(good, a, b).within_bound
    one_tile_lost = _wrong(good, lambda v: v - matmul(a[..., 896:], b[:, 896:, :]).values)
    assert not error_against_float64(one_tile_lost, a, b).within_bound
    narrow_sums = matmul(a, b, ProductRecipe.named(accumulate="bf16")).values
    assert not error_against_float64(_wrong(good, lambda _: narrow_sums), a, b).within_bound
    rounded_output = _wrong(good, lambda v: round_to(v, "tf32"))
    assert not error_against_float64(rounded_output, a, b).within_bound
    spoilt = good.values.copy()
    spoilt[0, 5, 5] = np.nan
    report = error_against_float64(_wrong(good, lambda _: spoilt), a, b)
    assert report.bound_use == np.inf


def test_error_figures_by_hand():
    # 1 + 2^-8 rounds to 1 in bf16: the product with 4 is 4, short of 4 + 2^-6 by 2^-6.
    a, b = np.array([[1 + 2**-8], [1.0]]), np.array([[4.0]])
    report = error_against_float64(matmul(a, b), a, b)
    assert report.max_abs == 2**-6
    assert report.max_rel == 2**-6 / (4 + 2**-6)
    assert report.rms_rel == pytest.approx(2**-6 / np.hypot(4 + 2**-6, 4), rel=1e-15)
    assert report.bound_use == 0
    assert (report.elements, report.excluded) == (2, 0)


def test_overflowing_elements_are_counted_and_left_out():
    a, b = np.array([[1000.0], [1.0]]), np.array([[1.0]])
    report = error_against_float64(matmul(a, b, ProductRecipe.named(format_out="fp8")), a, b)
    assert (report.elements, report.excluded, report.max_abs) == (2, 1, 0)


def test_rows_and_blocks_of_rows_of_a_check(monkeypatch):
    a, b = operands(50, 96, 20, batch=3, seed=9)
    result = matmul(a, b)
    whole = error_against_float64(result, a, b)
    assert error_against_float64(result, a, b, rows=7).elements == 3 * 7 * 20
    assert error_against_float64(result, a, b, rows=99).elements == whole.elements
    monkeypatch.setattr(accuracy, "CHECK_BLOCK_BYTES", 1)
    by_row = error_against_float64(result, a, b)
    assert by_row.max_abs == pytest.approx(whole.max_abs)
    assert by_row.rms_rel == pytest.approx(whole.rms_rel)
    with pytest.raises(InputError, match="rows must be at least 1"):
        error_against_float64(result, a, b, rows=0)


@pytest.mark.parametrize(
    ("recipe", "k", "says"),
    [
        ({"format_in_a": "fp64"}, 64, "fp64 is wider"),
        ({"format_out": "fp64"}, 64, "fp64 is wider"),
        ({"format_out": "mxfp8"}, 64, "not written as mxfp8_e4m3"),
        ({"format_in_b": "mxfp4", "pattern": "4:16"}, 64, "does not combine with mxfp4"),
        ({"pattern": "4:12"}, 64, "try 60 or 72"),
    ],
)
def test_what_cannot_be_played_is_said_in_a_sentence(recipe, k, says):
    chosen = ProductRecipe.named(**recipe)
    problem = product_problem(chosen, k)
    assert problem is not None
    assert says in problem
    with pytest.raises(InputError, match=says):
        matmul(np.ones((2, k)), np.ones((k, 2)), chosen)


def test_ordinary_products_have_no_problem():
    assert product_problem(ProductRecipe(), 1) is None
    assert product_problem(ProductRecipe.named(pattern="4:12", format_in_a="fp8"), 120) is None


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ((2, 3), (4, 5), "inner sizes differ"),
        ((3,), (3, 5), "needs matrices"),
        ((0, 3), (3, 5), "positive sizes"),
        ((2, 4, 3), (3, 3, 5), "batch sizes differ"),
    ],
)
def test_shapes_that_do_not_multiply(a, b, says):
    with pytest.raises(InputError, match=says):
        matmul(np.zeros(a), np.zeros(b))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"format_in_a": "bf61"}, "number format 'bf61'"),
        ({"accumulate": "fp16"}, "accumulation format 'fp16'"),
        ({"rounding": "up"}, "rounding 'up'"),
        ({"overflow": "wrap"}, "overflow policy 'wrap'"),
        ({"scale_rule": "amd"}, "scale rule 'amd'"),
        ({"pattern": "3:7"}, "sparsity pattern '3:7'"),
    ],
)
def test_recipes_refuse_unknown_names(arguments, says):
    with pytest.raises(UnknownNameError, match=says):
        ProductRecipe.named(**arguments)


@pytest.mark.parametrize("arguments", [{"k_tile": 0}, {"seed": -1}])
def test_recipes_refuse_numbers_out_of_range(arguments):
    with pytest.raises(InputError, match=next(iter(arguments))):
        ProductRecipe.named(**arguments)
