from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.execute.numbers.rounding import round_to
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.numbers.formats import FORMATS, ROUNDINGS

_ML_DTYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "fp8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "fp8_e3m4": np.dtype(ml_dtypes.float8_e3m4),
}
STORED = ["fp16", *_ML_DTYPES]
NARROW = [*STORED, "tf32", "int8"]


def _dtype(name):
    return np.dtype("float16") if name == "fp16" else _ML_DTYPES[name]


def _every_upper_half():
    """All 65536 upper halves of a float32, each with a tie and its neighbours below."""
    heads = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    tails = np.array([0, 0x7FFF, 0x8000, 0x8001], dtype=np.uint32)
    return (heads[:, None] | tails).ravel().view(np.float32)


def _random_patterns(count, seed):
    bits = np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)
    return bits.view(np.float32)


def _hard_values(name):
    """Every value of a format, every tie between neighbours, and the float32 around each tie."""
    dtype = _dtype(name)
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = np.unique(codes.view(dtype).astype(np.float64))
    values = values[np.isfinite(values)]
    ties = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, 1e-45], dtype=np.float32)
    around = [ties, np.nextafter(ties, up), np.nextafter(ties, down)]
    return np.concatenate([values.astype(np.float32), *around, edges])


def _assert_same_numbers(actual, expected):
    assert actual.dtype == np.float32
    both_nan = np.isnan(actual) & np.isnan(expected)
    same_bits = actual.view(np.uint32) == expected.view(np.uint32)
    assert (same_bits | both_nan).all()


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize(
    "values", [_every_upper_half(), _random_patterns(200_000, 1)], ids=["heads", "random"]
)
def test_nearest_is_the_ml_dtypes_cast_bit_for_bit(name, values):
    with np.errstate(all="ignore"):
        expected = values.astype(_dtype(name)).astype(np.float32)
    _assert_same_numbers(round_to(values, name), expected)


@pytest.mark.parametrize("name", STORED)
def test_nearest_is_the_ml_dtypes_cast_at_every_tie(name):
    values = _hard_values(name)
    with np.errstate(all="ignore"):
        expected = values.astype(_dtype(name)).astype(np.float32)
    _assert_same_numbers(round_to(values, name), expected)


@pytest.mark.parametrize("name", STORED)
def test_every_stored_value_is_kept(name):
    dtype = _dtype(name)
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype(np.float32)
    rng = np.random.default_rng(0)
    _assert_same_numbers(round_to(values, name), values)
    _assert_same_numbers(round_to(values, name, rounding="sr", rng=rng), values)


def _nearest_in_float64(values, format):
    """Round on the grid of the format in float64: the definition, without a bit in sight."""
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    exponent = np.maximum(np.frexp(wide)[1] - 1, format.min_exponent)
    steps = np.rint(np.ldexp(wide, format.mantissa_bits - exponent))
    rounded = np.ldexp(steps, exponent - format.mantissa_bits)
    rounded = np.where(np.abs(rounded) > format.max_value, np.copysign(np.inf, wide), rounded)
    return np.where(np.isfinite(wide), rounded, wide).astype(np.float32)


@pytest.mark.parametrize(
    "values", [_every_upper_half(), _random_patterns(200_000, 2)], ids=["heads", "random"]
)
def test_tf32_follows_its_definition(values):
    _assert_same_numbers(round_to(values, "tf32"), _nearest_in_float64(values, FORMATS["tf32"]))


def test_tf32_ties_go_to_even():
    # At 1 tf32 steps by 2^-10: 1 + 2^-11 ties to 1, 1 + 3 * 2^-11 to 1 + 2 * 2^-10.
    values = np.array([1 + 2**-11, 1 + 3 * 2**-11], dtype=np.float32)
    np.testing.assert_array_equal(round_to(values, "tf32"), [1, 1 + 2**-9])


