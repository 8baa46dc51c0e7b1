"""Seeded operands for products."""

from __future__ import annotations

from typing import Literal

import numpy as np

from trnbench.errors import InputError, UnknownNameError
from trnbench.numerics.memory import check_memory
from trnbench.numerics.rounding import Float32Array

OperandKind = Literal["normal", "integers"]
OPERAND_KINDS: tuple[OperandKind, ...] = ("normal", "integers")

_LARGEST_INTEGER = 3


def operands(
    m: int, k: int, n: int, *, batch: int = 1, seed: int = 0, kind: OperandKind = "normal"
) -> tuple[Float32Array, Float32Array]:
    """Return float32 operands (batch, m, k) and (batch, k, n), the same for the same seed.

    `normal` draws from N(0, 1); `integers` from -3 .. 3, which every format here holds exactly.
    A product too large for this machine's memory is refused before anything is allocated.
    """
    if kind not in OPERAND_KINDS:
        raise UnknownNameError("kind of operands", kind, OPERAND_KINDS)
    if seed < 0:
        raise InputError(f"seed must not be negative, found {seed}")
    check_memory(m, k, n, batch=batch)
    rng = np.random.default_rng(seed)
    if kind == "normal":
        a = rng.standard_normal((batch, m, k), dtype=np.float32)
        return a, rng.standard_normal((batch, k, n), dtype=np.float32)
    low, high = -_LARGEST_INTEGER, _LARGEST_INTEGER + 1
    a = rng.integers(low, high, (batch, m, k), dtype=np.int8).astype(np.float32)
    return a, rng.integers(low, high, (batch, k, n), dtype=np.int8).astype(np.float32)
