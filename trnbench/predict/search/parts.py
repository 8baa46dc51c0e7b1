"""Cuts of a space and its layouts: blocks to check validity, parts to lower programs.

Blocks and parts consist of whole clusters, because answers of clusters are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from trnbench.facts.arrays import BoolArray
from trnbench.facts.records import replace
from trnbench.predict.search.legality import OUTER, PLACE, ScheduleFamily
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.space import ALONG, Space, space_of
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
    used = _used(space, [family.legal for family in families])
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
            yield _of_families(space, mine, _used(space, [family.legal for family in mine]))
        start = end


def _between(family: ScheduleFamily, first: int, last: int) -> ScheduleFamily:
    start, end = np.searchsorted(family.legal.index[0], (first, last))
    index = tuple(axis[start:end] for axis in family.legal.index)
    return replace(family, legal=Points(shape=family.legal.shape, index=index))


def trimmed(space: Space, several: Sequence[Points]) -> tuple[Space, list[Points]]:
    """A space reduced to the values at which some of its layouts are, and these layouts in it."""
    return _trimmed(space, several, _used(space, several))


def _used(space: Space, several: Sequence[Points]) -> tuple[BoolArray, ...]:
    """For each axis, a mask of the values at which some layout is."""
    masks = []
    for axis, size in enumerate(space.shape):
        used = np.zeros(size, dtype=np.bool_)
        for points in several:
            if size > 1:
                used[points.index[axis]] = True
            elif len(points):
                used[:] = True
        masks.append(used)
    return tuple(masks)


def _trimmed(
    space: Space, several: Sequence[Points], used: Sequence[BoolArray]
) -> tuple[Space, list[Points]]:
    axes = {name: values[used[ALONG[name]]] for name, values in space.axes.items()}
    small = Space(question=space.question, axes=axes)
    # Old place -> new place along an axis; None where no value is dropped.
    moved = [None if mask.all() else (np.cumsum(mask) - 1).astype(PLACE) for mask in used]
    return small, [
        Points(
            shape=small.shape,
            index=tuple(
                at if place is None else place.take(at)
                for place, at in zip(moved, points.index, strict=True)
            ),
        )
        for points in several
    ]


def _of_families(
    space: Space, families: Sequence[ScheduleFamily], used: Sequence[BoolArray]
) -> tuple[Space, tuple[ScheduleFamily, ...]]:
    """A space and its families, reduced to the used values of each axis."""
    small, several = _trimmed(space, [family.legal for family in families], used)
    outer = np.ix_(*used[:OUTER])
    return small, tuple(
        replace(
            family,
            legal=points,
            looks=tuple(replace(look, at=look.at[outer]) for look in family.looks),
        )
        for family, points in zip(families, several, strict=True)
    )
