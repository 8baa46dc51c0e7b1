"""Rounding of float32 values to a narrower format: to nearest even, or stochastically.

Engines hold FP32 internally and round when they write, so input is taken as float32 first and the
result is a float32 array whose values the format can hold exactly.

Overflow. Trainium's FP8 E4M3 has an infinity and may overflow to it (or NaN), as ml_dtypes does:
that is `native`, and each format's `overflow` says what it yields. `saturate` clamps to the largest
finite value instead, infinities included, as the compiler's saturate-infinity option does. Formats
without infinity and NaN (int8, the elements of MXFP4) always clamp; NaN becomes 0 in int8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.arrays import Float32Array
from trnbench.facts.numbers.formats import (
    ROUNDINGS,
    NumberFormat,
    OverflowResult,
    RoundingRule,
    format_named,
)

Overflow = Literal["native", "saturate"]
OVERFLOWS: tuple[Overflow, ...] = ("native", "saturate")


_FP32_MANTISSA_BITS = 23
_FP32_MIN_EXPONENT = -126
_NOISE_BITS = 32
_SIGN = np.uint32(0x8000_0000)
_INFINITY = np.uint32(0x7F80_0000)
_OVERFLOW_VALUE: Mapping[OverflowResult, float] = {"infinity": np.inf, "nan": np.nan}
# Elements rounded at a time: the six temporaries of a chunk then stay in a core's L2 cache.
_CHUNK = 1 << 15


@cache
def numpy_dtype(format: NumberFormat) -> np.dtype[Any] | None:
    """Numpy or ml_dtypes type that stores the format, None where there is none."""
    if format.dtype_name is None:
        return None
    import ml_dtypes  # late: most commands round nothing

    return np.dtype(getattr(ml_dtypes, format.dtype_name, format.dtype_name))


def round_to(
    array: ArrayLike,
    format: NumberFormat | str,
    *,
    rounding: RoundingRule = "rne",
    rng: np.random.Generator | None = None,
    overflow: Overflow = "native",
) -> Float32Array:
    """`array` rounded to `format`, as float32; `sr` draws 32 random bits an element.

    The result may be the input itself where the format changes nothing (fp32).
    """
    target = format_named(format) if isinstance(format, str) else format
    if target.block > 1:
        raise InputError(
            f"{target.name} rounds groups of {target.block} along an axis, not single numbers",
            hint="use trnbench.engines.execute.numbers.blocks.block_round",
        )
    if target.mantissa_bits > _FP32_MANTISSA_BITS:
        raise InputError(f"{target.name} is wider than the FP32 in which engines hold numbers")
    return round_elements(array, target, rounding=rounding, rng=rng, overflow=overflow)


def round_elements(
    array: ArrayLike,
    format: NumberFormat,
    *,
    rounding: RoundingRule,
    rng: np.random.Generator | None,
    overflow: Overflow,
) -> Float32Array:
    """`array` rounded to the elements of `format`, whose block scale is not considered."""
    require_known("rounding", rounding, ROUNDINGS)
    require_known("overflow policy", overflow, OVERFLOWS)
    values = _as_float32(array)
    if overflow == "saturate":
        values = np.clip(values, np.float32(format.min_value), np.float32(format.max_value))
    if rounding == "rne":
        return _nearest(values, format)
    if rng is None:
        raise InputError("stochastic rounding needs a seeded random generator")
    if format.mantissa_bits == _FP32_MANTISSA_BITS:
        return values

    def drawn(start: int, stop: int) -> NDArray[np.uint32]:
        return rng.integers(0, 1 << _NOISE_BITS, size=stop - start, dtype=np.uint32)

    return _by_chunk(values, format, drawn)


def _as_float32(array: ArrayLike) -> Float32Array:
    if isinstance(array, np.ndarray) and array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float32)


def round_with(
    array: ArrayLike, format: NumberFormat | str, noise: NDArray[np.uint32]
) -> Float32Array:
    """`array` rounded stochastically with the 32 random bits given for each element.

    Who draws the noise decides what depends on it; equal noise rounds equal numbers alike.
    """
    target = format_named(format) if isinstance(format, str) else format
    values = np.asarray(array, dtype=np.float32)
    if values.shape != noise.shape:
        raise InputError(f"noise of shape {noise.shape} for numbers of shape {values.shape}")
    if target.mantissa_bits >= _FP32_MANTISSA_BITS:
        return values
    flat = np.ascontiguousarray(noise).reshape(-1)
    return _by_chunk(values, target, lambda start, stop: flat[start:stop])


def _by_chunk(
    values: Float32Array, format: NumberFormat, noise: Callable[[int, int], NDArray[np.uint32]]
) -> Float32Array:
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.size <= _CHUNK:
        return _stochastic(flat, format, noise(0, flat.size)).reshape(values.shape)
    rounded = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        stop = min(start + _CHUNK, flat.size)
        rounded[start:stop] = _stochastic(flat[start:stop], format, noise(start, stop))
    return rounded.reshape(values.shape)


def require_known(what: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise UnknownNameError(what, name, names)


def _nearest(values: Float32Array, format: NumberFormat) -> Float32Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return nearest_in(format)(values)


@cache
def nearest_in(format: NumberFormat) -> Callable[[Float32Array], Float32Array]:
    """Function that rounds float32 numbers to nearest even, for frequent calls.

    The function checks nothing, and callers ignore overflow; otherwise use `round_to`.
    """
    dtype = numpy_dtype(format)
    if dtype is None:
        return partial(_nearest_by_bits, mantissa_bits=format.mantissa_bits)
    if dtype == np.float32:
        return lambda values: values
    if dtype.kind == "i":
        return lambda values: (
            np.clip(np.rint(np.nan_to_num(values, nan=0.0)), format.min_value, format.max_value)
            .astype(dtype)
            .astype(np.float32)
        )
    return partial(_there_and_back, dtype=dtype)


def _there_and_back(values: Float32Array, dtype: np.dtype[Any]) -> Float32Array:
    """Round numbers by storing them; the stored ones of a chunk never leave a core's cache."""
    if values.size <= _CHUNK or not values.flags.c_contiguous:
        return widen(values.astype(dtype))
    flat, rounded = values.reshape(-1), np.empty(values.shape, dtype=np.float32)
    into = rounded.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        stored = flat[part].astype(dtype)
        into[part] = stored if dtype.itemsize > 1 else widen(stored)
    return rounded


