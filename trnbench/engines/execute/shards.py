"""The ranks of a stage as the first dimension of arrays, and weights as ranks hold them.

A bucket's elements have a place in the whole of its weights, so that what is drawn for the whole
(first weights, the noise of stochastic rounding) is the same for every layout and every copy.

Ranks. Ranks count through dp, cp and tp, tp innermost, as in the Megatron order; so the groups of
an axis are a reshape of the first dimension to [outer, group, inner].
"""

from __future__ import annotations

from collections.abc import Set
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trnbench.engines.execute.arithmetic import NoiseArray, Numbers
from trnbench.facts.arrays import BoolArray, IntArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record
from trnbench.machine.rank_groups import MEGATRON, groups_along
from trnbench.program.block import Block
from trnbench.program.optimizer import Bucket, alike_over_tp
from trnbench.program.parameters import Parameter
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
        return int(self.grid.ranks(axis))

    def split(self, axis: str, ranks: int | None = None) -> tuple[int, int, int]:
        """(outer, group, inner) sizes of the first dimension for groups along an axis."""
        return self._split.of((axis, ranks), lambda: self._split_along(axis, ranks))

    def _split_along(self, axis: str, ranks: int | None) -> tuple[int, int, int]:
        groups = groups_along(axis, self.grid, MEGATRON, None if ranks is None else array(ranks))
        size, stride = int(groups.ranks), int(groups.stride)
        return self.ranks // (size * stride), size, stride

    def coordinate(self, axis: str) -> IntArray:
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
        padded = np.append(whole.reshape(-1), np.zeros(1, dtype=whole.dtype))
        shape = (self.ranks, *(int(size) for size in tensor.shape))
        return padded[self.placed(tensor)].reshape(shape)


OPTIMIZER_SLICED, GRADIENTS_SLICED, WEIGHTS_SLICED = 1, 2, 3  # from this ZeRO stage on
PADDING = -1  # Place of what fills up a slice; it takes the zero behind the whole

Drawn = TypeVar("Drawn", bound=np.generic)


class BucketSpan(Record):
    """Position of a weight in its bucket, and its shape with the ranks in front."""

    weight: Tensor
    start: int
    stop: int
    shape: tuple[int, ...]

    def of(self, flat: Numbers) -> Numbers:
        return flat[:, self.start : self.stop].reshape(self.shape)


class BucketShape:
    """Layout of a bucket of a block: the same for every layer of the block's kind."""

    def __init__(self, ranks: StageRanks, block: Block, bucket: Bucket, tied: str | None) -> None:
        self.bucket = bucket
        self.axis = bucket.axis
        self.shard = ranks.grid.shard_axis(bucket.axis)
        self.zero = int(ranks.grid.zero)
        self.copies = int(bucket.copies)
        self.shards = ranks.size(self.shard)
        self._ranks = ranks
        members = _members(block, bucket, tied)
        self.spans: dict[str, BucketSpan] = {}
        places, start, whole = [], 0, 0
        for member in members:
            weight = member.weight
            # Ranks that hold copies have the same places, so what is drawn for one is for all.
            placed = ranks.placed(weight)
            size = prod(int(dim.whole) for dim in weight.dims)
            places.append(np.where(placed < size, placed + whole, PADDING))
            stop = start + placed.shape[1]
            shape = (ranks.ranks, *(int(extent) for extent in weight.shape))
            self.spans[weight.name] = BucketSpan(weight=weight, start=start, stop=stop, shape=shape)
            start, whole = stop, whole + size
        assert start == int(bucket.elements), bucket.axis
        self.elements, self.whole_elements = start, whole
        self.place = np.concatenate(places, axis=1)
        self.own_place = self.own(self.place, since=OPTIMIZER_SLICED)
        self._in_order = np.array_equal(self.own_place, [np.arange(whole)])
        self._padded = bool((self.own_place == PADDING).any())
        self.alike = self._columns(alike_over_tp(members, block.gradients))
        self.shared = self._columns({m.weight.name for m in members if np.any(m.copies > 1)})
        self.tied = self._columns({m.weight.name for m in members if m.weight.name == tied})

    def own(self, flat: IntArray, *, since: int) -> IntArray:
        """Places that each rank has to itself from a ZeRO stage on; padding behind."""
        if self.zero < since:
            return flat
        padding = -flat.shape[1] % self.shards
        padded = np.pad(flat, [(0, 0), (0, padding)], constant_values=PADDING)
        at = self._ranks.coordinate(self.shard)[:, None, None]
        pieces = padded.reshape(len(flat), -1, self.shards)
        return np.take_along_axis(pieces, at, axis=-1)[..., 0]

    def held_once(self) -> BoolArray:
        """True where no earlier rank holds the same element of the optimizer's part."""
        # Copies would enter the norm of all gradients several times.
        flat = self.own_place.reshape(-1)
        once = np.zeros(flat.shape, dtype=np.bool_)
        once[np.unique(flat, return_index=True)[1]] = True
        return np.asarray((once & (flat != PADDING)).reshape(self.own_place.shape))

    def taken(self, whole: NDArray[Drawn], place: IntArray) -> NDArray[Drawn]:
        padded = np.append(whole, np.zeros(1, dtype=whole.dtype))
        return padded.take(place)

    def own_noise(self, whole: NoiseArray) -> NoiseArray:
        if self._in_order:
            return whole[np.newaxis]  # a lone rank works on all of it
        return self.taken(whole, self.own_place) if self._padded else whole.take(self.own_place)

    def joined(self, held: NDArray[Drawn], place: IntArray) -> NDArray[Drawn]:
        """The whole of the ranks' parts: the reverse of `taken`."""
        whole = np.zeros(self.whole_elements + 1, dtype=held.dtype)
        whole[place] = held
        return whole[:-1]

    def _columns(self, names: Set[str]) -> IntArray:
        spans = [span for name, span in self.spans.items() if name in names]
        columns = [np.arange(span.start, span.stop) for span in spans]
        return np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)


def _members(block: Block, bucket: Bucket, tied: str | None) -> list[Parameter]:
    """A bucket's weights; one that two stages hold comes first, so that slices match."""
    members = [
        member
        for member in block.parameters.values()
        if member.use == ("frozen" if bucket.frozen else "trained")
        and float(member.held)
        and member.replicas == bucket.axis
        and member.weight.format == bucket.format
    ]
    return sorted(members, key=lambda member: member.weight.name != tied)
