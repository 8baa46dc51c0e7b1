"""Which layouts of a space are legal, and by which rule the others are not, for every cluster.

Most points of a large space do not fill their cluster, or break a rule whatever the micro-batch is.
So what decides how many ranks there are (nodes, pp, tp, cp) is sorted out first, with the least of
the other degrees: more ranks for experts, chunks or samples mend no broken rule. The other degrees
are then looked at only for those that passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trnbench.arrays import BoolArray, IntArray
from trnbench.mapping.rank_groups import platform_answer
from trnbench.program.grid import Grid, grid_of
from trnbench.program.legality import Reason, reasons
from trnbench.program.points import Points
from trnbench.program.step import SHARED_KNOBS
from trnbench.search.question import Question
from trnbench.search.space import ALONG, DIMENSIONS, Space, Variant
from trnbench.workload.layout import Layout, Schedule

OUTER = 3
"""So many axes of the grid, the first ones, say how many ranks there are."""
AT_ONCE = 1 << 20
"""Points of which all rules are looked at together."""

AnyNumber = TypeVar("AnyNumber", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleFamily:
    """The layouts of a schedule for some variants, which all find the same of them legal.

    `considered` counts them by cluster, `rejected` by the first rule they break and by cluster.
    """

    schedule: Schedule
    variants: tuple[Variant, ...]
    legal: Points
    legal_by_cluster: IntArray
    considered: IntArray
    rejected: Mapping[str, IntArray]


def families(space: Space) -> tuple[ScheduleFamily, ...]:
    """Return the layouts of a space, sorted by what is legal of them."""
    found: dict[tuple[Schedule, Variant, bool], list[Variant]] = {}
    for schedule in space.schedules:
        for variant in space.variants:
            lowest = variant["zero"] == space.first["zero"]
            found.setdefault((schedule, own_modes(variant), lowest), []).append(variant)
    platform = _platform_rules(space)
    outer = {
        own_modes(variant): {**platform, **_outer_rules(space, variant)}
        for variant in {own_modes(variant): variant for variant in space.variants}.values()
    }
    return tuple(
        _family(space, outer[own], schedule, tuple(variants))
        for (schedule, own, _), variants in found.items()
    )


def own_modes(variant: Variant) -> Variant:
    """Return the modes of a variant on which its operations and its legality depend."""
    return variant.changed(**dict.fromkeys(SHARED_KNOBS))


def trimmed(
    space: Space, found: Sequence[ScheduleFamily]
) -> tuple[Space, tuple[ScheduleFamily, ...]]:
    """Return a space and its families without the values at which no layout is legal."""
    axes = dict(space.axes)
    places: list[IntArray] = []
    for dimension, size in enumerate(space.shape):
        used = np.zeros(size, dtype=np.bool_)
        for family in found:
            used[family.legal.index[dimension]] = True
        places.append(np.cumsum(used) - 1)
        axes |= {name: axes[name][used] for name, along in ALONG.items() if along == dimension}
    small = Space(question=space.question, axes=axes)

    def moved(points: Points) -> Points:
        index = tuple(place.take(at) for place, at in zip(places, points.index, strict=True))
        return Points(shape=small.shape, index=index)

    return small, tuple(replace(family, legal=moved(family.legal)) for family in found)


def parts(
    space: Space, found: Sequence[ScheduleFamily], *, most: int
) -> Iterator[tuple[Space, tuple[ScheduleFamily, ...]]]:
    """Yield a space and its families in parts of whole clusters, all in one if it is not too large.

    A part has at most `most` points, chunks aside, unless a single cluster has more.
    """
    space, families = trimmed(space, found)
    places = np.bincount(space.clusters, minlength=len(space.question.nodes))
    points = places * (prod(space.shape[1:]) // len(space.axes["vpp"]))
    start = 0
    for end in range(1, len(points) + 1):
        if end < len(points) and points[start : end + 1].sum() <= most:
            continue
        mine = (space.clusters >= start) & (space.clusters < end)
        if start == 0 and end == len(points):
            yield space, families
        elif mine.any():
            yield trimmed(space, [_at(family, mine) for family in families])
        start = end


def _at(family: ScheduleFamily, places: BoolArray) -> ScheduleFamily:
    """Return a family's layouts at some places along the first axis."""
    return replace(family, legal=some(family.legal, places[family.legal.index[0]]))


