"""Error of an emulated product against float64, its bound, and the memory all this needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from trnbench.engines.execute.numbers.product import (
    BLOCK_BYTES,
    ProductRecipe,
    ProductResult,
    contraction_tiles,
    dense_operand,
    round_moving,
    round_stationary,
)
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts.arrays import BoolArray, Float32Array, FloatArray, IntArray, distinct
from trnbench.facts.numbers.formats import FORMATS, NumberFormat, RoundingRule
from trnbench.facts.numbers.sparsity import prune
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, show

Float64Array: TypeAlias = FloatArray

_FP32_UNIT = 2.0**-24
_FP64_UNIT = 2.0**-53
# Rows are compared in blocks whose float64 temporaries take this much; the bytes per element of
# result and of stationary operand are those alive at the peak.
CHECK_BLOCK_BYTES = 256 << 20
_BYTES_PER_RESULT = 100
_BYTES_PER_STATIONARY = 40


class ErrorReport(Record):
    """Distance of a product from its float64 value.

    Errors are those to the exact product of the operands as given (pruned if sparse), so they
    include the rounding of the inputs.
    """

    max_abs: float  # Largest error
    max_rel: float  # Largest error over the sum of |a||b| of its own element
    rms_rel: float  # Norm of all errors over that of the product
    bound_use: float  # largest used share of the K-tile bound, by the *rounded* operands
    elements: int
    excluded: int  # Elements at or past the range of a format

    @property
    def within_bound(self) -> bool:
        return self.bound_use <= 1.0


def error_against_float64(
    result: ProductResult, a: ArrayLike, b: ArrayLike, *, rows: int | None = None
) -> ErrorReport:
    """Error of `result` as the product of a and b; `rows` checks that many rows only.

    Rows are spread evenly over m; each costs four float64 products.
    """
    if rows is not None and rows < 1:
        raise InputError(f"rows must be at least 1, found {rows}")
    left, right = np.asarray(a, dtype=np.float32), np.asarray(b, dtype=np.float32)
    m = left.shape[-2]
    chosen = distinct(np.linspace(0, m - 1, min(rows or m, m)).astype(np.int64))
    results_per_row = result.values.size // m
    n, k = right.shape[-1], left.shape[-1]
    block = max(1, CHECK_BLOCK_BYTES // check_row_bytes(k, n, batch=results_per_row // n))
    moving = _moving(right, result.recipe)
    parts = [
        _compare(result, left, moving, chosen[start : start + block])
        for start in range(0, chosen.size, block)
    ]
    max_abs, max_rel, bound_use, squared_error, squared_reference, included = zip(
        *parts, strict=True
    )
    elements = results_per_row * chosen.size
    return ErrorReport(
        max_abs=max(max_abs),
        max_rel=max(max_rel),
        rms_rel=float(_ratio(sum(squared_error), sum(squared_reference)) ** 0.5),
        bound_use=max(bound_use),
        elements=elements,
        excluded=elements - sum(included),
    )


def check_row_bytes(k: int, n: int, *, batch: int) -> int:
    return batch * (n * _BYTES_PER_RESULT + k * _BYTES_PER_STATIONARY)


_Moving: TypeAlias = tuple[Float64Array, Float64Array, Float64Array, Float64Array]
"""The moving operand as given and its magnitudes, and as rounded and its magnitudes."""


def _moving(right: Float32Array, recipe: ProductRecipe) -> _Moving:
    given = right.astype(np.float64)
    rounded = round_moving(right, recipe).astype(np.float64)
    return given, np.abs(given), rounded, np.abs(rounded)


def _compare(
    result: ProductResult, left: Float32Array, moving: _Moving, rows: IntArray
) -> tuple[float, float, float, float, float, int]:
    """Figures of one block of rows: largest errors, sums of squares, and elements in range.

    The errors are absolute, relative, and as a share of the bound; the squares are those of the
    errors and of the product.
    """
    recipe = result.recipe
    whole, whole_magnitude, rounded, rounded_magnitude = moving
    given = left[..., rows, :]
    values = result.values[..., rows, :]
    dense = dense_operand(round_stationary(given, recipe))
    if recipe.pattern:
        given = prune(given, recipe.pattern)
    reference = _product(given, whole)
    exact = _product(dense, rounded)
    magnitude = _product(np.abs(dense), rounded_magnitude)
    bound = product_error_bound(exact, magnitude, k=left.shape[-1], recipe=recipe)
    inside = _in_range(exact, magnitude, bound, recipe) & np.isfinite(reference)
    scale = _product(np.abs(given), whole_magnitude)[inside]
    reference = reference[inside]
    total = np.abs(values[inside] - reference)
    engine = np.abs(values[inside] - exact[inside])
    return (
        _largest(total),
        _largest(_ratio(total, scale)),
        _largest(_ratio(engine, bound[inside])),
        float(np.square(total).sum()),
        float(np.square(reference).sum()),
        int(inside.sum()),
    )


def product_error_bound(
    exact: Float64Array, magnitude: Float64Array, *, k: int, recipe: ProductRecipe
) -> Float64Array:
    """Largest error of each element, given the exact product and |A||B| of its inputs.

    Model: with u = 2^-24, t products in a K-tile and T tiles, every product passes one rounding of
    its own, at most t - 1 additions in its tile and T - 1 between tiles. In whatever order, the
    error is at most gamma(t + T - 1) * |A||B| with gamma(n) = n u / (1 - n u) (Higham, Accuracy and
    Stability of Numerical Algorithms, section 3.1). A narrow accumulator rounds T times more.
    Products below the step of fp32 lose half of it, the float64 reference is off by k 2^-53 |A||B|,
    and the output adds one rounding of its own.
    """
    tile, tiles = contraction_tiles(recipe, k)
    roundings = (tile + tiles - 1) * _FP32_UNIT
    unit, step = _rounding_error(recipe.accumulate, recipe.rounding)
    growth = (1 + unit) ** tiles
    relative = (1 + roundings / (1 - roundings)) * growth - 1
    absolute = (k * FORMATS["fp32"].smallest / 2 + tiles * step) * growth
    bound = (relative + k * _FP64_UNIT) * magnitude + absolute
    unit, step = _rounding_error(recipe.format_out, recipe.rounding)
    # An element past the range of an input format has no bound: NaN, and left out by the caller.
    with np.errstate(invalid="ignore"):
        return np.asarray(bound + unit * (np.abs(exact) + bound) + step, dtype=np.float64)


def _rounding_error(format: NumberFormat, rounding: RoundingRule) -> tuple[float, float]:
    """Largest relative error of one rounding, and the absolute one near zero."""
    if format.name == "fp32":
        return 0.0, 0.0
    steps = 0.5 if rounding == "rne" else 1.0
    return steps * 2.0**-format.mantissa_bits, steps * format.smallest


def _in_range(
    exact: Float64Array, magnitude: Float64Array, bound: Float64Array, recipe: ProductRecipe
) -> BoolArray:
    written = np.abs(exact) + bound < recipe.format_out.max_value
    summed = magnitude + bound < recipe.accumulate.max_value
    return np.isfinite(exact) & written & summed


def _product(left: ArrayLike, right: ArrayLike) -> Float64Array:
    # Infinities in the operands give NaN here; such elements are excluded, not warned about.
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.matmul(np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64))
    return np.asarray(wide, dtype=np.float64)


def _ratio(error: ArrayLike, scale: ArrayLike) -> Float64Array:
    error, scale = np.asarray(error, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / scale)


def _largest(errors: Float64Array) -> float:
    return float(np.nan_to_num(errors, nan=np.inf, posinf=np.inf).max(initial=0.0))


# Bytes per element, from the arrays alive at once at the peak (a test holds them to tracemalloc).
_FP32 = 4
_HELD = 8  # an operand as given and as rounded, both float32
_ROUNDING = 6  # a clamped copy and the narrow one, while an operand is rounded
_BLOCK_ROUNDING = 10  # scaled, clamped, rounded and narrow copies
_PRUNING = 22  # magnitudes, int64 ranks and positions
_BANK = 4  # one K-tile's product
_NARROWING = 13  # clamped, rounded and narrow copies, and bits, while sums are rounded
_CHECKING_B = 40  # given and rounded, both with their magnitudes in float64
_MEMINFO = Path("/proc/meminfo")


def bytes_needed(
    m: int,
    k: int,
    n: int,
    *,
    batch: int = 1,
    recipe: ProductRecipe | None = None,
    check: bool = False,
) -> int:
    """Memory in bytes for operands and product, with `check` for its error too."""
    for name, size in (("m", m), ("k", k), ("n", n), ("batch", batch)):
        if size < 1:
            raise InputError(f"{name} must be at least 1, found {size}")
    chosen = recipe or ProductRecipe()
    a, b, out = batch * m * k, batch * k * n, batch * m * n
    rounding_a = _BLOCK_ROUNDING if chosen.format_in_a.block > 1 else _ROUNDING
    rounding_b = _BLOCK_ROUNDING if chosen.format_in_b.block > 1 else _ROUNDING
    preparing = max((_PRUNING if chosen.pattern else rounding_a) * a, rounding_b * b)
    block = min(BLOCK_BYTES // _FP32, m * n)
    narrow = chosen.accumulate.name != "fp32"
    summing = _FP32 * out + block * (_BANK + (_NARROWING if narrow else 0))
    writing = (_FP32 + _NARROWING) * out
    needed = _HELD * (a + b) + max(preparing, summing, writing)
    if check:
        comparing = max(CHECK_BLOCK_BYTES, check_row_bytes(k, n, batch=batch))
        needed = max(needed, _FP32 * (a + out) + _CHECKING_B * b + comparing)
    return needed


def available_bytes() -> int:
    """Memory that can still be allocated, in bytes; all of it where unknown."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(
    m: int,
    k: int,
    n: int,
    *,
    batch: int = 1,
    recipe: ProductRecipe | None = None,
    check: bool = False,
) -> int:
    """Bytes needed, or refuse when less is free."""
    needed = bytes_needed(m, k, n, batch=batch, recipe=recipe, check=check)
    limit = available_bytes()
    if needed > limit:
        copies = f"{batch} of " if batch > 1 else ""
        raise EnvironmentFault(
            f"computing {copies}{m}x{k}x{n} needs {show(needed, Dimension.BYTES)} of memory, "
            f"{show(limit, Dimension.BYTES)} is available",
            hint="take smaller sizes; times need no arrays, only the numbers themselves do",
        )
    return needed
