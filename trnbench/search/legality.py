"""Which layouts of a space are legal, and by which rule the others are not, for every cluster.

Most points of a large space do not fill their cluster, or break a rule whatever the micro-batch is.
So what decides how many ranks there are (nodes, pp, tp, cp) is sorted out first, with the least of
the other degrees: more ranks for experts, chunks or samples mend no broken rule. The other degrees
are then looked at only for those that passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnbench.arrays import BoolArray, IntArray, distinct
from trnbench.mapping.rank_groups import platform_answer
from trnbench.mapping.routable_groups import OF_EXPERTS, group_reasons
from trnbench.mapping.routable_groups import OUTER as GROUPS
from trnbench.memo import Memo
from trnbench.program.grid import Grid, grid_of
from trnbench.program.legality import reasons
from trnbench.program.points import Points
from trnbench.program.reasons import Reason, first_causes
from trnbench.program.step import SHARED_KNOBS
from trnbench.records import dataclass
from trnbench.search.question import Question
from trnbench.search.space import ALONG, DIMENSIONS, Space, Variant, space_of
from trnbench.workload.layout import Layout, Schedule
from trnbench.workload.recompute import repeated_layers

OUTER = 3
"""So many axes of the grid, the first ones, say how many ranks there are."""
AT_ONCE = 1 << 20
"""Points of which all rules are looked at together."""
BLOCK = 1 << 24
"""Points, of those whose ranks fill their cluster, that are sorted out before any is looked at."""
PLACE: type[Any] = np.int32
"""Numbers of places along one axis: short ones, as there is a row of them for each layout."""

GROUP_KNOBS = ("expert_tp", "shard", "context_parallel")
"""Modes that say which ranks exchange with each other."""
_OF_CHUNKS = ("schedule", "stages drawn")
"""Rules that more chunks may mend."""

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


def blocks(space: Space) -> Iterator[Space]:
    """Yield a space in blocks of whole clusters, so that a block's legal layouts fit in memory.

    A single cluster is never cut.
    """
    inner = prod(space.shape[OUTER:])
    ranks = space.axes["nodes"] * space.question.ranks_per_node
    cut = np.multiply.outer(space.axes["tp"], space.axes["cp"]).ravel()
    filled = [
        np.count_nonzero(has % (pp * cut) == 0)
        for has, pp in zip(ranks, space.axes["pp"], strict=True)
    ]
    clusters = space.clusters
    points = np.bincount(clusters, weights=filled, minlength=len(space.question.nodes)) * inner
    held = 0.0
    chosen: list[int] = []
    for cluster, more in enumerate(points.tolist()):
        if chosen and held + more > BLOCK:
            yield space.of(np.isin(clusters, chosen))
            held, chosen = 0.0, []
        held += more
        chosen.append(cluster)
    whole = len(chosen) == len(points)
    yield space if whole else space.of(np.isin(clusters, chosen))


def is_large(question: Question) -> bool:
    """Tell whether the layouts of a question are looked at in several blocks."""
    several = blocks(space_of(question))
    next(several)
    return next(several, None) is not None


def families(space: Space) -> tuple[ScheduleFamily, ...]:
    """Return the layouts of a space, sorted by what is legal of them."""
    found: dict[tuple[Schedule, Variant], dict[bool, list[Variant]]] = {}
    for schedule in space.schedules:
        for variant in space.variants:
            lowest = variant["zero"] == space.first["zero"]
            alike = found.setdefault((schedule, own_modes(variant)), {})
            alike.setdefault(lowest, []).append(variant)
    platform: Memo[Variant, Mapping[str, BoolArray]] = Memo()
    outer = {}
    for own, variant in {own_modes(variant): variant for variant in space.variants}.items():
        found_rules = platform.of(group_modes(variant), partial(_platform_rules, space, variant))
        outer[own] = {**found_rules, **_outer_rules(space, variant)}
    families: list[ScheduleFamily] = []
    for (schedule, own), alike in found.items():
        looked_at = {lowest: _looked_at(space, schedule, some[0]) for lowest, some in alike.items()}
        anywhere = np.logical_or.reduce(list(looked_at.values()))
        one = next(iter(alike.values()))[0]
        sorted_out = _sorted_out(space, outer[own], space.layout(schedule, one), anywhere)
        families += [
            _family(sorted_out, looked_at[lowest], schedule, tuple(some))
            for lowest, some in alike.items()
        ]
    return tuple(families)


def _looked_at(space: Space, schedule: Schedule, variant: Variant) -> BoolArray:
    """Return the outer degrees at which a variant makes a program of its own."""
    mask = space.runs(variant) & space.once(variant.changed(schedule=schedule))
    return np.broadcast_to(_outer(mask), _outer_shape(space))


def own_modes(variant: Variant) -> Variant:
    """Return the modes of a variant on which its operations and its legality depend."""
    shared = dict.fromkeys(SHARED_KNOBS)
    if repeated_layers(str(variant["recompute"])) is not None:
        del shared["recompute"]
    return variant.changed(**shared)


def block_modes(variant: Variant) -> Variant:
    """Return the modes of a variant on which its operations depend, not what its stages hold."""
    again = repeated_layers(str(variant["recompute"])) is not None
    changed = {"recompute": "full:1"} if again else {}
    return variant.changed(pipeline_layout=None, stage_split=None, **changed)


def group_modes(variant: Variant) -> Variant:
    """Return the modes of a variant on which its groups of ranks depend."""
    return Variant(**{name: variant[name] for name in GROUP_KNOBS})


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
        places.append((np.cumsum(used) - 1).astype(PLACE))
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

    A part has at most `most` points, chunks aside, unless a single cluster has more. All clusters
    of a part have domains of one size.
    """
    space, families = trimmed(space, found)
    places = np.bincount(space.clusters, minlength=len(space.question.nodes))
    points = places * (prod(space.shape[1:]) // len(space.axes["vpp"]))
    sizes = [*map(space.question.platform.domain_of, space.question.nodes), 0]
    start = 0
    for end in range(1, len(points) + 1):
        few = end < len(points) and points[start : end + 1].sum() <= most
        if few and sizes[end] == sizes[start]:
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
    found = (
        _least_broken(space, schedule, variant)
        for schedule in space.schedules
        if len(space.chunks(schedule))
        for variant in space.variants
    )
    return min(found, key=len, default=())


def _least_broken(space: Space, schedule: Schedule, variant: Variant) -> tuple[str, ...]:
    question = space.question
    platform = _platform_rules(space, variant)
    rules = (*platform.values(), *_outer_rules(space, variant).values())
    outer = np.unravel_index(
        np.argmin(sum(rules, np.zeros(_outer_shape(space), dtype=np.int64))), _outer_shape(space)
    )
    layout = _with_inner(space, space.layout(schedule, variant), tuple(map(np.atleast_1d, outer)))
    grid = grid_of(layout)
    routed = _routed(question, grid, OF_EXPERTS)
    inner = [reason.broken for reason in (*reasons(question.model, grid), *routed)]
    faults = sum(inner, np.zeros(grid.shape, dtype=np.int64))
    index = tuple(int(i) for i in np.unravel_index(np.argmin(faults), grid.shape))
    at = grid.at(index)
    alone = grid_of(grid.layout_at(index))
    refused = (
        *_refused(question, alone, int(space.axes["nodes"][outer[0]])),
        *_routed(question, alone, (*GROUPS, *OF_EXPERTS)),
    )
    broken = first_causes((*refused, *reasons(question.model, alone)))
    return tuple(reason.words(at) for reason in broken)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SortedOut:
    """The legal layouts at some outer degrees; `rejected` by rule and by place among these degrees.

    `inner`: points at each of the outer degrees.
    """

    space: Space
    legal: Points
    rejected: Mapping[str, IntArray]
    inner: int


def _sorted_out(
    space: Space, outer_rules: Mapping[str, BoolArray], layout: Layout, looked_at: BoolArray
) -> _SortedOut:
    """Return what is legal of a schedule in some modes at the outer degrees looked at."""
    shape, chunks = _outer_shape(space), space.chunks(layout.schedule)
    inner = len(space.axes["ep"]) * len(chunks) * len(space.axes["micro_batch"])
    rejected: dict[str, IntArray] = {}
    left = looked_at.copy()
    for rule, broken in outer_rules.items():
        out = left & broken
        if out.any():
            rejected[rule] = inner * out.astype(np.int64)
            left &= ~out
    legal: list[tuple[IntArray, ...]] = [(np.zeros(0, dtype=PLACE),) * DIMENSIONS]
    outer = np.nonzero(left)
    at_once = max(AT_ONCE // max(inner, 1), 1)
    for start in range(0, len(outer[0]), at_once):
        part = tuple(axis[start : start + at_once] for axis in outer)
        lost, places = _inner_legal(space, layout, part)
        legal.append(places)
        for rule, count in lost.items():
            rejected.setdefault(rule, np.zeros(shape, dtype=np.int64))[part] += count
    index = tuple(np.concatenate(column) for column in zip(*legal, strict=True))
    points = Points(shape=space.shape, index=index)
    return _SortedOut(space=space, legal=points, rejected=rejected, inner=inner)


def _family(
    found: _SortedOut, looked_at: BoolArray, schedule: Schedule, variants: tuple[Variant, ...]
) -> ScheduleFamily:
    """Return what of it variants look at."""
    space, legal = found.space, found.legal
    mine = looked_at[legal.index[:OUTER]]
    legal = legal if mine.all() else some(legal, mine)
    rejected = {
        rule: _by_cluster(space, (count * looked_at).sum(axis=(1, 2)))
        for rule, count in found.rejected.items()
    }
    return ScheduleFamily(
        schedule=schedule,
        variants=variants,
        legal=legal,
        legal_by_cluster=_by_cluster(space, np.bincount(legal.index[0], minlength=space.shape[0])),
        considered=found.inner * _by_cluster(space, np.count_nonzero(looked_at, axis=(1, 2))),
        rejected={rule: count for rule, count in rejected.items() if count.any()},
    )


def _inner_legal(
    space: Space, layout: Layout, outer: tuple[IntArray, ...]
) -> tuple[Mapping[str, IntArray], tuple[IntArray, ...]]:
    """Return how many layouts each rule rejects at some outer degrees, and where legal ones are."""
    lost: dict[str, IntArray] = {}
    chunks = space.chunks(layout.schedule)
    grid = grid_of(_with_inner(space, layout, outer))
    found = (*reasons(space.question.model, grid), *_routed(space.question, grid, OF_EXPERTS))
    rules = [(reason.rule, reason.broken) for reason in found]
    rules.append(("chunks", space.uneven_chunks(grid)))
    rules.append(("same program", space.seen_before(grid)))
    rules.append(("same order", space.same_order(layout.schedule, grid.micro_batches)))
    # Rules mind experts, or how micro-batches are cut, never both: what is left is a product.
    rows, ep, *cut = grid.shape
    experts, cuts = np.ones((rows, ep, 1, 1), np.bool_), np.ones((rows, 1, *cut), np.bool_)
    for rule, broken in rules:
        before = _of_each(experts) * _of_each(cuts)
        # (Where there is one expert degree, all rules are of the second kind.)
        if broken.ndim == len(grid.shape) and broken.shape[1] > 1:
            assert broken.shape[2:] == (1, 1), rule
            experts &= ~broken
        else:
            cuts &= ~broken
        count = before - _of_each(experts) * _of_each(cuts)
        if count.any():
            lost[rule] = lost.get(rule, 0) + count
    left = experts & cuts
    count = _of_each(left)
    # The inner places are few: telling one's degrees is looking them up.
    inner = np.indices(left.shape[1:]).astype(PLACE).reshape(3, -1)
    place = np.flatnonzero(left) % max(inner.shape[1], 1)
    columns = (inner[0], chunks.astype(PLACE)[inner[1]], inner[2])
    return lost, (
        *(np.repeat(axis.astype(PLACE), count) for axis in outer),
        *(axis.take(place) for axis in columns),
    )


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
    return {reason.rule: _outer(reason.broken) for reason in found if reason.rule not in _OF_CHUNKS}


def _platform_rules(space: Space, variant: Variant) -> Mapping[str, BoolArray]:
    """Return the masks of layouts that the platform refuses, rule by rule, over all clusters."""
    question = space.question
    layout = space.layout(space.schedules[0], variant)
    found: dict[str, BoolArray] = {}
    for nodes in distinct(space.axes["nodes"]).tolist():
        here = space.axes["nodes"] == nodes
        dp = space.dp[here] if space.dp.ndim else space.dp
        # No platform minds the inner degrees.
        some = replace(layout, pp=space.column("pp")[here], dp=dp, ep=1, vpp=1, micro_batch=1)
        grid = grid_of(some)
        for reason in _refused(question, grid, nodes):
            broken = found.setdefault(reason.rule, np.zeros(_outer_shape(space), dtype=np.bool_))
            broken[here] |= _outer(reason.broken)
    whole = grid_of(replace(layout, dp=space.dp, ep=1, vpp=1, micro_batch=1))
    for reason in _routed(question, whole, GROUPS):
        found[reason.rule] = np.broadcast_to(_outer(reason.broken), _outer_shape(space))
    return found


def _refused(question: Question, grid: Grid, nodes: int) -> tuple[Reason, ...]:
    platform = platform_answer(
        question.platform,
        grid,
        nodes=nodes,
        logical_size=question.logical_size,
        whole_nodes=question.whole_nodes,
    )
    return (*_not_run(question), *platform.refused)


def _routed(question: Question, grid: Grid, axes: tuple[str, ...]) -> tuple[Reason, ...]:
    found = group_reasons(question.platform, grid, axes, logical_size=question.logical_size)
    return tuple(found)


def _not_run(question: Question) -> Iterator[Reason]:
    """Yield a reason against every layout where the stack refuses the model or a settled knob."""
    refused = question.refused
    if refused:
        yield Reason(rule="stack", broken=np.array(True), words=lambda _: "; ".join(refused))


def _outer_shape(space: Space) -> tuple[int, ...]:
    return space.shape[:OUTER]


def _by_cluster(space: Space, count: IntArray) -> IntArray:
    """Return the number of layouts on each cluster, from that at each place of the first axis."""
    clusters = np.bincount(space.clusters, weights=count, minlength=len(space.question.nodes))
    return clusters.astype(np.int64)


def _outer(array: NDArray[AnyNumber]) -> NDArray[AnyNumber]:
    """Return an array over the outer axes alone; the inner ones have one value."""
    full = array.reshape((1,) * (DIMENSIONS - array.ndim) + array.shape)
    return full.reshape(full.shape[:OUTER])
