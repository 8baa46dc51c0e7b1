"""Seeded operands for products."""

from __future__ import annotations

import numpy as np

from trnbench.engines.execute.numbers.memory import check_memory
from trnbench.errors import InputError
from trnbench.facts.arrays import Float32Array


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
