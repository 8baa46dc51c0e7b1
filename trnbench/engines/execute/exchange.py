"""Collectives on the arrays of all ranks: reshapes and sums along the dimension of the ranks.

Every exchange is written into the book, with the elements its arrays really had. Sums are added up
in FP32 and rounded once, to the format in which they are written.
"""

from __future__ import annotations

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.engines.execute.ranks import StageRanks
from trnbench.engines.execute.traffic import Book, Message
from trnbench.facts.arrays import IntArray
from trnbench.facts.memo import Memo
from trnbench.program.ops import CollectiveOp
from trnbench.program.tensor import Tensor, element_bytes

_GROUP = 1
"""Where the ranks of a group stand once the first dimension is split."""


class Exchanger:
    """The exchanges of one pipeline stage."""

    def __init__(self, ranks: StageRanks, book: Book, stage: int) -> None:
        self._ranks = ranks
        self._book = book
        self._stage = stage
        self._messages: Memo[tuple[CollectiveOp, int, int | None], Message] = Memo()

    def run(self, op: CollectiveOp, numbers: Numbers) -> Numbers:
        """Arrays of all ranks after an exchange of a block."""
        size = self._ranks.size(op.axis)
        assert size == int(op.ranks), op.name
        grouped = self._grouped(numbers, op.axis)
        gathers = op.op == "all-gather" or op.ring == "gather"
        scatters = op.op == "reduce-scatter" or op.ring == "reduce"
        if op.op == "all-reduce":
            made = _to_all(_summed(grouped, op), size)
        elif gathers:
            made = _to_all(_joined(grouped, _dim(op.read, op.axis)), size)
        elif scatters:
            made = _dealt(_summed(grouped, op), _dim(op.write, op.axis), size)
        else:
            assert op.op == "all-to-all", op.op
            made = _swapped(grouped, *_moved(op), size)
        out = made.reshape(self._ranks.ranks, *made.shape[3:])
        hops = size - 1 if op.ring else 1
        assert hops == int(op.count), op.name
        per_rank = out if op.op == "all-gather" or op.ring == "reduce" else numbers
        self._write(op, int(per_rank[0].size), hops)
        return out

    def flat(self, op: CollectiveOp, numbers: Numbers, *, group: int | None = None) -> Numbers:
        """[rank, element] arrays after an exchange of a bucket.

        A rank's slice is every n-th element, so that weights which two stages share are cut alike.
        """
        # [outer, group, inner, element]: a collective is then a sum or a joint along one axis.
        outer, size, inner = self._ranks.split(op.axis, group)
        assert size == int(op.ranks), op.name
        assert numbers.shape[1] == int(op.read.elements), op.name
        grouped = numbers.reshape(outer, size, inner, -1)
        if op.op == "all-reduce":
            made = _to_all(grouped.sum(axis=_GROUP), size)
        elif op.op == "reduce-scatter":
            total = grouped.sum(axis=_GROUP)
            made = np.moveaxis(_pieces(total, size), -1, _GROUP)
        else:
            assert op.op == "all-gather", op.op
            whole = np.moveaxis(grouped, _GROUP, -1).reshape(outer, inner, -1)
            # The last slices are filled up; what fills them is not part of the whole.
            made = _to_all(whole[..., : int(op.write.elements)], size)
        out = np.ascontiguousarray(made.reshape(self._ranks.ranks, -1))
        assert out.shape[1] == int(op.write.elements), op.name
        counted = out if op.op == "all-gather" else numbers
        self._write(op, counted.shape[1], 1, group)
        return out

    def coordinate(self, axis: str) -> IntArray:
        """Each rank's place in its group along an axis."""
        return self._ranks.coordinate(axis)

    def slice_of(self, numbers: Numbers, axis: str) -> Numbers:
        """Slice [rank, element] that each rank has of what all ranks of a group hold."""
        size = self._ranks.size(axis)
        at = self._ranks.coordinate(axis)[:, None, None]
        return np.take_along_axis(_pieces(numbers, size), at, axis=-1)[..., 0]

    def _grouped(self, numbers: Numbers, axis: str) -> Numbers:
        return numbers.reshape(*self._ranks.split(axis), *numbers.shape[1:])

    def _write(self, op: CollectiveOp, elements: int, hops: int, group: int | None = None) -> None:
        def message() -> Message:
            return Message(
                op=op.op,
                axis=op.axis,
                phase=op.phase,
                stage=self._stage,
                elements=elements,
                element_bytes=element_bytes(op.read.format),
                group=self._ranks.split(op.axis, group)[1:],
            )

        self._book.collective(self._messages.of((op, elements, group), message), hops)