def test_signalling_nan_with_low_payload_stays_nan_in_tf32():
    value = np.array([0x7F800001, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)
    rng = np.random.default_rng(0)
    assert np.isnan(round_to(value, "tf32")).all()
    assert np.isnan(round_to(value, "tf32", rounding="sr", rng=rng)).all()


def test_int8_rounds_ties_to_even_and_saturates():
    values = [0.5, 1.5, -2.5, 127.4, 300, -128.5, -1e9, np.inf, -np.inf, np.nan]
    expected = [0, 2, -2, 127, 127, -128, -128, 127, -128, 0]
    np.testing.assert_array_equal(round_to(values, "int8"), expected)
    sure = np.array([3, -4, 400, -1e9, np.nan])
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(
        round_to(sure, "int8", rounding="sr", rng=rng), [3, -4, 127, -128, 0]
    )


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_int8_has_no_negative_zero(rounding):
    rng = np.random.default_rng(0)
    rounded = round_to(np.full(50, -0.01), "int8", rounding=rounding, rng=rng)
    assert (rounded == 0).any()
    assert not np.signbit(rounded[rounded == 0]).any()


@pytest.mark.parametrize(
    ("name", "native"), [("fp8_e4m3", np.inf), ("fp8_e4m3fn", np.nan), ("fp16", np.inf)]
)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_overflow_is_native_or_saturates(name, native, rounding):
    top = FORMATS[name].max_value
    values = np.array([2 * top, -2 * top, np.inf, np.nan, top], dtype=np.float32)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(
        round_to(values, name, rounding=rounding, rng=rng), [native, -native, native, np.nan, top]
    )
    np.testing.assert_array_equal(
        round_to(values, name, rounding=rounding, rng=rng, overflow="saturate"),
        [top, -top, top, np.nan, top],
    )


def test_fp32_keeps_everything_and_saturates_infinity():
    values = np.array([1e-45, np.pi, np.inf], dtype=np.float32)
    assert round_to(values, "fp32") is values
    top = np.finfo(np.float32).max
    assert round_to(values, "fp32", overflow="saturate")[2] == top


def test_float64_input_is_taken_as_float32_first():
    # 1 + 2^-8 + 2^-40 is above the bf16 tie, but fp32 drops the 2^-40 and the tie goes to even.
    assert round_to(np.float64(1 + 2**-8 + 2**-40), "bf16") == 1.0
    assert round_to(np.float64(1e300), "bf16") == np.inf


def _samples(name):
    """Numbers off the grid: in the normal range, in the subnormal one, and both signs."""
    format = FORMATS[name]
    rng = np.random.default_rng(5)
    low, high = format.smallest, format.max_value / 4
    normal = np.exp2(rng.uniform(np.log2(low * 2), np.log2(high), 12))
    subnormal = low * np.array([2.0**-3, 0.3, 0.5, 1.7, 2.2])
    return np.concatenate([normal, subnormal, -normal, -subnormal]).astype(np.float32)


def _neighbours(values, format):
    wide = np.abs(values.astype(np.float64))
    step = np.ldexp(
        1.0, np.maximum(np.frexp(wide)[1] - 1, format.min_exponent) - format.mantissa_bits
    )
    below = np.floor(wide / step) * step
    return np.copysign(below, values), np.copysign(below + step, values), step


@pytest.mark.parametrize("name", NARROW)
def test_stochastic_rounding_is_unbiased(name):
    values = _samples(name)
    trials = 20_000
    rng = np.random.default_rng(11)
    drawn = round_to(np.tile(values, (trials, 1)), name, rounding="sr", rng=rng)
    below, above, step = _neighbours(values, FORMATS[name])
    assert ((drawn == below.astype(np.float32)) | (drawn == above.astype(np.float32))).all()
    share = (np.abs(values.astype(np.float64)) - np.abs(below)) / step
    sigma = step * np.sqrt(share * (1 - share) / trials)
    error = np.abs(drawn.astype(np.float64).mean(axis=0) - values)
    assert (error <= 4 * sigma).all()


def test_stochastic_rounding_near_overflow():
    # fp16 ends at 65504 in steps of 32; 65520 is half-way to what would be 65536.
    values = np.full(10_000, -65520, dtype=np.float32)
    drawn = round_to(values, "fp16", rounding="sr", rng=np.random.default_rng(3))
    assert set(np.unique(drawn)) == {-np.inf, np.float32(-65504)}
    # 4 sigma of 10000 fair draws is 200.
    assert abs(int(np.isinf(drawn).sum()) - 5000) < 200


def test_stochastic_rounding_depends_on_its_seed_only():
    values = np.random.default_rng(0).standard_normal((300, 333), dtype=np.float32)

    def drawn(seed):
        return round_to(values, "bf16", rounding="sr", rng=np.random.default_rng(seed))

    np.testing.assert_array_equal(drawn(7), drawn(7))
    assert (drawn(7) != drawn(8)).any()
    np.testing.assert_array_equal(
        drawn(7),
        round_to(values.ravel(), "bf16", rounding="sr", rng=np.random.default_rng(7)).reshape(
            values.shape
        ),
    )


@given(
    bits=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50),
    name=st.sampled_from(NARROW),
    rounding=st.sampled_from(["rne", "sr"]),
    overflow=st.sampled_from(["native", "saturate"]),
)
@settings(deadline=None, max_examples=150)
def test_results_are_representable_and_at_most_a_step_away(bits, name, rounding, overflow):
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    format = FORMATS[name]
    rng = np.random.default_rng(0)
    rounded = round_to(values, name, rounding=rounding, rng=rng, overflow=overflow)
    _assert_same_numbers(round_to(rounded, name), rounded)
    inside = np.isfinite(values) & (np.abs(values.astype(np.float64)) <= format.max_value)
    _, _, step = _neighbours(values[inside], format)
    error = np.abs(rounded[inside].astype(np.float64) - values[inside])
    assert (error <= (step / 2 if rounding == "rne" else step)).all()


def test_scalars_and_strided_arrays_keep_their_shape():
    assert round_to(1.001, "tf32").shape == ()
    grid = np.arange(24, dtype=np.float32).reshape(4, 6) + np.float32(0.001)
    for name in ("tf32", "bf16", "fp8_e5m2"):
        for rounding in ("rne", "sr"):
            rng = np.random.default_rng(1)
            out = round_to(grid[::2, ::3].T, name, rounding=rounding, rng=rng)
            assert out.shape == (2, 2)


def test_what_cannot_be_rounded_to_is_said():
    with pytest.raises(InputError, match="wider than the FP32"):
        round_to(1.0, "fp64")
    with pytest.raises(InputError, match="groups of 32"):
        round_to(1.0, "mxfp4")
    with pytest.raises(InputError, match="seeded"):
        round_to(1.0, "bf16", rounding="sr")
    with pytest.raises(UnknownNameError, match="unknown rounding 'rn'"):
        round_to(1.0, "bf16", rounding="rn")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unknown overflow policy"):
        round_to(1.0, "bf16", overflow="wrap")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("count", [1, (1 << 15) + 1, 70_001])
def test_arrays_of_many_chunks_are_rounded_number_by_number(name, count):
    values = np.random.default_rng(0).standard_normal((count, 2), dtype=np.float32)
    whole = values.astype(_dtype(name)).astype(np.float32)
    assert (round_to(values, name) == whole).all()
    assert (round_to(values.T, name) == whole.T).all()
