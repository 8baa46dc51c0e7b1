"""The matrix product as the tensor engine computes it: narrow inputs, FP32 sums by K-tile.

One accumulation group in PSUM is one output block: the first K-tile overwrites the bank, each
further tile is added in FP32, and the sum is rounded once when it leaves for the output format.
The order of additions inside a K-tile is that of the BLAS; between tiles it is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trnbench.engines.execute.numbers.blocks import SCALE_RULES, block_round
from trnbench.engines.execute.numbers.rounding import OVERFLOWS, Overflow, require_known, round_to
from trnbench.errors import InputError
from trnbench.facts.arrays import Float32Array
from trnbench.facts.numbers.formats import (
    FORMATS,
    ROUNDINGS,
    NumberFormat,
    RoundingRule,
    ScaleRule,
    format_named,
)
from trnbench.facts.numbers.sparsity import (
    Compressed,
    SparsityPattern,
    compress,
    decompress,
    parse_pattern,
    pattern_problem,
    tile_products,
)
from trnbench.facts.records import Record, replace

ACCUMULATE_FORMATS = ("fp32", "bf16")

# A K-tile's product of this many bytes at most is held at a time. Blocks of fewer rows make the
# BLAS repack the moving operand more often: 256 rows of 2048 take half as long again as all 2048.
BLOCK_BYTES = 64 << 20


class ProductRecipe(Record):
    """Formats, pattern and rounding of a product."""

    format_in_a: NumberFormat = FORMATS["bf16"]  # Format of `a`, the stationary operand
    format_in_b: NumberFormat = FORMATS["bf16"]
    format_out: NumberFormat = FORMATS["fp32"]
    accumulate: NumberFormat = FORMATS["fp32"]  # Format of the sums in PSUM
    rounding: RoundingRule = "rne"
    """Rounding of the output and, with bf16 accumulation (NeuronCore-v4), of writes to PSUM;
    inputs are rounded to nearest even."""
    overflow: Overflow = "native"
    scale_rule: ScaleRule | None = None
    pattern: SparsityPattern | None = None  # Pattern by which `a` is pruned
    k_tile: int = 128  # Products that are summed before a sum is added to PSUM
    seed: int = 0

    def __post_init__(self) -> None:
        require_known("accumulation format", self.accumulate.name, ACCUMULATE_FORMATS)
        require_known("rounding", self.rounding, ROUNDINGS)
        require_known("overflow policy", self.overflow, OVERFLOWS)
        if self.scale_rule is not None:
            require_known("scale rule", self.scale_rule, SCALE_RULES)
        if self.k_tile < 1:
            raise InputError(f"k_tile must be at least 1, found {self.k_tile}")
        if self.seed < 0:
            raise InputError(f"seed must not be negative, found {self.seed}")

    @classmethod
    def named(cls, **given: Any) -> ProductRecipe:  # noqa: ANN401
        """Recipe with these fields; formats and the pattern may be names."""
        for key, read in _READ.items():
            if isinstance(given.get(key), str):
                given[key] = read(given[key])
        return cls(**given)


_PLAIN = ProductRecipe()
_READ: Mapping[str, Callable[[str], NumberFormat | SparsityPattern]] = {
    **dict.fromkeys(("format_in_a", "format_in_b", "format_out", "accumulate"), format_named),
    "pattern": parse_pattern,
}


class ProductResult(Record, eq=False):
    """The product (..., m, n) in float32, exactly as the output format holds it."""

    values: Float32Array
    recipe: ProductRecipe
    k_tiles: int


def product_problem(recipe: ProductRecipe, k: int) -> str | None:
    """Reason why this product cannot be played, None if it can."""
    inputs = (recipe.format_in_a, recipe.format_in_b)
    for format in (*inputs, recipe.format_out):
        if format.mantissa_bits > FORMATS["fp32"].mantissa_bits:
            return f"{format.name} is wider than the FP32 sums of the tensor engine"
    if recipe.format_out.block > 1:
        return (
            f"a product is not written as {recipe.format_out.name}: "
            "write bf16 or fp16, then quantise it"
        )
    if recipe.pattern is None:
        return None
    for format in inputs:
        if format.block > 1:
            return f"sparsity {recipe.pattern} does not combine with {format.name}"
    return pattern_problem(recipe.pattern, k)


def contraction_tiles(recipe: ProductRecipe, k: int) -> tuple[int, int]:
    """(products summed inside one K-tile, number of K-tiles) for a contraction of k."""
    # A sparse operand is compressed before it is cut: its tiles cover more of k.
    length = k // recipe.pattern.ratio if recipe.pattern else k
    tile = min(recipe.k_tile, length)
    return tile, -(-length // tile)


def round_stationary(a: Float32Array, recipe: ProductRecipe) -> Float32Array | Compressed:
    """`a` as the engine reads it: pruned and compressed if sparse, rounded."""
    if recipe.pattern is None:
        return _round_operand(a, recipe.format_in_a, -1, recipe)
    kept = compress(a, recipe.pattern)
    values = _round_operand(kept.values, recipe.format_in_a, -1, recipe)
    return replace(kept, values=values)


def round_moving(b: Float32Array, recipe: ProductRecipe) -> Float32Array:
    """`b` as the engine reads it: rounded, in groups along k where its format has them."""
    return _round_operand(b, recipe.format_in_b, -2, recipe)


def matmul(a: ArrayLike, b: ArrayLike, recipe: ProductRecipe | None = None) -> ProductResult:
    """A (..., m, k) times b (..., k, n), leading axes broadcast, under the recipe."""
    chosen = recipe or ProductRecipe()
    left, right = _checked_operands(a, b)
    problem = product_problem(chosen, left.shape[-1])
    if problem:
        raise InputError(problem)
    stationary, moving = round_stationary(left, chosen), round_moving(right, chosen)
    rng = np.random.default_rng(chosen.seed) if chosen.rounding == "sr" else None
    # Infinities are values like any other here: inf - inf is NaN, as it is on the engine.
    with np.errstate(over="ignore", invalid="ignore"):
        values = _summed(stationary, moving, left.shape, chosen, rng)
    out = round_to(
        values, chosen.format_out, rounding=chosen.rounding, rng=rng, overflow=chosen.overflow
    )
    tiles = contraction_tiles(chosen, left.shape[-1])[1]
    return ProductResult(values=out, recipe=chosen, k_tiles=tiles)


def summed_by_tile(stationary: Float32Array, moving: Float32Array) -> Float32Array:
    """FP32 sums of rounded operands, without checks, for frequent calls.

    `matmul` without a recipe of its own; infinities are values, and warnings are left to the
    caller.
    """
    return _summed(stationary, moving, stationary.shape, _PLAIN, None)


def _summed(
    stationary: Float32Array | Compressed,
    moving: Float32Array,
    shape: tuple[int, ...],
    recipe: ProductRecipe,
    rng: np.random.Generator | None,
) -> Float32Array:
    """Sums of rounded operands; `shape` is that of the stationary one, not pruned."""
    (*lead, m, k), n = shape, moving.shape[-1]
    batch = tuple(lead)
    if moving.shape[:-2] != batch:
        batch = np.broadcast_shapes(batch, moving.shape[:-2])
    values = np.empty((*batch, m, n), dtype=np.float32)
    small = values.nbytes <= BLOCK_BYTES and recipe.accumulate.name == "fp32"
    if small and not isinstance(stationary, Compressed):
        _add_up(values, stationary, moving, recipe.k_tile)
    else:
        moving = np.broadcast_to(moving, (*batch, k, n))
        _by_member(values, stationary, moving, recipe, rng)
    return values


def _by_member(
    values: Float32Array,
    stationary: Float32Array | Compressed,
    moving: Float32Array,
    recipe: ProductRecipe,
    rng: np.random.Generator | None,
) -> None:
    *batch, m, n = values.shape
    block_rows = max(1, BLOCK_BYTES // (n * values.itemsize))
    for index in np.ndindex(*batch):
        for start in range(0, m, block_rows):
            block = slice(start, start + block_rows)
            part = _part(stationary, index, tuple(batch), block)
            if isinstance(part, Compressed):
                products = tile_products(part, moving[index], recipe.k_tile)
            else:
                products = _dense_tile_products(part, moving[index], recipe.k_tile)
            _accumulate(values[index][block], products, recipe, rng)


def _checked_operands(a: ArrayLike, b: ArrayLike) -> tuple[Float32Array, Float32Array]:
    left, right = np.asarray(a, dtype=np.float32), np.asarray(b, dtype=np.float32)
    shapes = f"{left.shape} times {right.shape}"
    if left.ndim < 2 or right.ndim < 2:
        raise InputError(f"a product needs matrices, found shapes {shapes}")
    if 0 in left.shape or 0 in right.shape:
        raise InputError(f"a product needs positive sizes, found shapes {shapes}")
    if left.shape[-1] != right.shape[-2]:
        raise InputError(f"inner sizes differ: {shapes}")
    try:
        np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise InputError(f"batch sizes differ: {shapes}") from None
    return left, right


def _round_operand(
    values: Float32Array, format: NumberFormat, axis: int, recipe: ProductRecipe
) -> Float32Array:
    if format.block > 1:
        return block_round(values, format, axis=axis, rule=recipe.scale_rule)
    return round_to(values, format, overflow=recipe.overflow)


def _part(
    stationary: Float32Array | Compressed,
    index: tuple[int, ...],
    batch: tuple[int, ...],
    block: slice,
) -> Float32Array | Compressed:
    if not isinstance(stationary, Compressed):
        dense = np.broadcast_to(stationary, (*batch, *stationary.shape[-2:]))
        return np.asarray(dense[index][block], dtype=np.float32)
    values = np.broadcast_to(stationary.values, (*batch, *stationary.values.shape[-2:]))
    tags = np.broadcast_to(stationary.tags, (*batch, *stationary.tags.shape[-2:]))
    return replace(stationary, values=values[index][block], tags=tags[index][block])


def _dense_tile_products(
    stationary: Float32Array, moving: Float32Array, k_tile: int
) -> Iterator[Float32Array]:
    """Yield the FP32 product of each K-tile, in one buffer that the next tile overwrites."""
    buffer = None
    for start in range(0, stationary.shape[-1], k_tile):
        tile = slice(start, start + k_tile)
        buffer = np.matmul(stationary[..., tile], moving[..., tile, :], out=buffer)
        yield buffer


def _add_up(
    bank: Float32Array, stationary: Float32Array, moving: Float32Array, k_tile: int
) -> None:
    """Sum the K-tiles into `bank` in order, in FP32: the first is written where it belongs."""
    first = slice(0, k_tile)
    np.matmul(stationary[..., first], moving[..., first, :], out=bank)
    if stationary.shape[-1] <= k_tile:
        return
    rest = slice(k_tile, None)
    for product in _dense_tile_products(stationary[..., rest], moving[..., rest, :], k_tile):
        bank += product


def _accumulate(
    bank: Float32Array,
    products: Iterator[Float32Array],
    recipe: ProductRecipe,
    rng: np.random.Generator | None,
) -> None:
    """Sum the K-tiles into `bank` in order, narrowing each write where PSUM itself is narrow."""
    for step, product in enumerate(products):
        if step == 0:
            bank[...] = product
        else:
            bank += product
        if recipe.accumulate.name != "fp32":
            bank[...] = round_to(
                bank, recipe.accumulate, rounding=recipe.rounding, rng=rng, overflow=recipe.overflow
            )


def dense_operand(stationary: Float32Array | Compressed) -> Float32Array:
    return decompress(stationary) if isinstance(stationary, Compressed) else stationary
