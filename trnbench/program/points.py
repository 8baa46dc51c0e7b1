"""Some layouts of an open grid: arrays that span a few axes become one number a layout.

Searches price legal layouts only; most points of an open grid are not legal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field

Number = TypeVar("Number", bound=np.generic)
Pick: TypeAlias = Callable[[FloatArray], FloatArray]
"""Takes the numbers of some layouts out of an array over the whole grid."""


_MOST = {np.dtype(kind): int(np.iinfo(kind).max) for kind in (np.int32, np.int64)}


def offset(index: Sequence[IntArray], shape: tuple[int, ...]) -> IntArray:
    """Positions in a flat array of this shape, from places along each of its axes."""
    # Short numbers are quicker to multiply; those that arrays are indexed by are long.
    short = prod(shape) <= _MOST[index[0].dtype]
    number: type[np.integer[Any]] = index[0].dtype.type if short else np.int64
    found: IntArray | None = None
    for axis, size in zip(index, shape, strict=True):
        if size > 1 and found is None:
            found = axis.astype(number)
        elif size > 1 and found is not None:
            found *= number(size)
            found += axis.astype(number, copy=False)
    return np.zeros(len(index[0]), np.int64) if found is None else found.astype(np.int64)


class Points(Record, eq=False):
    """Layouts by their index along each axis of a grid of this shape."""

    shape: tuple[int, ...]
    index: tuple[IntArray, ...]
    # by shape of an array: flat position of each layout's number
    offsets: Memo[tuple[int, ...], IntArray] = field(default_factory=Memo)

    def __len__(self) -> int:
        return len(self.index[0])

    def pick(self, array: NDArray[Number]) -> NDArray[Number]:
        # A number that no degree changes stays a scalar: formulas then skip a column of copies.
        if array.size == 1:
            return array.reshape(())
        return array.ravel().take(self.places(array.shape))

    def places(self, shape: tuple[int, ...]) -> IntArray:
        """Position of each layout's number in a flat array of this shape."""
        return self.offsets.of(shape, lambda: offset(self.index[-len(shape) :], shape))

    def some(self, mask: BoolArray) -> Points:
        """Layouts where a mask over them is true."""
        return self.at(np.flatnonzero(mask))

    def at(self, chosen: IntArray) -> Points:
        """Layouts by their numbers among these."""
        return Points(shape=self.shape, index=tuple(axis.take(chosen) for axis in self.index))

    def chunks(self, size: int) -> Iterator[Points]:
        """Yield at most `size` layouts at a time; arrays that fit a cache are far faster."""
        for start in range(0, len(self), size):
            part = tuple(index[start : start + size] for index in self.index)
            yield Points(shape=self.shape, index=part)