def widen(narrow: NDArray[Any]) -> Float32Array:
    """Stored numbers as float32; exact for every format but fp64."""
    if narrow.dtype.itemsize > 1:
        return narrow.astype(np.float32)
    # One-byte ml_dtypes convert number by number; a table of all 256 is four times faster.
    with np.errstate(invalid="ignore"):
        table = np.arange(256, dtype=np.uint8).view(narrow.dtype).astype(np.float32)
    return np.asarray(table[narrow.view(np.uint8)], dtype=np.float32)


def _nearest_by_bits(values: Float32Array, mantissa_bits: int) -> Float32Array:
    """Round to a format with the exponent of fp32 and a shorter mantissa; ties to even."""
    # Adding half a step less one, plus the last kept bit, carries exactly where rounding to even
    # rounds up; the bits behind are then cut off.
    flat = np.ascontiguousarray(values).reshape(-1)
    bits = flat.view(np.uint32)
    dropped = _FP32_MANTISSA_BITS - mantissa_bits
    half_less_one = np.uint32((1 << (dropped - 1)) - 1)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    kept = (bits + half_less_one + odd) & np.uint32((0xFFFF_FFFF << dropped) & 0xFFFF_FFFF)
    rounded = kept.view(np.float32)
    rounded[np.isnan(flat)] = np.nan
    return rounded.reshape(values.shape)


def _stochastic(
    values: Float32Array, format: NumberFormat, noise: NDArray[np.uint32]
) -> Float32Array:
    """Round one chunk up with probability equal to the distance from the value below."""
    # Model: hardware adds random bits below the last kept one and truncates the magnitude. With q
    # the step at x and r of 32 random bits, the result is q * floor(|x|/q + r / 2^32). Where the
    # format is normal that is an integer addition on the bits of x; below, q no longer follows the
    # exponent of x and the same sum is done in float64.
    bits = values.view(np.uint32)
    dropped = _FP32_MANTISSA_BITS - format.mantissa_bits
    keep = np.uint32((0xFFFF_FFFF << dropped) & 0xFFFF_FFFF)
    rounded = noise >> np.uint32(_NOISE_BITS - dropped)
    if _as_wide(format) and np.isfinite(values).all():
        # The same sum holds below normal too, and what is carried past the largest is infinity.
        rounded += bits
        rounded &= keep
        return rounded.view(np.float32)
    magnitude_bits = bits & ~_SIGN
    rounded += magnitude_bits
    rounded &= keep
    magnitude = rounded.view(np.float32)
    subnormal = magnitude_bits < _bits_of(2.0**format.min_exponent)
    if subnormal.any():
        steps = np.abs(values[subnormal]).astype(np.float64) / format.smallest
        below = np.floor(steps + noise[subnormal] * 2.0**-_NOISE_BITS)
        magnitude[subnormal] = below * format.smallest
    if format.overflow == "maximum":
        signed = np.copysign(magnitude, values).clip(format.min_value, format.max_value)
    else:
        magnitude[rounded > _bits_of(format.max_value)] = _OVERFLOW_VALUE[format.overflow]
        signed = np.copysign(magnitude, values)
    special = magnitude_bits >= _INFINITY
    if special.any():
        signed[special] = _nearest(values[special], format)
    return signed if format.exponent_bits else signed + np.float32(0)  # integers have no -0


def _as_wide(format: NumberFormat) -> bool:
    return format.min_exponent == _FP32_MIN_EXPONENT and format.overflow == "infinity"


def _bits_of(value: float) -> np.uint32:
    return np.float32(value).view(np.uint32)
