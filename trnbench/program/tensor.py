"""Tensors of a step: named dimensions with their size on one rank, and which axis cuts them.

Sizes are arrays over a grid of layouts and broadcast together; a tensor's arrays span only the
axes it depends on. Axes of a layout:

    tp  cp  dp  pp          as in the layout
    ep                      ranks that share the experts, taken out of cp * dp
    data                    cp * dp: all ranks that hold the same dense weights
    expert_data             cp * dp / ep: all ranks that hold the same experts
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from trnbench.arrays import FloatArray
from trnbench.numerics.formats import format_named

TensorRole = Literal["activation", "weight", "gradient", "constant", "state"]

INDEX, MASK = "int32", "bool"
"""Formats of what is never computed with: token ids and choices of experts; dropout masks."""
_PLAIN_BYTES = {INDEX: 4.0, MASK: 1.0}


def array(value: ArrayLike) -> FloatArray:
    """Return the value as an array of float64, which holds every size exactly."""
    return np.asarray(value, dtype=np.float64)


ONE: FloatArray = array(1.0)


def one() -> FloatArray:
    """Return the size of a dimension that is not there."""
    return ONE


def element_bytes(number_format: str) -> float:
    """Return the bytes an element takes in memory, shared scales included."""
    if number_format in _PLAIN_BYTES:
        return _PLAIN_BYTES[number_format]
    return format_named(number_format).bytes_per_element


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dim:
    """A dimension: its size on one rank, `whole` over all ranks, and the axes that cut it.

    Where a rank's size times the ranks exceeds `whole`, ranks hold copies or padding.
    """

    name: str
    size: FloatArray
    whole: FloatArray
    axes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """One tensor of a block as a rank holds it.

    `partial` names the axes over whose ranks it must still be summed. A tensor that arrives in
    `pieces` (keys and values that go round a ring) is never whole in memory: two pieces are.
    """

    name: str
    dims: tuple[Dim, ...]
    format: str
    role: TensorRole = "activation"
    partial: frozenset[str] = frozenset()
    pieces: FloatArray = field(default_factory=one)

    @property
    def shape(self) -> tuple[FloatArray, ...]:
        """The size of each dimension on one rank."""
        return tuple(dim.size for dim in self.dims)

    @property
    def axes(self) -> frozenset[str]:
        """The axes that cut it."""
        return frozenset(axis for dim in self.dims for axis in dim.axes)

    @property
    def elements(self) -> FloatArray:
        """Elements on one rank."""
        return array(prod(self.shape, start=ONE))

    @property
    def bytes(self) -> FloatArray:
        """Bytes on one rank."""
        return array(self.elements * element_bytes(self.format))

    @property
    def held_bytes(self) -> FloatArray:
        """Bytes in memory at a time: of a tensor that arrives in pieces, two of them."""
        return array(self.bytes * np.minimum(self.pieces, 2) / self.pieces)

    @property
    def differentiable(self) -> bool:
        """Whether a gradient may flow into it."""
        return self.role in ("activation", "weight")


def partial_after(reads: tuple[Tensor, ...], dims: tuple[Dim, ...]) -> frozenset[str]:
    """Return the axes over which a result with these dimensions is still to be summed.

    Ranks that read different shards, and whose result is not cut the same way, hold parts of a sum.
    """
    different = frozenset[str]().union(*(read.axes | read.partial for read in reads))
    return different - {axis for dim in dims for axis in dim.axes}


def total_bytes(tensors: tuple[Tensor, ...]) -> FloatArray:
    """Return the bytes that the tensors hold in memory on one rank."""
    return array(sum((tensor.held_bytes for tensor in tensors), start=np.zeros(())))