def some(points: Points, mask: BoolArray) -> Points:
    """Return those of the layouts where a mask over them holds."""
    chosen = np.flatnonzero(mask)
    return Points(shape=points.shape, index=tuple(axis.take(chosen) for axis in points.index))


def nearest_refusal(space: Space) -> tuple[str, ...]:
    """Return in words what refuses a layout of a space that breaks as few rules as any."""
    platform = _platform_rules(space)
    found = (
        _least_broken(space, platform, schedule, variant)
        for schedule in space.schedules
        if len(space.chunks(schedule))
        for variant in space.variants
    )
    return min(found, key=len, default=())


def _least_broken(
    space: Space, platform: Mapping[str, BoolArray], schedule: Schedule, variant: Variant
) -> tuple[str, ...]:
    question = space.question
    rules = (*platform.values(), *_outer_rules(space, variant).values())
    outer = np.unravel_index(
        np.argmin(sum(rules, np.zeros(_outer_shape(space), dtype=np.int64))), _outer_shape(space)
    )
    layout = _with_inner(space, space.layout(schedule, variant), tuple(map(np.atleast_1d, outer)))
    grid = grid_of(layout)
    inner = [reason.broken for reason in reasons(question.model, grid)]
    faults = sum(inner, np.zeros(grid.shape, dtype=np.int64))
    index = tuple(int(i) for i in np.unravel_index(np.argmin(faults), grid.shape))
    at = grid.at(index)
    alone = grid_of(grid.layout_at(index))
    refused = _refused(question, alone, int(space.axes["nodes"][outer[0]]))
    return tuple(reason.words(at) for reason in (*refused, *reasons(question.model, alone)))


