"""Some layouts of an open grid: arrays that span a few axes become one number a layout.

Searches price legal layouts only; most points of an open grid are not legal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


class Points(Record, eq=False):
    """Layouts by their index along each axis of a grid of this shape."""

    shape: tuple[int, ...]
    index: tuple[IntArray, ...]
    # by shape of an array: flat position of each layout's number
    offsets: Memo[tuple[int, ...], IntArray] = field(default_factory=Memo)

    def __len__(self) -> int:
        return len(self.index[0])

    def pick(self, array: NDArray[Number]) -> NDArray[Number]:
        """Numbers of an array for each layout; a single number for all stays single."""
        # A number that no degree changes stays a scalar: formulas then skip a column of copies.
        if array.size == 1:
            return array.reshape(())
        return array.ravel().take(self.places(array.shape))

    def places(self, shape: tuple[int, ...]) -> IntArray:
        """Position of each layout's number in a flat array of this shape."""
        return self.offsets.of(shape, lambda: self._offset(shape))

    def _offset(self, shape: tuple[int, ...]) -> IntArray:
        # Short numbers are quicker to multiply; those that arrays are indexed by are long.
        short = prod(shape) <= np.iinfo(self.index[0].dtype).max
        number: type[np.integer[Any]] = self.index[0].dtype.type if short else np.int64
        offset = np.zeros(len(self), dtype=number)
        stride = 1
        for axis in range(1, len(shape) + 1):
            if shape[-axis] > 1:
                offset += self.index[-axis] * number(stride)
                stride *= shape[-axis]
        return offset.astype(np.int64)

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
