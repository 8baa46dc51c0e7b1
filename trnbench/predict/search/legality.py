"""Valid layouts of a space, and the rule that rejects each other layout, counted by cluster.

Most points of a large space do not fill their cluster, or break a rule at any micro-batch size. So
the degrees that decide the number of ranks (nodes, pp, tp, cp) are checked first, with the smallest
value of each other degree: a rule that is broken there is broken at all larger values. The other
degrees are then checked only where the first check passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, numbered, true_in_rows
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout, Schedule
from trnbench.facts.workload.recompute import repeated_layers
from trnbench.machine.layout_rules import OF_EXPERTS, group_reasons, platform_refusals
from trnbench.machine.layout_rules import OUTER as GROUPS
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.rows import Rows, each_of, together
from trnbench.predict.search.space import DIMENSIONS, Space, Variant
from trnbench.program.grid import Grid, grid_of
from trnbench.program.legality import reasons
from trnbench.program.reasons import Reason, first_causes
from trnbench.program.step import SHARED_KNOBS

OUTER = 3
"""Leading axes of the grid that decide the number of ranks."""
AT_ONCE = 1 << 20
"""Points whose rules are evaluated together."""
PLACE: type[Any] = np.int32
"""Index type along one axis: narrow, as every layout has a row of indices."""

GROUP_KNOBS = ("expert_tp", "shard", "context_parallel")
"""Modes that decide which ranks exchange data with each other."""
REMEMBERED = 4096
"""Variants whose modes are remembered, which are asked for repeatedly."""
_OF_CHUNKS = ("schedule", "stages drawn")
"""Rules that a larger number of chunks may satisfy: not checked on outer degrees."""

AnyNumber = TypeVar("AnyNumber", bound=np.generic)


class Looks(Record, eq=False):
    """Variants that look at the same outer degrees of a family, with counts of their layouts."""

    variants: tuple[Variant, ...]
    at: BoolArray
    """Outer degrees that these variants look at."""
    everywhere: bool
    """True where `at` covers every valid layout of the family."""
    legal: IntArray
    """Valid layouts on each cluster, for one variant."""
    considered: IntArray
    """All layouts on each cluster, for one variant."""
    rejected: Mapping[str, IntArray]
    """Rule -> layouts on each cluster that break this rule first."""


class _Outer(Record, eq=False):
    """Outer degrees that some variants look at: those that break a rule, and those left."""

    broken: Mapping[str, FloatArray]
    """Rule -> 1 at the outer degrees that break it first, else 0."""
    flat: IntArray
    """Flat places of the outer degrees that break none."""
    index: tuple[IntArray, ...]
    """Places of the same along each axis."""
    first: IntArray
    """Among these, one of each kind with the same valid inner degrees."""
    kind: IntArray


class ScheduleFamily(Record, eq=False):
    """Layouts of a schedule for variants with the same valid layouts, sorted by cluster."""

    schedule: Schedule
    legal: Rows
    looks: tuple[Looks, ...]


def families(space: Space) -> tuple[ScheduleFamily, ...]:
    """Valid layouts of a space for every schedule and variant, with counts of the rejected ones."""
    alike_variants: dict[tuple[Schedule, Variant], dict[bool, list[Variant]]] = {}
    for schedule in space.schedules:
        for variant in space.variants:
            # ZeRO stages above the lowest skip dp = 1, so their masks differ from the lowest
            # stage's.
            lowest = variant["zero"] == space.first["zero"]
            alike = alike_variants.setdefault((schedule, own_modes(variant)), {})
            alike.setdefault(lowest, []).append(variant)
    # Rules of the platform depend on groups of ranks alone, rules of division on a program's modes.
    platform: Memo[Variant, Mapping[str, BoolArray]] = Memo()
    outer = {}
    for own, variant in {own_modes(variant): variant for variant in space.variants}.items():
        found_rules = platform.of(group_modes(variant), partial(_platform_rules, space, variant))
        outer[own] = {**found_rules, **_outer_rules(space, variant)}
    families: list[ScheduleFamily] = []
    known: Memo[tuple[Variant, bytes], _Outer] = Memo()
    for (schedule, own), alike in alike_variants.items():
        looked_at = [(tuple(some), _looked_at(space, schedule, some[0])) for some in alike.values()]
        layout = space.layout(schedule, looked_at[0][0][0])
        # Schedules mostly look at the same outer degrees.
        any_of = np.logical_or.reduce([at for _, at in looked_at])
        left = known.of((own, any_of.tobytes()), partial(_outer_left, space, outer[own], any_of))
        families.append(_sorted_out(space, left, layout, looked_at))
    return tuple(families)


def _looked_at(space: Space, schedule: Schedule, variant: Variant) -> BoolArray:
    mask = space.runs(variant) & space.once(variant.changed(schedule=schedule))
    return np.broadcast_to(_outer(mask), _outer_shape(space))


@lru_cache(maxsize=REMEMBERED)
def own_modes(variant: Variant) -> Variant:
    """Modes of a variant on which operations and validity depend."""
    shared = dict.fromkeys(SHARED_KNOBS)
    if repeated_layers(str(variant["recompute"])) is not None:
        del shared["recompute"]
    return variant.changed(**shared)


@lru_cache(maxsize=REMEMBERED)
def block_modes(variant: Variant) -> Variant:
    """Modes of a variant on which operations depend, but not the contents of stages."""
    again = repeated_layers(str(variant["recompute"])) is not None
    changed = {"recompute": "full:1"} if again else {}
    return variant.changed(pipeline_layout=None, stage_split=None, **changed)


@lru_cache(maxsize=REMEMBERED)
def group_modes(variant: Variant) -> Variant:
    """Modes of a variant on which groups of ranks depend."""
    return Variant(**{name: variant[name] for name in GROUP_KNOBS})


def nearest_refusal(space: Space) -> tuple[str, ...]:
    """Reasons against the layout of a space that breaks the fewest rules, as text."""
    broken = (
        _least_broken(space, schedule, variant)
        for schedule in space.schedules
        if len(space.chunks(schedule))
        for variant in space.variants
    )
    return min(broken, key=len, default=())


def _least_broken(space: Space, schedule: Schedule, variant: Variant) -> tuple[str, ...]:
    question = space.question
    platform = _platform_rules(space, variant)
    rules = (*platform.values(), *_outer_rules(space, variant).values())
    # First the outer degrees with the fewest broken rules, then the inner ones there.
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


def _outer_left(space: Space, rules: Mapping[str, BoolArray], looked_at: BoolArray) -> _Outer:
    """Check the outer degrees that are looked at."""
    # A layout counts for the first rule that it breaks, so later rules see what is left.
    left, broken = looked_at.copy(), {}
    for rule, mask in rules.items():
        out = left & mask
        if out.any():
            broken[rule] = out.astype(np.float64)
            left &= ~out
    flat = np.flatnonzero(left)
    index = np.unravel_index(flat, left.shape)
    first, kind = _kinds(space, index)
    return _Outer(broken=broken, flat=flat, index=index, first=first, kind=kind)


def _sorted_out(
    space: Space,
    outer: _Outer,
    layout: Layout,
    looked_at: Sequence[tuple[tuple[Variant, ...], BoolArray]],
) -> ScheduleFamily:
    """Check one schedule with one choice of modes, for variants at their outer degrees.

    Checked once for all variants of the family; each counts only the part it looks at.
    """
    chunks, first = space.chunks(layout.schedule), outer.first
    inner = len(space.axes["ep"]) * len(chunks) * len(space.axes["micro_batch"])
    lost_of_kind: dict[str, IntArray] = {}
    parts: list[Rows] = []
    # Rows of outer degrees with all their inner ones, as many as a bounded amount of memory holds.
    at_once = max(AT_ONCE // max(inner, 1), 1)
    for start in range(0, len(first), at_once):
        part = first[start : start + at_once]
        lost, legal = _inner_legal(space, layout, tuple(axis[part] for axis in outer.index))
        parts.append(replace(legal, index=(legal.index[0] + start, *legal.index[1:])))
        for rule, count in lost.items():
            of_kind = lost_of_kind.setdefault(rule, np.zeros(len(first), dtype=np.int64))
            of_kind[start : start + at_once] += count
    inner_rows = together((len(first), *space.shape[OUTER:]), parts)
    of_kind = np.bincount(inner_rows.index[0], weights=inner_rows.count, minlength=len(first))

    # Rules, and layouts rejected at each of the outer degrees, or of those left.
    rejected: list[tuple[str, FloatArray | IntArray, int]]
    rejected = [(rule, at, inner) for rule, at in outer.broken.items()]
    lost_at = ((rule, lost.take(outer.kind)) for rule, lost in lost_of_kind.items() if lost.any())
    rejected += [(rule, at, 1) for rule, at in lost_at]
    legal_at = of_kind.take(outer.kind)
    return ScheduleFamily(
        schedule=layout.schedule,
        legal=_of_outer(space.shape, outer, inner_rows),
        looks=tuple(_looks(space, outer, look, legal_at, rejected) for look in looked_at),
    )


def _looks(
    space: Space,
    outer: _Outer,
    look: tuple[tuple[Variant, ...], BoolArray],
    legal_at: IntArray,
    rejected: Sequence[tuple[str, FloatArray | IntArray, int]],
) -> Looks:
    """Counts of variants that look at some outer degrees: each layout is valid or breaks a rule."""
    variants, at = look
    # Whole numbers, as floats: these are added up several times as fast.
    seen = [] if at.all() else [np.ascontiguousarray(at, dtype=np.float64)]
    seen_left = [one.ravel().take(outer.flat) for one in seen]
    clusters, clusters_left = space.clusters, space.clusters.take(outer.index[0])
    sums = ",".join(["ijk"] * (1 + len(seen))) + "->i"

    def counted(count: FloatArray | IntArray) -> IntArray:
        if count.ndim == 1:
            where, held = clusters_left, reduce(np.multiply, seen_left, count)
        else:
            where, held = clusters, np.einsum(sums, count, *seen)
        return np.bincount(where, held, minlength=len(space.question.nodes)).astype(np.int64)

    legal = counted(legal_at)
    each: dict[str, IntArray] = {}
    for rule, count, times in rejected:
        each[rule] = each.get(rule, 0) + times * counted(count)
    return Looks(
        variants=variants,
        at=at,
        everywhere=bool(legal.sum() == legal_at.sum()),
        legal=legal,
        considered=sum(each.values(), legal),
        rejected={rule: count for rule, count in each.items() if count.any()},
    )


def _inner_legal(
    space: Space, layout: Layout, outer: tuple[IntArray, ...]
) -> tuple[Mapping[str, IntArray], Rows]:
    """Check the inner degrees at some outer ones.

    Results: layouts rejected by each rule, per outer degree, and the valid layouts, with the number
    of the outer degree as the first place of their rows.
    """
    lost: dict[str, IntArray] = {}
    chunks = space.chunks(layout.schedule)
    grid = grid_of(_with_inner(space, layout, outer))
    question = space.question
    against = (*reasons(question.model, grid), *_routed(question, grid, OF_EXPERTS))
    rules = [(reason.rule, reason.broken) for reason in against]
    rules.append(("chunks", space.uneven_chunks(grid)))
    rules.append(("same program", space.seen_before(grid)))
    rules.append(("same order", space.same_order(layout.schedule, grid.micro_batches)))
    # A rule concerns either experts or the cut into micro-batches, never both. So two small masks
    # replace one over [ep, vpp, micro_batch], and the count of valid layouts is a product of
    # counts.
    rows, ep, *cut = grid.shape
    experts, cuts = np.ones((rows, ep, 1, 1), np.bool_), np.ones((rows, 1, *cut), np.bool_)
    of_experts, of_cuts = _of_each(experts), _of_each(cuts)
    count = of_experts * of_cuts
    for rule, broken in rules:
        if not broken.any():
            continue
        # (Where there is one expert degree, all rules are of the second kind.)
        if broken.ndim == len(grid.shape) and broken.shape[1] > 1:
            assert broken.shape[2:] == (1, 1), rule
            experts &= ~broken
            of_experts = _of_each(experts)
        else:
            cuts &= ~broken
            of_cuts = _of_each(cuts)
        # Valid layouts that this rule takes away are its rejections: earlier rules had the others.
        before, count = count, of_experts * of_cuts
        lost[rule] = lost.get(rule, 0) + (before - count)
    left = experts & cuts
    held = true_in_rows(left)
    at_outer, at_ep, at_chunks = (axis.astype(PLACE) for axis in np.nonzero(held))
    count = held[held > 0]
    return lost, Rows(
        shape=left.shape,
        index=(at_outer, at_ep, chunks.astype(PLACE)[at_chunks]),
        start=np.cumsum(count) - count,
        count=count,
        sizes=(np.flatnonzero(left) % left.shape[-1]).astype(PLACE),
    )


def _kinds(space: Space, outer: tuple[IntArray, ...]) -> tuple[IntArray, IntArray]:
    """A row of each kind of outer degrees, and the kind of each row.

    Rows of a kind have the same valid inner degrees. Without experts these follow from the stages
    and the data ranks: only those share out layers and micro-batches.
    """
    rows = np.arange(len(outer[0]))
    if space.axes["ep"].tolist() != [1]:
        return rows, rows
    dp = np.broadcast_to(_outer(space.dp), _outer_shape(space))[outer]
    numbers, kind = numbered(space.axes["pp"][outer[0]] * (dp.max(initial=0) + 1) + dp)
    first = np.zeros(len(numbers), dtype=np.int64)
    first[kind] = rows
    return first, kind


def _of_outer(shape: tuple[int, ...], outer: _Outer, inner_rows: Rows) -> Rows:
    """Valid layouts of all outer degrees, from those of each kind of them."""
    of_kind = np.bincount(inner_rows.index[0], minlength=len(outer.first))
    many = of_kind[outer.kind]
    # Rows of a kind lie together; those of an outer degree are the ones of its kind.
    row = np.repeat((np.cumsum(of_kind) - of_kind)[outer.kind], many) + each_of(many)
    return Rows(
        shape=shape,
        index=(
            *(np.repeat(axis.astype(PLACE), many) for axis in outer.index),
            *(axis.take(row) for axis in inner_rows.index[1:]),
        ),
        start=inner_rows.start.take(row),
        count=inner_rows.count.take(row),
        sizes=inner_rows.sizes,
    )


def _of_each(mask: BoolArray) -> IntArray:
    return true_in_rows(mask.reshape(len(mask), -1))


def _with_inner(space: Space, layout: Layout, outer: tuple[IntArray, ...]) -> Layout:
    """Layouts [outer, ep, vpp, micro_batch] of some outer degrees with all inner ones."""
    return replace(
        _at_rows(space, layout, outer),
        ep=space.axes["ep"].reshape(1, -1, 1, 1),
        vpp=space.axes["vpp"][space.chunks(layout.schedule)].reshape(1, 1, -1, 1),
        micro_batch=space.axes["micro_batch"].reshape(1, 1, 1, -1),
    )


def _at_rows(space: Space, layout: Layout, outer: tuple[IntArray, ...]) -> Layout:
    """Layouts with some outer degrees along the first of four axes."""
    column = (-1, 1, 1, 1)
    dp = np.broadcast_to(_outer(space.dp), _outer_shape(space))[outer]
    return replace(
        layout,
        tp=space.axes["tp"][outer[1]].reshape(column),
        pp=space.axes["pp"][outer[0]].reshape(column),
        cp=space.axes["cp"][outer[2]].reshape(column),
        dp=dp.reshape(column),
    )


def _outer_rules(space: Space, variant: Variant) -> Mapping[str, BoolArray]:
    """Masks of outer degrees that break a rule of division, at the smallest inner degrees."""
    question = space.question
    layout = replace(
        space.layout(space.schedules[0], variant),
        ep=int(space.axes["ep"][0]),
        vpp=int(space.axes["vpp"][0]),
        micro_batch=int(space.axes["micro_batch"][0]),
    )
    rules = reasons(question.model, grid_of(layout))
    return {reason.rule: _outer(reason.broken) for reason in rules if reason.rule not in _OF_CHUNKS}


def _platform_rules(space: Space, variant: Variant) -> Mapping[str, BoolArray]:
    """Masks of layouts that the platform refuses, by rule, over all clusters."""
    question, shape = space.question, _outer_shape(space)
    # Rules of the platform do not depend on the inner degrees.
    layout = replace(space.layout(space.schedules[0], variant), ep=1, vpp=1, micro_batch=1)
    masks = {
        reason.rule: np.broadcast_to(_outer(reason.broken), shape)
        for reason in _refused(question, grid_of(layout), space.column("nodes"))
    }
    # Routing is checked only for groups that fill their cluster: these are few.
    left = np.ones(shape, dtype=np.bool_)
    for broken in masks.values():
        left &= ~broken
    rows = np.nonzero(left)
    if len(rows[0]):
        few = replace(_at_rows(space, layout, rows), ep=1, vpp=1, micro_batch=1)
        for reason in _routed(question, grid_of(few), GROUPS):
            masks[reason.rule] = np.zeros(shape, dtype=np.bool_)
            masks[reason.rule][rows] = reason.broken.ravel()
    return masks


def _refused(question: SearchQuestion, grid: Grid, nodes: int | IntArray) -> tuple[Reason, ...]:
    platform = platform_refusals(
        question.platform,
        grid,
        nodes=nodes,
        logical_size=question.logical_size,
        whole_nodes=question.whole_nodes,
    )
    return (*_not_run(question), *platform)


def _routed(question: SearchQuestion, grid: Grid, axes: tuple[str, ...]) -> tuple[Reason, ...]:
    refused = group_reasons(question.platform, grid, axes, logical_size=question.logical_size)
    return tuple(refused)


def _not_run(question: SearchQuestion) -> Iterator[Reason]:
    refused = question.refused
    if refused:
        yield Reason("stack", np.array(True), "; ".join(refused))


def _outer_shape(space: Space) -> tuple[int, ...]:
    return space.shape[:OUTER]


def _outer(array: NDArray[AnyNumber]) -> NDArray[AnyNumber]:
    full = array.reshape((1,) * (DIMENSIONS - array.ndim) + array.shape)
    # Inner axes have a single value here.
    return full.reshape(full.shape[:OUTER])
