"""Demonstrations of number formats: steps added to a large sum, errors of a seeded product."""

from __future__ import annotations

import numpy as np

from trnbench.engines.execute.numbers.accuracy import check_memory
from trnbench.engines.execute.numbers.product import ProductRecipe, matmul
from trnbench.engines.execute.numbers.rounding import round_to
from trnbench.errors import InputError
from trnbench.facts.arrays import Float32Array
from trnbench.facts.numbers.formats import NumberFormat, RoundingRule, format_named
from trnbench.facts.records import Record


def operands(
    m: int, k: int, n: int, *, batch: int = 1, seed: int = 0
) -> tuple[Float32Array, Float32Array]:
    """Operands (batch, m, k) and (batch, k, n) from N(0, 1) in float32, alike for a seed.

    A product too large for this machine's memory is refused before anything is allocated.
    """
    if seed < 0:
        raise InputError(f"seed must not be negative, found {seed}")
    check_memory(m, k, n, batch=batch)
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((batch, m, k), dtype=np.float32)
    return a, rng.standard_normal((batch, k, n), dtype=np.float32)


SIZES = (64, 256, 64)
SMALL = 2.0**-14  # Scale of small gradients: below the smallest number of fp8, 2^-9
FORMATS_SHOWN = ("fp32", "tf32", "bf16", "fp8_e4m3", "mxfp8_e4m3")
SPARSE = ("bf16", "4:16")


class AccumulateDemo(Record):
    """Result of repeated additions of a step to a start."""

    format: str
    start: float
    step: float
    count: int  # Number of additions
    exact: float
    nearest: float  # Result with rounding to nearest after each addition
    stochastic: float  # Result with stochastic rounding after each addition


def accumulate_demo(
    *,
    format: NumberFormat | str = "fp16",
    start: float = 1024.0,
    step: float = 0.5,
    count: int = 2048,
    seed: int = 0,
) -> AccumulateDemo:
    """Sums; the documented case (the defaults) stays at 1024 to nearest even.

    At 1024 fp16 steps by 1: half a step ties to even and is lost each time, while stochastic
    rounding takes the step half of the times and ends near the exact 2048.
    """
    if count < 0:
        raise InputError(f"count must not be negative, found {count}")
    target = format_named(format) if isinstance(format, str) else format
    return AccumulateDemo(
        format=target.name,
        start=start,
        step=step,
        count=count,
        exact=start + step * count,
        nearest=_accumulate(target, start, step, count, "rne", seed),
        stochastic=_accumulate(target, start, step, count, "sr", seed),
    )


def _accumulate(
    format: NumberFormat, start: float, step: float, count: int, rounding: RoundingRule, seed: int
) -> float:
    rng = np.random.default_rng(seed)
    total = round_to(start, format)
    for _ in range(count):
        total = round_to(total + np.float32(step), format, rounding=rounding, rng=rng)
    return float(total)


class ProductDemo(Record):
    """Root mean square error of a product summed in FP32, over that of the exact product."""

    format: str
    pattern: str | None  # Sparsity of the left operands; the error counts the pruned numbers
    near_one: float  # Error with operands from N(0, 1)
    scale: float
    small: float  # Error with left operands from N(0, 1) times `scale`


def product_demos(*, seed: int = 0) -> tuple[ProductDemo, ...]:
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
