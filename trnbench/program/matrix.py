"""A matrix product as both engines read it: sizes, formats, operations and bytes; no hardware."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.numbers.sparsity import TAG_BITS, parse_pattern
from trnbench.facts.records import Record
from trnbench.facts.units import BITS_PER_BYTE, FLOP_PER_MULTIPLY_ADD

MIN_RESULT_BITS = 16


class MatrixProduct(Record, eq=False):
    """c[m, n] = a[m, k] b[k, n], `batch` times over; sizes are whole numbers that broadcast.

    Both operands lie in memory with the contraction outermost (a as k x m), as a systolic array
    takes them.
    """

    m: FloatArray
    k: FloatArray
    n: FloatArray
    batch: FloatArray
    format_a: str
    format_b: str
    format_out: str
    transpose_a: bool  # stored as m x k, turned on the chip
    transpose_b: bool  # stored as n x k, turned on the chip
    pattern: str | None  # such as "4:16": prunes `a`, which is stored compressed

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.m.shape, self.k.shape, self.n.shape, self.batch.shape)

    @property
    def ratio(self) -> int:
        """Elements along k for each stored element of `a`."""
        return 1 if self.pattern is None else parse_pattern(self.pattern).ratio

    @property
    def flop(self) -> FloatArray:
        """FLOP carried out; pruned products are not."""
        return self.dense_flop / self.ratio

    @property
    def dense_flop(self) -> FloatArray:
        return FLOP_PER_MULTIPLY_ADD * self.m * self.k * self.n * self.batch

    @property
    def element_bytes_a(self) -> float:
        """Bytes per element of dense `a`, tags of a pattern included."""
        stored = format_named(self.format_a).bytes_per_element
        tag = 0.0 if self.pattern is None else TAG_BITS / BITS_PER_BYTE
        return (stored + tag) / self.ratio

    @property
    def element_bytes_b(self) -> float:
        return format_named(self.format_b).bytes_per_element

    @property
    def element_bytes_out(self) -> float:
        return format_named(self.format_out).bytes_per_element

    @property
    def result_bytes(self) -> FloatArray:
        return self.batch * self.m * self.n * self.element_bytes_out


def matrix_product(
    m: ArrayLike,
    k: ArrayLike,
    n: ArrayLike,
    *,
    batch: ArrayLike = 1,
    format_a: str = "bf16",
    format_b: str | None = None,
    format_out: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    pattern: str | None = None,
) -> MatrixProduct:
    """Product m x k x n; `b` and the result have the format of `a` unless given.

    Sizes other than whole numbers of at least 1, and unknown names, are input errors.
    """
    sizes = {"m": m, "k": k, "n": n, "batch": batch}
    arrays = {name: _whole(name, value) for name, value in sizes.items()}
    _check_broadcast(arrays)
    name_a = format_named(format_a).name
    return MatrixProduct(
        **arrays,
        format_a=name_a,
        format_b=format_named(format_b or name_a).name,
        format_out=format_named(format_out or name_a).name,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        pattern=None if pattern is None else str(parse_pattern(pattern)),
    )


def usual_result_format(number_format: str) -> str:
    """Usual format of results: the operands', but 16 bits at least."""
    # Sums of products of narrow numbers leave the range of their format.
    found = format_named(number_format)
    return found.name if found.bits >= MIN_RESULT_BITS else "bf16"


def _whole(name: str, value: ArrayLike) -> FloatArray:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} of a matrix product: expected whole numbers") from error
    # A single size is the usual case, and plain numbers are checked faster than arrays.
    if array.size == 1:
        size = array.item()
        whole = 1 <= size < math.inf and size.is_integer()
    else:
        whole = bool(np.all((array >= 1) & (array == np.floor(array)) & np.isfinite(array)))
    if not whole:
        raise InputError(f"{name} of a matrix product: expected whole numbers of at least 1")
    return array


def _check_broadcast(arrays: Mapping[str, FloatArray]) -> None:
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError as error:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(f"sizes of a matrix product do not broadcast: {shapes}") from error
