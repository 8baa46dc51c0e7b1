"""Errors of one product by casting, micro-scaling and sparsity, relative to all digits."""

from __future__ import annotations

import numpy as np

from trnbench.engines.execute.numbers.operands import operands
from trnbench.engines.execute.numbers.product import ProductRecipe, matmul
from trnbench.facts.arrays import Float32Array
from trnbench.facts.records import Record

SIZES = (64, 256, 64)
SMALL = 2.0**-14
"""Scale of small gradients: below the smallest number of fp8, 2^-9."""
FORMATS_SHOWN = ("fp32", "tf32", "bf16", "fp8_e4m3", "mxfp8_e4m3")
SPARSE = ("bf16", "4:16")


class ProductDemo(Record):
    """Root mean square error of a product over that of the product itself, summed in FP32.

    `near_one`: of numbers from N(0, 1); `small`: the left ones times `scale`. With a `pattern` the
    left ones are pruned, and the error counts what is gone.
    """

    format: str
    pattern: str | None
    near_one: float
    scale: float
    small: float


def product_demos(*, seed: int = 0) -> tuple[ProductDemo, ...]:
    """Errors of each format that fp32 operands are cast to, and of sparse ones."""
    left, right = operands(*SIZES, seed=seed)
    cases = [*((name, None) for name in FORMATS_SHOWN), SPARSE]
    return tuple(_demo(left, right, name, pattern) for name, pattern in cases)


def _demo(left: Float32Array, right: Float32Array, name: str, pattern: str | None) -> ProductDemo:
    recipe = ProductRecipe.named(format_in_a=name, format_in_b=name, pattern=pattern)
    return ProductDemo(
        format=name,
        pattern=pattern,
        near_one=_error(left, right, recipe),
        scale=SMALL,
        small=_error(left * np.float32(SMALL), right, recipe),
    )


def _error(left: Float32Array, right: Float32Array, recipe: ProductRecipe) -> float:
    exact = np.matmul(left.astype(np.float64), right.astype(np.float64))
    off = matmul(left, right, recipe).values - exact
    return float(np.linalg.norm(off) / np.linalg.norm(exact))
