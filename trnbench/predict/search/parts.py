"""Cuts of a space and its layouts: blocks to check validity, parts to lower programs.

Blocks and parts consist of whole clusters, because answers of clusters are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.records import Record, replace
from trnbench.predict.search.legality import OUTER, PLACE, ScheduleFamily
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.space import ALONG, ZERO_AXES, Space, space_of
from trnbench.program.points import Points

BLOCK = 1 << 24
"""Points of a block, counting only layouts whose ranks fill their cluster."""


def blocks(space: Space) -> Iterator[Space]:
    """Yield a space in blocks of whole clusters, so that a block's valid layouts fit in memory.

    A single cluster is never cut.
    """
    inner = prod(space.shape[OUTER:])
    ranks = space.axes["nodes"] * space.question.ranks_per_node
    cut = np.multiply.outer(space.axes["tp"], space.axes["cp"]).ravel()
    # Only points whose degrees divide the ranks can be valid: the others take no memory.
    whole = ranks[:, None] % np.multiply.outer(space.axes["pp"], cut) == 0
    filled = np.count_nonzero(whole, axis=1)
    clusters = space.clusters
    points = np.bincount(clusters, weights=filled, minlength=len(space.question.nodes)) * inner
    # Clusters in order, as many as fill a block; one that exceeds a block is a block of its own.
    held = 0.0
    chosen: list[int] = []
    for cluster, more in enumerate(points.tolist()):
        if chosen and held + more > BLOCK:
            yield space.of(np.isin(clusters, chosen))
            held, chosen = 0.0, []
        held += more
        chosen.append(cluster)
    yield space if len(chosen) == len(points) else space.of(np.isin(clusters, chosen))


def is_large(question: SearchQuestion) -> bool:
    """True where the layouts of a question are looked at in several blocks."""
    several = blocks(space_of(question))
    next(several)
    return next(several, None) is not None


def parts(
    space: Space, families: Sequence[ScheduleFamily], *, most: int
) -> Iterator[tuple[Space, tuple[ScheduleFamily, ...]]]:
    """Yield a space and its families in parts of whole clusters.

    A part has at most `most` points, chunks aside, unless a single cluster has more. All clusters
    of a part have switch domains of one size, as exchanges are priced for one size of domain.
    """
    used = _used_by(space, families)
    inner = prod(np.count_nonzero(used[axis]) for axis in set(ALONG.values()) - {0, ALONG["vpp"]})
    clusters = space.clusters
    points = np.bincount(clusters[used[0]], minlength=len(space.question.nodes)) * inner
    sizes = [*map(space.question.platform.domain_of, space.question.nodes), 0]
    start = 0
    for end in range(1, len(points) + 1):
        few = end < len(points) and points[start : end + 1].sum() <= most
        if few and sizes[end] == sizes[start]:
            continue
        if start == 0 and end == len(points):
            yield _of_families(space, families, used)
        elif points[start:end].any():
            # Places along the first axis are in the order of clusters, and so are layouts.
            first, last = np.searchsorted(clusters, (start, end))
            mine = [_between(family, first, last) for family in families]
            yield _of_families(space, mine, _used_by(space, mine))
        start = end


def _between(family: ScheduleFamily, first: int, last: int) -> ScheduleFamily:
    start, end = np.searchsorted(family.legal.index[0], (first, last))
    return replace(family, legal=family.legal.at(np.arange(start, end)))


class Trimmed(Record, eq=False):
    """A space reduced to the values at which some of its layouts are, and these layouts in it."""

    space: Space
    layouts: tuple[Points, ...]
    places: tuple[IntArray | None, ...]
    """Places of the values along each axis of the whole space; None for all."""

    def cut(self, array: FloatArray) -> FloatArray:
        """The part of an array over the whole space that is left of it."""
        for axis in range(-array.ndim, 0):
            places = self.places[axis]
            if places is not None and array.shape[axis] > 1:
                array = array.take(places, axis=axis)
        return array


def trimmed(space: Space, several: Sequence[Points]) -> Trimmed:
    """A space reduced to what some layouts need; their ZeRO stages stand in front."""
    used = _used(space.shape, [points.index[ZERO_AXES:] for points in several])
    small = _reduced(space, used)
    return Trimmed(
        space=small,
        layouts=tuple(
            Points(
                shape=(len(space.zeros), *small.shape),
                index=(*points.index[:ZERO_AXES], *_moved(used, points.index[ZERO_AXES:])),
            )
            for points in several
        ),
        places=tuple(None if mask.all() else np.flatnonzero(mask) for mask in used),
    )


def _used(shape: tuple[int, ...], several: Sequence[tuple[IntArray, ...]]) -> tuple[BoolArray, ...]:
    """For each axis of a shape, a mask of the values at which some layout is."""
    masks = []
    for axis, size in enumerate(shape):
        used = np.zeros(size, dtype=np.bool_)
        for index in several:
            if size > 1:
                used[index[axis]] = True
            elif len(index[axis]):
                used[:] = True
        masks.append(used)
    return tuple(masks)


def _used_by(space: Space, families: Sequence[ScheduleFamily]) -> tuple[BoolArray, ...]:
    """For each axis of a space, a mask of the values at which some valid layout is."""
    sizes = [family.legal.of_sizes() for family in families]
    others = _used(space.shape[:-1], [family.legal.index for family in families])
    return (*others, np.logical_or.reduce(sizes))


def _reduced(space: Space, used: Sequence[BoolArray]) -> Space:
    axes = {name: values[used[ALONG[name]]] for name, values in space.axes.items()}
    return Space(question=space.question, axes=axes)


def _moved(used: Sequence[BoolArray], index: Sequence[IntArray]) -> tuple[IntArray, ...]:
    """Places along the first axes of a space, on the space reduced to its used values."""
    return tuple(
        at if mask.all() else (np.cumsum(mask) - 1).astype(PLACE).take(at)
        for mask, at in zip(used, index, strict=False)
    )


def _of_families(
    space: Space, families: Sequence[ScheduleFamily], used: Sequence[BoolArray]
) -> tuple[Space, tuple[ScheduleFamily, ...]]:
    """A space and its families, reduced to the used values of each axis."""
    small, outer = _reduced(space, used), np.ix_(*used[:OUTER])
    return small, tuple(
        replace(
            family,
            legal=replace(
                family.legal,
                shape=small.shape,
                index=_moved(used, family.legal.index),
                sizes=_moved(used[-1:], [family.legal.sizes])[0],
            ),
            looks=tuple(replace(look, at=look.at[outer]) for look in family.looks),
        )
        for family in families
    )