def _pieces(numbers: Numbers, size: int) -> Numbers:
    """[..., element, piece]: elements dealt out in turn, padded with zeros."""
    padding = -numbers.shape[-1] % size
    if padding:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, padding)])
    return numbers.reshape(*numbers.shape[:-1], -1, size)


def _summed(grouped: Numbers, op: CollectiveOp) -> Numbers:
    if op.reduction == "max":
        return np.asarray(grouped.max(axis=_GROUP))
    return np.asarray(grouped.sum(axis=_GROUP))


def _to_all(numbers: Numbers, size: int) -> Numbers:
    """[outer, group, inner, ...] where every rank of a group has the same."""
    outer, inner, *rest = numbers.shape
    if outer == inner == 1:
        return np.broadcast_to(numbers[:, np.newaxis], (1, size, 1, *rest))
    # In whole rows: of a broadcast array numpy would copy a few numbers at a time.
    spread = np.repeat(numbers.reshape(outer, -1), size, axis=0)
    return spread.reshape(outer, size, inner, *rest)


def _joined(grouped: Numbers, dim: int) -> Numbers:
    """[outer, inner, ...] with the group's pieces side by side along a dimension."""
    moved = np.moveaxis(grouped, _GROUP, 2 + dim)
    shape = list(moved.shape)
    shape[2 + dim : 4 + dim] = [shape[2 + dim] * shape[3 + dim]]
    return moved.reshape(shape)


def _dealt(numbers: Numbers, dim: int, size: int) -> Numbers:
    shape = list(numbers.shape)
    shape[2 + dim : 3 + dim] = [size, shape[2 + dim] // size]
    return np.moveaxis(numbers.reshape(shape), 2 + dim, _GROUP)


def _swapped(grouped: Numbers, grows: int, shrinks: int, size: int) -> Numbers:
    """Arrays after ranks exchanged pieces of one dimension for another."""
    shape = list(grouped.shape)
    at = 3 + shrinks
    shape[at : at + 1] = [size, shape[at] // size]
    # [outer, source, inner, ..., destination, ...] -> [outer, destination, inner, ..., source, ...]
    out = np.moveaxis(grouped.reshape(shape), at, 0)
    out = np.moveaxis(out, 2, 3 + grows)
    out = np.moveaxis(out, 0, _GROUP)
    joined = list(out.shape)
    joined[3 + grows : 5 + grows] = [joined[3 + grows] * joined[4 + grows]]
    return out.reshape(joined)


def _dim(tensor: Tensor, axis: str) -> int:
    at = next(i for i, dim in enumerate(tensor.dims) if axis in dim.axes)
    assert tensor.dims[at].axes[-1] == axis, tensor.name
    return at


def _moved(op: CollectiveOp) -> tuple[int, int]:
    """Dimension an all-to-all makes whole, and the one it cuts."""
    sizes = [(int(a), int(b)) for a, b in zip(op.read.shape, op.write.shape, strict=True)]
    (grows,) = [i for i, (before, after) in enumerate(sizes) if after > before]
    (shrinks,) = [i for i, (before, after) in enumerate(sizes) if after < before]
    return grows, shrinks
