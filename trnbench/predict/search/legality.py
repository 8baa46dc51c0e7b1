"""Valid layouts of a space, and the rule that rejects each other layout, counted by cluster.

Most points of a large space do not fill their cluster, or break a rule at any micro-batch size. So
the degrees that decide the number of ranks (nodes, pp, tp, cp) are checked first, with the smallest
value of each other degree: a rule that is broken there is broken at all larger values. The other
degrees are then checked only where the first check passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnbench.facts.arrays import BoolArray, IntArray, numbered, some, true_in_rows
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout, Schedule
from trnbench.facts.workload.recompute import repeated_layers
from trnbench.machine.layout_rules import OF_EXPERTS, group_reasons, platform_refusals
from trnbench.machine.layout_rules import OUTER as GROUPS
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.rows import Rows, each_of
from trnbench.predict.search.space import DIMENSIONS, RANK_AXES, Space, Variant
from trnbench.program.grid import Grid, grid_of
from trnbench.program.legality import reasons
from trnbench.program.reasons import Reason, first_causes
from trnbench.program.step import SHARED_KNOBS

OUTER = 3
"""Leading axes of the grid that decide the number of ranks."""
PLACE: type[Any] = np.int32
"""Index type along one axis: narrow, as every layout has a row of indices."""

GROUP_KNOBS = ("expert_tp", "shard", "context_parallel")
"""Modes that decide which ranks exchange data with each other."""
REMEMBERED = 4096
"""Variants whose modes are remembered, which are asked for repeatedly."""
_VALID = "valid"  # in place of a rule where none is broken
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


class _Listed(Record, eq=False):
    """Outer degrees, in order, without those that break the rule which most of them break.

    Most do not fill their cluster, so later rules are checked for few.
    """

    rest: str
    """The rule that all others break first; "" if there are no others."""
    flat: IntArray
    """Flat places along the outer axes."""
    clusters: IntArray
    degrees: Mapping[str, IntArray]
    broken: Mapping[str, BoolArray]
    """Other rules of the platform on degrees, and where they are broken."""


class _Outer(Record, eq=False):
    """Listed outer degrees that some variants look at: those that break a rule, and those left."""

    listed: _Listed
    rules: tuple[str, ...]
    first: IntArray
    """Number of the first rule that each of those listed breaks; of rules, where it breaks none."""
    left: IntArray
    """Numbers, among those listed, of those that break none."""
    of_kinds: Mapping[str, IntArray]
    """Degrees of one of each kind of those left; a kind has the same valid inner degrees."""
    kind: IntArray


class _Counts(Record, eq=False):
    """Layouts at each of the listed outer degrees, valid or by the rule that they break first."""

    rules: tuple[str, ...]
    inner: int  # layouts at one of the outer degrees
    at: IntArray  # [rule, outer degree]
    every: IntArray  # [rule, cluster]: their sums


_Look: TypeAlias = "tuple[tuple[Variant, ...], BoolArray, BoolArray]"
"""Variants, the outer degrees that they look at, and the same as a mask of those listed."""


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
    listed = _listed(space)
    degrees = listed.degrees
    # Rules of routing depend on groups of ranks alone, rules of division on a program's modes.
    routed: Memo[Variant, Mapping[str, BoolArray]] = Memo()
    rules = {}
    for own, variant in {own_modes(variant): variant for variant in space.variants}.items():
        of_groups = routed.of(
            group_modes(variant), partial(_routing_rules, space, variant, degrees)
        )
        of_division = _division_rules(space, variant, degrees)
        rules[own] = {**listed.broken, **of_groups, **of_division}
    families: list[ScheduleFamily] = []
    known: Memo[tuple[Variant, bytes], _Outer] = Memo()
    for (schedule, own), alike in alike_variants.items():
        looks: list[_Look] = []
        for variants in alike.values():
            at = _looked_at(space, schedule, variants[0])
            looks.append((tuple(variants), at, at.ravel().take(listed.flat)))
        # Schedules mostly look at the same outer degrees.
        any_of = np.logical_or.reduce([seen for _, _, seen in looks])
        outer = partial(_outer_left, space, listed, rules[own], any_of)
        layout = space.layout(schedule, looks[0][0][0])
        families.append(_sorted_out(space, known.of((own, any_of.tobytes()), outer), layout, looks))
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
    refused = np.zeros(_outer_shape(space), dtype=np.int64)
    for reason in _refused_anywhere(space):
        refused += _outer(reason.broken)
    # First the outer degrees with the fewest broken rules, then the inner ones there.
    outer = {variant: _fewest_broken(space, variant, refused) for variant in space.variants}
    broken = (
        _least_broken(space, space.layout(schedule, variant), outer[variant])
        for schedule in space.schedules
        if len(space.chunks(schedule))
        for variant in space.variants
    )
    return min(broken, key=len, default=())


def _fewest_broken(space: Space, variant: Variant, refused: IntArray) -> IntArray:
    """Flat place of the outer degrees with the fewest broken rules; `refused`: of the platform."""
    faults, filling = refused.copy(), np.flatnonzero(refused == 0)
    for broken in _division_rules(space, variant, {}).values():
        faults += _outer(broken)
    for broken in _routing_rules(space, variant, _degrees(space, filling)).values():
        faults.ravel()[filling] += broken
    return np.atleast_1d(np.argmin(faults))


def _least_broken(space: Space, layout: Layout, outer: IntArray) -> tuple[str, ...]:
    question, degrees = space.question, _degrees(space, outer)
    grid = grid_of(_with_inner(space, layout, degrees))
    faults = np.zeros(grid.shape, dtype=np.int64)
    for reason in (*reasons(question.model, grid), *_routed(question, grid, OF_EXPERTS)):
        faults += reason.broken
    index = tuple(int(i) for i in np.unravel_index(np.argmin(faults), grid.shape))
    at = grid.at(index)
    alone = grid_of(grid.layout_at(index))
    nodes = space.axes["nodes"][outer // prod(_outer_shape(space)[1:])]
    routed = _routed(question, alone, (*GROUPS, *OF_EXPERTS))
    refused = (*_refused(question, alone, int(nodes[0])), *routed)
    broken = first_causes((*refused, *reasons(question.model, alone)))
    return tuple(reason.words(at) for reason in broken)


def _listed(space: Space) -> _Listed:
    """List the outer degrees that do not break the platform's most frequent rule on degrees."""
    shape = _outer_shape(space)
    # A layout counts for the first rule that it breaks, so later rules see what is left.
    left, first = np.ones(shape, dtype=np.bool_), {"": np.zeros(shape, dtype=np.bool_)}
    for rule, broken in {one.rule: one.broken for one in _refused_anywhere(space)}.items():
        first[rule] = left & _outer(broken)
        left &= ~first[rule]
    rest = max(first, key=lambda rule: int(np.count_nonzero(first[rule])))
    flat = np.flatnonzero(~first.pop(rest))
    return _Listed(
        rest=rest,
        flat=flat,
        clusters=space.clusters.take(flat // prod(shape[1:])),
        degrees=_degrees(space, flat),
        broken={rule: broken.ravel().take(flat) for rule, broken in first.items()},
    )


def _outer_left(
    space: Space, listed: _Listed, rules: Mapping[str, BoolArray], looked_at: BoolArray
) -> _Outer:
    """Check the outer degrees that are looked at."""
    first = np.full(len(listed.flat), len(rules))
    for number, broken in reversed([*enumerate(rules.values())]):
        first[np.broadcast_to(broken.ravel(), first.shape)] = number
    left = np.flatnonzero((first == len(rules)) & looked_at)
    degrees = {name: values[left] for name, values in listed.degrees.items()}
    one, kind = _kinds(space, degrees)
    return _Outer(
        listed=listed,
        rules=(*rules,),
        first=first,
        left=left,
        of_kinds={name: values[one] for name, values in degrees.items()},
        kind=kind,
    )


def _sorted_out(
    space: Space, outer: _Outer, layout: Layout, looks: Sequence[_Look]
) -> ScheduleFamily:
    """Check one schedule with one choice of modes, for variants at their outer degrees.

    Checked once for all variants of the family; each counts only the part it looks at.
    """
    listed, (of_kind, legal) = outer.listed, _inner_legal(space, layout, outer.of_kinds)
    rules, inner = (*dict.fromkeys((*outer.rules, *of_kind)),), prod(legal.shape[1:])
    count = np.zeros((len(rules), len(listed.flat)), dtype=np.int64)
    count[outer.first, np.arange(len(listed.flat))] = inner
    # What breaks no rule on outer degrees has its valid layouts, and rules on inner degrees.
    count[len(outer.rules)] = 0
    for rule, of_one in of_kind.items():
        count[rules.index(rule), outer.left] = of_one.take(outer.kind)
    every = _by_cluster(space, count, listed.clusters)
    counts = _Counts(rules=rules, inner=inner, at=count, every=every)
    return ScheduleFamily(
        schedule=layout.schedule,
        legal=_of_outer(space, outer, legal),
        looks=tuple(_looks(space, listed, counts, look) for look in looks),
    )


def _looks(space: Space, listed: _Listed, counts: _Counts, look: _Look) -> Looks:
    """Counts of variants that look at some outer degrees: each layout is valid or breaks a rule."""
    variants, at, seen = look
    unseen = np.flatnonzero(~seen)  # mostly few
    few = _by_cluster(space, counts.at.take(unseen, axis=1), listed.clusters.take(unseen))
    each = dict(zip(counts.rules, counts.every - few, strict=True))
    looked_at = true_in_rows(at.reshape(len(at), -1))[None, :]
    considered = counts.inner * _by_cluster(space, looked_at, space.clusters)[0]
    each[listed.rest] = considered - sum(each.values())
    legal = each.pop(_VALID)
    return Looks(
        variants=variants,
        at=at,
        everywhere=int(legal.sum()) == int(counts.every[counts.rules.index(_VALID)].sum()),
        legal=legal,
        considered=considered,
        rejected={rule: count for rule, count in each.items() if count.any()},
    )


def _by_cluster(space: Space, count: IntArray, clusters: IntArray) -> IntArray:
    """Sums [rule, cluster] of counts [rule, place], given the cluster of each place in order."""
    total = np.zeros((len(count), len(space.question.nodes)), dtype=np.int64)
    bounds = np.searchsorted(clusters, np.arange(total.shape[1] + 1))
    held = np.flatnonzero(bounds[1:] > bounds[:-1])
    if held.size:
        total[:, held] = np.add.reduceat(count, bounds[held], axis=1)
    return total


def _inner_legal(
    space: Space, layout: Layout, degrees: Mapping[str, IntArray]
) -> tuple[Mapping[str, IntArray], Rows]:
    """Check the inner degrees at some outer ones.

    Results: valid layouts and those rejected by each rule, per outer degree, and the valid layouts,
    with the number of the outer degree as the first place of their rows.
    """
    question, grid = space.question, grid_of(_with_inner(space, layout, degrees))
    against = (*reasons(question.model, grid), *_routed(question, grid, OF_EXPERTS))
    rules = [(reason.rule, reason.broken) for reason in against]
    rules.append(("chunks", space.uneven_chunks(grid)))
    rules.append(("same program", space.seen_before(grid)))
    rules.append(("same order", space.same_order(grid)))
    # A rule mostly concerns either experts and chunks or micro-batches. So two small masks replace
    # one over all of these; a rule that joins them makes the second one as large.
    rows, *ways, sizes = grid.shape
    valid, cut = np.ones((rows, *ways), np.bool_), np.ones((rows, 1, 1, sizes), np.bool_)
    held = true_in_rows(cut)
    count, counts = (valid * held).sum(axis=(1, 2)), {_VALID: np.zeros(rows, dtype=np.int64)}
    for rule, broken in rules:
        if not some(broken):
            continue
        if broken.shape[-1:] in ((), (1,)):
            valid &= ~(broken[..., 0] if broken.ndim else broken)
        else:
            cut = cut & ~broken
            held = true_in_rows(cut)
        # Valid layouts that this rule takes away are its rejections: earlier rules had the others.
        before, count = count, (valid * held).sum(axis=(1, 2))
        counts[rule] = counts.get(rule, 0) + (before - count)
    counts[_VALID] = count
    valid &= held > 0
    # Rows that differ in chunks or experts alone mostly share their sizes.
    shared = tuple(axis for axis in (1, 2) if held.shape[axis] == 1)
    used = np.logical_or.reduce(valid, axis=shared, keepdims=True)
    cut, held = cut & used[..., None], held * used
    start = (np.cumsum(held) - held.ravel()).reshape(held.shape)
    at = np.unravel_index(np.flatnonzero(valid), valid.shape)
    at_outer, at_ep, at_chunks = (axis.astype(PLACE) for axis in at)
    return counts, Rows(
        shape=grid.shape,
        index=(at_outer, at_ep, space.chunks(layout.schedule).astype(PLACE)[at_chunks]),
        start=np.broadcast_to(start, valid.shape)[at],
        count=np.broadcast_to(held, valid.shape)[at],
        sizes=(np.flatnonzero(cut) % sizes).astype(PLACE),
    )


def _kinds(space: Space, degrees: Mapping[str, IntArray]) -> tuple[IntArray, IntArray]:
    """A row of each kind of outer degrees, and the kind of each row.

    Rows of a kind have the same valid inner degrees. Without experts these follow from the stages
    and the data ranks: only those share out layers and micro-batches.
    """
    rows = np.arange(len(degrees["pp"]))
    if not rows.size or space.axes["ep"].tolist() != [1]:
        return rows, rows
    pp, dp = degrees["pp"].ravel(), degrees["dp"].ravel()
    numbers, kind = numbered(pp * (dp.max() + 1) + dp)
    first = np.zeros(len(numbers), dtype=np.int64)
    first[kind] = rows
    return first, kind


def _of_outer(space: Space, outer: _Outer, of_kinds: Rows) -> Rows:
    """Valid layouts of all outer degrees, from those of each kind of them."""
    of_kind = np.bincount(of_kinds.index[0], minlength=of_kinds.shape[0])
    many = of_kind[outer.kind]
    # Rows of a kind lie together; those of an outer degree are the ones of its kind.
    row = np.repeat((np.cumsum(of_kind) - of_kind)[outer.kind], many) + each_of(many)
    at = np.unravel_index(outer.listed.flat.take(outer.left), _outer_shape(space))
    return Rows(
        shape=space.shape,
        index=(
            *(np.repeat(axis.astype(PLACE), many) for axis in at),
            *(axis.take(row) for axis in of_kinds.index[1:]),
        ),
        start=of_kinds.start.take(row),
        count=of_kinds.count.take(row),
        sizes=of_kinds.sizes,
    )


def _with_inner(space: Space, layout: Layout, degrees: Mapping[str, IntArray]) -> Layout:
    """Layouts [outer, ep, vpp, micro_batch] of some outer degrees with all inner ones."""
    return replace(
        layout,
        **degrees,
        ep=space.axes["ep"].reshape(1, -1, 1, 1),
        vpp=space.axes["vpp"][space.chunks(layout.schedule)].reshape(1, 1, -1, 1),
        micro_batch=space.axes["micro_batch"].reshape(1, 1, 1, -1),
    )


def _degrees(space: Space, flat: IntArray) -> Mapping[str, IntArray]:
    """Degrees that decide the number of ranks, at flat places, along the first of four axes."""
    shape = _outer_shape(space)
    dp = np.broadcast_to(_outer(space.dp), shape).ravel().take(flat)
    at = zip(RANK_AXES[1:], np.unravel_index(flat, shape), strict=True)
    others = {str(name): space.axes[name].take(places) for name, places in at}
    return {name: of.reshape(-1, 1, 1, 1) for name, of in (("dp", dp), *others.items())}


def _division_rules(
    space: Space, variant: Variant, outer: Mapping[str, IntArray]
) -> Mapping[str, BoolArray]:
    """Masks of `outer` degrees, or of all, that break a rule of division at any inner ones."""
    layout = replace(
        space.layout(space.schedules[0], variant),
        **outer,
        ep=int(space.axes["ep"][0]),
        vpp=int(space.axes["vpp"][0]),
        micro_batch=int(space.axes["micro_batch"][0]),
    )
    rules = reasons(space.question.model, grid_of(layout))
    return {reason.rule: reason.broken for reason in rules if reason.rule not in _OF_CHUNKS}


def _routing_rules(
    space: Space, variant: Variant, degrees: Mapping[str, IntArray]
) -> Mapping[str, BoolArray]:
    """Masks of outer degrees with groups of ranks that cannot be routed, by rule."""
    layout = space.layout(space.schedules[0], variant)
    grid = grid_of(replace(layout, **degrees, ep=1, vpp=1, micro_batch=1))
    found = _routed(space.question, grid, GROUPS)
    return {reason.rule: reason.broken.ravel() for reason in found}


def _refused_anywhere(space: Space) -> tuple[Reason, ...]:
    """Rules of the platform on degrees that layouts of a space break, over all clusters."""
    # They do not depend on the inner degrees, nor on the modes that a search tries.
    layout = replace(space.layout(space.schedules[0], space.first), ep=1, vpp=1, micro_batch=1)
    return _refused(space.question, grid_of(layout), space.column("nodes"))


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
