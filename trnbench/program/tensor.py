"""Tensors of a step: named dimensions with their size on one rank, and which axis cuts them.

Sizes are arrays over a grid of layouts and broadcast together; a tensor's arrays span only the
axes it depends on. Axes of a layout:

    tp  cp  dp  pp          as in the layout
    ep                      ranks that share the experts, taken out of cp * dp
    data                    cp * dp: all ranks that hold the same dense weights
    expert_tp               ranks that share an expert, where they are others than those of tp
    expert_data             all ranks that hold the same experts: cp * dp / ep, or with ranks of
                            their own tp * cp * dp / (expert_tp * ep)
    shard, expert_shard     those of data, or of expert_data, that share slices under ZeRO
    copies                  ranks that hold the same slices, one of each such group
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property, reduce
from math import prod
from operator import add
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from trnbench.facts.arrays import FloatArray
from trnbench.facts.numbers.formats import STORED_FORMATS, format_named
from trnbench.facts.records import Record, field

TensorRole = Literal["activation", "weight", "gradient", "constant", "state"]

INDEX, MASK = "int32", "bool"
"""Formats without arithmetic: token ids and choices of experts; dropout masks."""
LOGITS_DIM = "vocabulary"
"""Name of the last dimension of the logits."""
_PLAIN_BYTES = {INDEX: 4.0, MASK: 1.0}


def array(value: ArrayLike) -> FloatArray:
    """Value as an array of float64, which is exact for every size; one number as a numpy scalar."""
    # Scalars have all that is asked of an array, and numpy reckons with them ten times as fast.
    if type(value) is np.float64:
        return value  # type: ignore[return-value]
    if type(value) in _SCALARS:
        return np.float64(value)  # type: ignore[return-value, arg-type]
    if type(value) is not np.ndarray or value.dtype is not _FLOAT64:
        value = np.asarray(value, dtype=np.float64)
    return value if value.ndim else value[()]


_REMEMBERED = 4096
"""Most layouts for which a tensor remembers its bytes, which are asked for repeatedly."""
_FLOAT64 = np.dtype(np.float64)
_SCALARS = (int, float, np.bool_, np.int64)
ONE: FloatArray = array(1.0)
NOTHING: FloatArray = array(0.0)


def one() -> FloatArray:
    """Size of a dimension that is absent; a default of fields."""
    return ONE


def nothing() -> FloatArray:
    """Size of what is not there; a default of fields."""
    return NOTHING


@cache
def element_bytes(number_format: str) -> float:
    """Bytes of an element in memory, shared scales included."""
    if number_format in _PLAIN_BYTES:
        return _PLAIN_BYTES[number_format]
    if number_format in STORED_FORMATS:
        return STORED_FORMATS[number_format].bytes_per_element
    return format_named(number_format).bytes_per_element


class Dim(Record, eq=False):
    """Dimension of a tensor, cut along axes.

    Where a rank's size times the ranks exceeds `whole`, ranks hold copies or padding.
    """

    name: str
    size: FloatArray  # on one rank
    factors: tuple[FloatArray, ...]  # their product is `whole`, which few ask for
    axes: tuple[str, ...] = ()  # that cut the dimension

    @cached_property
    def whole(self) -> FloatArray:
        """Size over all ranks."""
        return array(prod(self.factors))


class Tensor(Record, eq=False, dict=True):
    """One tensor of a block as a rank holds it."""

    name: str
    dims: tuple[Dim, ...]
    format: str
    role: TensorRole = "activation"
    partial: frozenset[str] = frozenset()  # axes over whose ranks the tensor is still to be summed
    pieces: FloatArray = field(
        default_factory=one
    )  # of a ring or a loss; two at a time are in memory
    frozen: bool = False  # a weight that the job does not train

    @property
    def shape(self) -> tuple[FloatArray, ...]:
        return tuple(dim.size for dim in self.dims)

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(axis for dim in self.dims for axis in dim.axes)

    @property
    def elements(self) -> FloatArray:
        """Elements on one rank."""
        if not self.dims:
            return ONE
        size = self.dims[0].size
        for dim in self.dims[1:]:
            size = size * dim.size
        return array(size)

    @property
    def bytes(self) -> FloatArray:
        """Bytes on one rank."""
        size = self.__dict__.get("bytes")
        if size is None:
            size = array(self.elements * element_bytes(self.format))
            # Arrays over large grids would fill the memory with products that are cheap to repeat.
            if size.size <= _REMEMBERED:
                self.__dict__["bytes"] = size
        return size

    @property
    def held_bytes(self) -> FloatArray:
        """Bytes in memory at a time: of a tensor that arrives in pieces, two of them."""
        if self.pieces is ONE:
            return self.bytes
        return array(self.bytes * np.minimum(self.pieces, 2) / self.pieces)

    @property
    def differentiable(self) -> bool:
        return self.role in ("activation", "weight") and not self.frozen


def partial_after(reads: tuple[Tensor, ...], dims: tuple[Dim, ...]) -> frozenset[str]:
    """Axes over which a result with these dimensions is still to be summed.

    Ranks that read different shards, and whose result is not cut the same way, hold parts of a sum.
    """
    # An axis that cuts an operand and not the result is contracted: each rank has its own summand.
    different: set[str] = set()
    for read in reads:
        different |= read.partial
        for dim in read.dims:
            if dim.axes:  # most have none
                different.update(dim.axes)
    for dim in dims:
        if dim.axes:
            different.difference_update(dim.axes)
    return frozenset(different)


def total(values: Iterable[FloatArray]) -> FloatArray:
    """Sum of the values; 0 without any."""
    each = [*values]
    return array(reduce(add, each)) if each else NOTHING


def total_bytes(tensors: Iterable[Tensor]) -> FloatArray:
    return total([tensor.held_bytes for tensor in tensors])
