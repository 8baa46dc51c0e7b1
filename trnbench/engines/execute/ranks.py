"""The ranks of a pipeline stage as the first dimension of every array, and what each of them holds.

Ranks count through dp, cp and tp, tp innermost, as in the Megatron order; so the groups of an axis
are a reshape of the first dimension to [outer, group, inner].
"""

from __future__ import annotations

from math import prod

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.facts.arrays import IntArray
from trnbench.facts.memo import Memo
from trnbench.machine.rank_groups import MEGATRON, groups_along
from trnbench.program.step import StepProgram
from trnbench.program.tensor import Dim, Tensor, array


class StageRanks:
    """The ranks that hold one stage: how they are grouped, and their part of whole tensors."""

    def __init__(self, program: StepProgram) -> None:
        self.grid = program.grid
        self.ranks = int(self.grid.ranks_per_stage)
        self._first: dict[Dim, IntArray] = {}
        self._split: Memo[tuple[str, int | None], tuple[int, int, int]] = Memo()

    def size(self, axis: str) -> int:
        """Ranks of a group along an axis."""
        return int(self.grid.ranks(axis))

    def split(self, axis: str, ranks: int | None = None) -> tuple[int, int, int]:
        """(outer, group, inner) sizes of the first dimension for groups along an axis."""
        return self._split.of((axis, ranks), lambda: self._split_along(axis, ranks))

    def _split_along(self, axis: str, ranks: int | None) -> tuple[int, int, int]:
        groups = groups_along(axis, self.grid, MEGATRON, None if ranks is None else array(ranks))
        size, stride = int(groups.ranks), int(groups.stride)
        return self.ranks // (size * stride), size, stride

    def coordinate(self, axis: str) -> IntArray:
        """Each rank's place in its group along an axis."""
        _, size, stride = self.split(axis)
        return np.arange(self.ranks) // stride % size

    def first(self, dim: Dim) -> IntArray:
        """For each rank the index of the first element of a dimension that it holds."""
        if dim not in self._first:
            number = np.zeros(self.ranks, dtype=np.int64)
            for axis in dim.axes:
                number = number * self.size(axis) + self.coordinate(axis)
            # Ranks beyond the number of pieces hold copies.
            held = prod(self.size(axis) for axis in dim.axes) * int(dim.size)
            copies = max(1, held // int(dim.whole))
            self._first[dim] = number // copies * int(dim.size)
        return self._first[dim]

    def positions(self, dim: Dim) -> IntArray:
        """[rank, element] the index in the whole of every element that ranks hold."""
        return self.first(dim)[:, None] + np.arange(int(dim.size))

    def placed(self, tensor: Tensor) -> IntArray:
        """[rank, element] the index in the whole tensor of what ranks hold, flattened.

        Padding, which lies beyond the whole, has the index just behind it.
        """
        total = prod(int(dim.whole) for dim in tensor.dims)
        index = np.zeros((self.ranks, *(1 for _ in tensor.dims)), dtype=np.int64)
        inside = np.ones_like(index, dtype=np.bool_)
        for i, dim in enumerate(tensor.dims):
            shape = [1] * (len(tensor.dims) + 1)
            shape[0], shape[i + 1] = self.ranks, int(dim.size)
            at = self.positions(dim).reshape(shape)
            index = index * int(dim.whole) + at
            inside = inside & (at < int(dim.whole))
        return np.where(inside, index, total).reshape(self.ranks, -1)

    def cut(self, tensor: Tensor, whole: Numbers) -> Numbers:
        """Each rank's part of an array that nobody holds as a whole."""
        padded = np.append(whole.reshape(-1), np.zeros(1, dtype=whole.dtype))
        shape = (self.ranks, *(int(size) for size in tensor.shape))
        return padded[self.placed(tensor)].reshape(shape)
