"""Layouts in rows: a row holds micro-batch sizes of one choice of the other degrees, rising.

Many rows have equal sizes: a row has its other degrees, and its part of a table of sizes that rows
share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from trnbench.facts.arrays import BoolArray, IntArray
from trnbench.facts.records import Record, replace
from trnbench.program.points import Points


class Rows(Record, eq=False):
    """Rows of layouts of a grid, whose last axis is that of micro-batch sizes."""

    shape: tuple[int, ...]
    index: tuple[IntArray, ...]
    """Places of each row along all axes but the last."""
    start: IntArray
    """Place in `sizes` of each row's first micro-batch size."""
    count: IntArray
    """Layouts of each row."""
    sizes: IntArray
    """Places along the last axis; a row's sizes lie together."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def layouts(self) -> int:
        """Number of layouts of all rows."""
        return int(self.count.sum())

    def some(self, mask: BoolArray) -> Rows:
        """Rows where a mask over them is true."""
        return self if mask.all() else self.at(np.flatnonzero(mask))

    def at(self, chosen: IntArray) -> Rows:
        """Rows by their numbers among these."""
        return replace(
            self,
            index=tuple(axis.take(chosen) for axis in self.index),
            start=self.start.take(chosen),
            count=self.count.take(chosen),
        )

    def upto(self, count: IntArray) -> Rows:
        """The first layouts of each row; rows without any are left out."""
        kept = np.flatnonzero(count)
        return replace(self.at(kept), count=count.take(kept))

    def before(self, place: IntArray) -> IntArray:
        """Layouts of each row whose size is before a place along the last axis.

        Rows with the same first size have the same sizes.
        """
        first, held = self._before
        return held.take(first + place)

    @cached_property
    def _before(self) -> tuple[IntArray, IntArray]:
        """Sizes before each place of each part of the table, and where a row's part begins."""
        width, bounds = self.shape[-1] + 1, np.zeros(len(self.sizes) + 1, dtype=np.bool_)
        bounds[self.start] = bounds[self.start + self.count] = True
        part = np.cumsum(bounds) * width
        held = np.bincount(part[:-1] + self.sizes + 1, minlength=part[-1] + width)
        return part.take(self.start), np.cumsum(held.reshape(-1, width), axis=1).ravel()

    @cached_property
    def first(self) -> Points:
        """The first layout of each row."""
        return Points(shape=self.shape, index=(*self.index, self.sizes.take(self.start)))

    @cached_property
    def last(self) -> Points:
        sizes = self.sizes.take(self.start + self.count - 1)
        return Points(shape=self.shape, index=(*self.index, sizes))

    def points(self) -> Points:
        """All layouts, row by row."""
        each = np.repeat(np.arange(len(self)), self.count)
        sizes = self.sizes.take(np.repeat(self.start, self.count) + each_of(self.count))
        return Points(shape=self.shape, index=(*(axis.take(each) for axis in self.index), sizes))

    def of_sizes(self) -> BoolArray:
        """Mask of the places along the last axis at which some layout is."""
        # A place of the table is in use where more rows have begun than have ended.
        ends = len(self.sizes) + 1
        begun = np.bincount(self.start, minlength=ends) - np.bincount(
            self.start + self.count, minlength=ends
        )
        used = np.zeros(self.shape[-1], dtype=np.bool_)
        used[self.sizes[np.cumsum(begun[:-1]) > 0]] = True
        return used

    def chunks(self, layouts: int) -> Iterator[Rows]:
        """Yield rows with at most this many layouts at a time, or a single row."""
        ends, first = np.cumsum(self.count), 0
        while first < len(self):
            before = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, before + layouts, "right")), first + 1)
            yield self.at(np.arange(first, last))
            first = last


def together(shape: tuple[int, ...], parts: Sequence[Rows]) -> Rows:
    """Rows of several parts, of a grid of this shape."""
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        index = (none,) * (len(shape) - 1)
        return Rows(shape=shape, index=index, start=none, count=none, sizes=none)
    ends = np.cumsum([len(part.sizes) for part in parts])
    begun = (part.start + end - len(part.sizes) for part, end in zip(parts, ends, strict=True))
    return Rows(
        shape=shape,
        index=tuple(map(np.concatenate, zip(*(part.index for part in parts), strict=True))),
        start=np.concatenate([*begun]),
        count=np.concatenate([part.count for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
    )


def listed(points: Points) -> Rows:
    """Layouts as rows of one layout each."""
    *index, sizes = points.index
    count = np.ones(len(points), dtype=np.int64)
    return Rows(
        shape=points.shape, index=tuple(index), start=np.cumsum(count) - 1, count=count, sizes=sizes
    )


def each_of(count: IntArray) -> IntArray:
    """Numbers from 0 up to each count, one after the other."""
    return np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