def _family(
    space: Space,
    outer_rules: Mapping[str, BoolArray],
    schedule: Schedule,
    variants: tuple[Variant, ...],
) -> ScheduleFamily:
    shape = _outer_shape(space)
    modes = variants[0].changed(schedule=schedule)
    looked_at = np.broadcast_to(_outer(space.runs(variants[0]) & space.once(modes)), shape)
    inner = len(space.axes["ep"]) * len(space.chunks(schedule)) * len(space.axes["micro_batch"])
    rejected: dict[str, IntArray] = {}
    left = looked_at.copy()
    for rule, broken in outer_rules.items():
        out = left & broken
        if out.any():
            rejected[rule] = inner * _by_cluster(space, np.nonzero(out)[0])
            left &= ~out
    legal: list[tuple[IntArray, ...]] = [(np.zeros(0, dtype=np.int64),) * DIMENSIONS]
    layout = space.layout(schedule, variants[0])
    outer = np.nonzero(left)
    at_once = max(AT_ONCE // max(inner, 1), 1)
    for start in range(0, len(outer[0]), at_once):
        part = tuple(axis[start : start + at_once] for axis in outer)
        legal.append(_inner_legal(space, layout, part, rejected))
    index = tuple(np.concatenate(column) for column in zip(*legal, strict=True))
    return ScheduleFamily(
        schedule=schedule,
        variants=variants,
        legal=Points(shape=space.shape, index=index),
        legal_by_cluster=_by_cluster(space, index[0]),
        considered=inner * _by_cluster(space, np.nonzero(looked_at)[0]),
        rejected=rejected,
    )


def _inner_legal(
    space: Space,
    layout: Layout,
    outer: tuple[IntArray, ...],
    rejected: dict[str, IntArray],
) -> tuple[IntArray, ...]:
    """Return where layouts of some outer degrees are legal; count those that are not."""
    chunks = space.chunks(layout.schedule)
    grid = grid_of(_with_inner(space, layout, outer))
    left = np.ones(grid.shape, dtype=np.bool_)
    rules = [(reason.rule, reason.broken) for reason in reasons(space.question.model, grid)]
    rules.append(("chunks", space.uneven_chunks(grid.pp, grid.vpp)))
    rules.append(("same order", space.same_order(layout.schedule, grid.micro_batches)))
    for rule, broken in rules:
        out = left & broken
        count = _of_each(out)
        if count.any():
            lost = _by_cluster(space, outer[0], count)
            rejected[rule] = rejected.get(rule, np.zeros_like(lost)) + lost
            left &= ~out
    count = _of_each(left)
    # The inner places are few: telling one's degrees is looking them up.
    inner = np.indices(left.shape[1:]).reshape(3, -1)
    place = np.flatnonzero(left) % max(inner.shape[1], 1)
    ep, vpp, micro_batch = (axis.take(place) for axis in (inner[0], chunks[inner[1]], inner[2]))
    return (*(np.repeat(axis, count) for axis in outer), ep, vpp, micro_batch)


def _of_each(mask: BoolArray) -> IntArray:
    """Return the number of inner degrees at which a mask holds, for each of the outer ones."""
    return np.asarray(np.count_nonzero(mask.reshape(len(mask), -1), axis=1))


def _with_inner(space: Space, layout: Layout, outer: tuple[IntArray, ...]) -> Layout:
    """Return layouts of some outer degrees [outer, ep, vpp, micro_batch], with all inner ones."""
    column = (-1, 1, 1, 1)
    dp = np.broadcast_to(_outer(space.dp), _outer_shape(space))[outer]
    vpp = space.axes["vpp"][space.chunks(layout.schedule)]
    return replace(
        layout,
        tp=space.axes["tp"][outer[1]].reshape(column),
        pp=space.axes["pp"][outer[0]].reshape(column),
        cp=space.axes["cp"][outer[2]].reshape(column),
        dp=dp.reshape(column),
        ep=space.axes["ep"].reshape(1, -1, 1, 1),
        vpp=vpp.reshape(1, 1, -1, 1),
        micro_batch=space.axes["micro_batch"].reshape(1, 1, 1, -1),
    )


def _outer_rules(space: Space, variant: Variant) -> Mapping[str, BoolArray]:
    """Return the degrees that do not divide, whatever the inner ones; schedules come later."""
    question = space.question
    layout = replace(
        space.layout(space.schedules[0], variant),
        ep=int(space.axes["ep"][0]),
        vpp=int(space.axes["vpp"][0]),
        micro_batch=int(space.axes["micro_batch"][0]),
    )
    found = reasons(question.model, grid_of(layout))
    return {reason.rule: _outer(reason.broken) for reason in found if reason.rule != "schedule"}


def _platform_rules(space: Space) -> Mapping[str, BoolArray]:
    """Return the masks of layouts that the platform refuses, rule by rule, over all clusters."""
    question = space.question
    layout = space.layout(space.schedules[0], space.variants[0])
    found: dict[str, BoolArray] = {}
    for nodes in question.nodes:
        here = space.axes["nodes"] == nodes
        dp = space.dp[here] if space.dp.ndim else space.dp
        # No platform minds the inner degrees.
        some = replace(layout, pp=space.column("pp")[here], dp=dp, ep=1, vpp=1, micro_batch=1)
        grid = grid_of(some)
        for reason in _refused(question, grid, nodes):
            broken = found.setdefault(reason.rule, np.zeros(_outer_shape(space), dtype=np.bool_))
            broken[here] |= _outer(reason.broken)
    return found


def _refused(question: Question, grid: Grid, nodes: int) -> tuple[Reason, ...]:
    return platform_answer(
        question.platform,
        grid,
        nodes=nodes,
        logical_size=question.logical_size,
        whole_nodes=question.whole_nodes,
    ).refused


def _outer_shape(space: Space) -> tuple[int, ...]:
    return space.shape[:OUTER]


def _by_cluster(space: Space, places: IntArray, count: IntArray | None = None) -> IntArray:
    """Return the number of some layouts on each cluster, given by place along the first axis.

    `count`: how many there are at each of the places; unasked, one.
    """
    at_place = np.bincount(places, weights=count, minlength=space.shape[0])
    clusters = np.bincount(space.clusters, weights=at_place, minlength=len(space.question.nodes))
    return clusters.astype(np.int64)


def _outer(array: NDArray[AnyNumber]) -> NDArray[AnyNumber]:
    """Return an array over the outer axes alone; the inner ones have one value."""
    full = array.reshape((1,) * (DIMENSIONS - array.ndim) + array.shape)
    return full.reshape(full.shape[:OUTER])
