"""Layouts that a platform refuses, and groups of ranks that its software cannot route.

Groups inside an instance have to be blocks of its torus: unbroken stretches of places along every
axis, round the wrap if need be (one chip, two neighbours, a row, a column, a rectangle). Groups
over several instances hold the same ranks on each of them, and are never refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np

from trnbench.facts.arrays import BoolArray, IntArray, distinct, some, uneven
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.fabric import Torus
from trnbench.facts.hardware.instance import LegalDegrees, Platform
from trnbench.facts.workload.choices import Dispatcher, neighbours_of
from trnbench.machine.legality import cluster_verdict
from trnbench.machine.rank_groups import MEGATRON, groups_along, stride_along
from trnbench.program.grid import SHARDED, Grid
from trnbench.program.reasons import FEW, Reason, Scalars, divisors_near
from trnbench.program.schedule import splits_backward

OUTER = ("tp", "cp", "data")
"""Axes whose groups do not depend on expert parallelism."""
OF_EXPERTS = ("ep", "expert_data")
_NAMES: Mapping[str, str] = {
    "tp": "tensor",
    "cp": "context",
    "cp_inside": "context",
    "cp_outside": "context ring",
    "data": "data",
    "ep": "expert",
    "expert_data": "expert data",
    "shard": "shard",
    "expert_shard": "expert shard",
    "copies": "copy",
}


def group_reasons(
    platform: Platform, grid: Grid, axes: tuple[str, ...], *, logical_size: int | None = None
) -> Iterator[Reason]:
    """Rules on groups along these axes that cannot be routed, one reason an axis."""
    if platform.instance.routing is None:
        return
    for axis in (own for whole in axes for own in _in_use(grid, whole)):
        asked = grid.ep > 1 if axis in (*OF_EXPERTS, "expert_shard") else np.True_
        if not some(asked):
            continue
        broken = _unroutable(platform, grid, axis, logical_size) & asked
        if some(broken):
            yield _reason(platform, axis, broken, logical_size, grid)


def _in_use(grid: Grid, axis: str) -> tuple[str, ...]:
    """Axes of the exchanges along one axis: a ring and its groups, a shard group and its copies."""
    if axis == "cp" and neighbours_of(grid.context_parallel) is not None:
        return ("cp_inside", "cp_outside")
    if grid.shard is None or axis not in SHARDED.values():
        return (axis,)
    return (grid.shard_axis(axis), *(("copies",) if axis == "data" else ()))


def _unroutable(platform: Platform, grid: Grid, axis: str, logical_size: int | None) -> BoolArray:
    ranks, stride = grid.ranks(axis), stride_along(axis, grid, MEGATRON)
    in_instance = platform.instance.chips * platform.chip.ranks(logical_size)
    inside = (ranks > 1) & (ranks * stride <= in_instance)
    inside &= ~uneven(ranks, 1) & ~uneven(stride, 1)
    ranks, stride = np.broadcast_arrays(ranks, stride)
    # Grids have few kinds of groups: each kind is asked about once, then spread over the grid.
    kind = (ranks[inside] * in_instance + stride[inside]).astype(np.int64)
    unroutable = np.zeros(kind.max(initial=0) + 1, dtype=np.bool_)
    unroutable[kind] = True
    kinds = np.flatnonzero(unroutable).tolist()
    groups = [divmod(one, in_instance) for one in kinds]
    unroutable[kinds] = np.logical_not(_routes(platform, logical_size, groups))
    bad = np.zeros(ranks.shape, dtype=np.bool_)
    bad[inside] = unroutable[kind]
    return bad


def _reason(
    platform: Platform,
    axis: str,
    broken: BoolArray,
    logical_size: int | None,
    grid: Grid,
) -> Reason:
    name, what = platform.instance.name, _NAMES[axis]

    def words(at: Scalars) -> str:
        ranks, stride = _groups(at, grid)[axis]
        near = ", ".join(_near(platform, at, logical_size, grid))
        remedy = f"; try {near}" if near else ""
        return (
            f"{name} cannot route {what} groups of {ranks} ranks, {stride} apart: their chips are "
            f"not adjacent in its torus{remedy}"
        )

    return Reason(f"routable {what} groups", broken, words)


def _groups(at: Scalars, grid: Grid) -> dict[str, tuple[int, int]]:
    """Ranks of a group along each axis and the distance between them, for one layout."""
    data = at["cp"] * at["dp"]
    shard = grid.shard or data
    cut = grid.expert_tp or at["tp"]
    experts = max(data * at["tp"] // (cut * at["ep"]), 1)
    inside = min(neighbours_of(grid.context_parallel) or at["cp"], at["cp"])
    return {
        "tp": (at["tp"], 1),
        "cp": (at["cp"], at["tp"]),
        "cp_inside": (inside, at["tp"]),
        "cp_outside": (max(at["cp"] // inside, 1), at["tp"] * inside),
        "data": (data, at["tp"]),
        "ep": (at["ep"], cut),
        "expert_data": (experts, cut * at["ep"]),
        "shard": (shard, at["tp"]),
        "expert_shard": (max(experts * shard // data, 1), cut * at["ep"]),
        "copies": (max(data // shard, 1), at["tp"] * shard),
    }


def _near(platform: Platform, at: Scalars, logical_size: int | None, grid: Grid) -> list[str]:
    """Nearest other values of a degree with which all groups can be routed.

    The number of replicas makes up the difference, so that as many ranks are in use.
    """
    degrees = platform.legal_degrees(logical_size)
    found: list[tuple[float, str]] = []
    for name in ("tp", "cp", "ep"):
        listed = degrees.tensor_parallel if degrees and name == "tp" else None
        ranks = at[name] * (at["dp"] * at["cp"] if name == "ep" else at["dp"])
        for value in listed or _powers(ranks):
            other = {**at, name: value}
            # Expert parallelism lies inside the data ranks; other degrees take theirs from dp.
            if name != "ep" and ranks % value == 0:
                other["dp"] = ranks // value
            groups = _groups(other, grid).values()
            taken = all(routable(platform, logical_size, *one) for one in groups)
            if value != at[name] and ranks % value == 0 and taken:
                found.append((abs(np.log2(value / at[name])), f"{name}={value}"))
    return [text for _, text in sorted(found)[:FEW]]


def _powers(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length())]


PAIR = 2


def is_block(shape: tuple[int, ...], chips: tuple[int, ...]) -> bool:
    """True when chips, by row-major places on a torus of this shape, are a block."""
    sides = []
    for length, places in zip(shape, np.unravel_index(chips, shape), strict=True):
        used = set(places.tolist())
        # An unbroken stretch has one end; a whole ring has none.
        ends = sum((place + 1) % length not in used for place in used)
        if ends > 1:
            return False
        sides.append(len(used))
    # As many chips as the box of their stretches has places: then they fill it.
    return prod(sides) == len(set(chips))


def routable(platform: Platform, logical_size: int | None, ranks: int, stride: int) -> bool:
    """True when all groups of `ranks` ranks, `stride` apart, can be routed in an instance.

    Groups over several instances, and instances without a known rule, are never refused.
    """
    return _routes(platform, logical_size, [(ranks, stride)])[0]


def _routes(
    platform: Platform, logical_size: int | None, groups: Sequence[tuple[int, int]]
) -> list[bool]:
    """Answers for kinds of groups, by ranks and stride: true where they can be routed."""
    routing = platform.instance.routing
    torus = next((level for level in platform.instance.fabric if isinstance(level, Torus)), None)
    if routing is None or torus is None:
        return [True] * len(groups)
    chip = platform.chip
    size, per_chip = chip.unit.cores_per_rank(logical_size), chip.ranks(logical_size)
    also = {(one.ranks, one.stride) for one in routing.also if one.logical_size == size}
    return [one in also or _all_blocks(torus.shape, per_chip, *one) for one in groups]


@lru_cache(maxsize=4096)
def _all_blocks(shape: tuple[int, ...], per_chip: int, ranks: int, stride: int) -> bool:
    per_node, period = prod(shape) * per_chip, ranks * stride
    # Groups wider than an instance, or out of step with it, are no matter of its torus.
    if ranks < PAIR or period > per_node or per_node % period:
        return True
    steps = np.arange(ranks) * stride
    groups = {
        tuple(sorted({int(rank) // per_chip for rank in turn + first + steps}))
        for turn in range(0, per_node, period)
        for first in range(stride)
    }
    return all(is_block(shape, chips) for chips in groups)


def platform_refusals(
    platform: Platform,
    grid: Grid,
    *,
    nodes: int | IntArray,
    logical_size: int | None = None,
    whole_nodes: bool = True,
) -> tuple[Reason, ...]:
    """Rules of a cluster of `nodes` instances that layouts of a grid break.

    A layout fills the cluster; without `whole_nodes` it may leave ranks of a single node idle.
    `nodes` may differ by layout; then no reason has words.
    """
    # Order of the reasons: a cluster that cannot be, a layout that does not fill it, odd degrees.
    degrees = platform.legal_degrees(logical_size)
    refused = [*_cluster(platform, nodes)]
    refused += _world(platform, grid, nodes, logical_size, whole_nodes=whole_nodes)
    if degrees is not None:
        refused += _degrees(platform, degrees, grid)
    if grid.dispatcher not in (None, "alltoall"):
        refused += _dispatcher(platform, grid, grid.dispatcher, logical_size)
    if grid.activation_offload is not None:
        refused += _activations_away(platform, grid)
    return tuple(reason for reason in refused if some(reason.broken))


def platform_warnings(
    platform: Platform, grid: Grid, *, logical_size: int | None = None
) -> tuple[Reason, ...]:
    degrees = platform.legal_degrees(logical_size)
    warned = () if degrees is None else (_warned(platform, degrees, grid),)
    return tuple(reason for reason in warned if some(reason.broken))


def _dispatcher(
    platform: Platform, grid: Grid, name: Dispatcher | None, logical_size: int | None
) -> Iterator[Reason]:
    """Rules on dispatchers other than the collective library: the chips and networks they need."""
    own, network = platform.instance.name, platform.instance.network
    if isinstance(platform.chip.unit, NeuronCores):
        yield Reason(
            "dispatcher",
            np.ones_like(grid.ep > 1),
            f"dispatcher={name} needs GPUs, {own} has none; try alltoall",
        )
    elif name == "hybridep" and network is not None and network.transport == "efa":
        groups = groups_along("ep", grid, MEGATRON)
        yield Reason(
            "dispatcher",
            (grid.ep > 1) & (groups.nodes(platform.ranks(logical_size)) > 1),
            f"dispatcher=hybridep needs InfiniBand between nodes, {own} has EFA; try alltoall, "
            "deepep, uccl",
        )


def _activations_away(platform: Platform, grid: Grid) -> Iterator[Reason]:
    """Rules on activations that wait in the host's memory."""
    everywhere = np.ones_like(grid.pp > 0)
    if isinstance(platform.chip.unit, NeuronCores):
        own = platform.instance.name
        why = f"activation offload needs GPUs, {own} has none; leave --activation-offload out"
        yield Reason("activation-offload", everywhere, why)
    if splits_backward(grid.schedule):
        why = f"activation offload needs a whole backward pass, not schedule {grid.schedule}"
        yield Reason("activation-offload", everywhere, f"{why}; try 1f1b")


def _cluster(platform: Platform, nodes: int | IntArray) -> Iterator[Reason]:
    counts = [nodes] if isinstance(nodes, int) else distinct(nodes).tolist()
    if cluster_verdict(platform, counts[-1]).legal:
        return  # and so are all smaller ones
    verdicts = {count: cluster_verdict(platform, count) for count in counts}
    refused = {count: verdict for count, verdict in verdicts.items() if not verdict.legal}
    if refused:
        first = next(iter(refused.values()))
        text = f"{'; '.join(first.reasons)}; try {', '.join(first.alternatives)}"
        yield Reason("cluster", np.isin(nodes, [*refused]), text)


def _world(
    platform: Platform,
    grid: Grid,
    nodes: int | IntArray,
    logical_size: int | None,
    *,
    whole_nodes: bool,
) -> Iterator[Reason]:
    per_node = platform.instance.chips * platform.chip.ranks(logical_size)
    has = nodes * per_node
    world = grid.ranks("world")
    name = platform.instance.name

    def words(at: Scalars) -> str:
        one = at["tp"] * at["cp"] * at["pp"]
        ranks = one * at["dp"]
        own = int(has)
        dp, rest = divmod(own, one)
        near = f"tp x cp x pp = {divisors_near(own, one)}" if rest else f"dp={dp}"
        if ranks % per_node == 0:
            near += f", or {ranks // per_node} nodes"
        return f"tp x cp x pp x dp = {ranks} ranks, {nodes} x {name} have {own}; try {near}"

    broken = world != has
    # Idle ranks are for tests on a part of one node; a cluster of several is paid for in full.
    if not whole_nodes:
        broken &= (world > has) | (np.asarray(nodes) > 1)
    yield Reason("ranks", broken, words)


def _degrees(platform: Platform, degrees: LegalDegrees, grid: Grid) -> Iterator[Reason]:
    name = platform.instance.name
    taken = (*degrees.tensor_parallel, *degrees.tensor_parallel_warned)
    yield Reason(
        "tensor parallel",
        ~np.isin(grid.tp, taken),
        lambda at: (
            f"{name} has no tensor parallelism of {at['tp']} ranks; "
            f"try tp={_nearest(degrees.tensor_parallel, at['tp'])}"
        ),
    )
    if degrees.ranks_per_job:
        world, multiple = grid.ranks("world"), degrees.ranks_per_job_multiple
        broken = ~np.isin(world, degrees.ranks_per_job)
        if multiple:
            broken &= world % multiple != 0
        few = ", ".join(map(str, degrees.ranks_per_job))
        more = f" or a multiple of {multiple}" if multiple else ""
        yield Reason(
            "ranks of a job",
            broken,
            lambda at: (
                f"{name} runs {few}{more} ranks in a job, "
                f"not {at['tp'] * at['cp'] * at['pp'] * at['dp']}"
            ),
        )


def _warned(platform: Platform, degrees: LegalDegrees, grid: Grid) -> Reason:
    name = platform.instance.name
    return Reason(
        "tensor parallel",
        np.isin(grid.tp, degrees.tensor_parallel_warned),
        lambda at: (
            f"tp={at['tp']} is not supported by all software on {name}; "
            f"tp={_nearest(degrees.tensor_parallel, at['tp'])} is"
        ),
    )


def _nearest(values: tuple[int, ...], value: int) -> str:
    near = sorted(values, key=lambda degree: (abs(degree - value), degree))
    return ", ".join(str(degree) for degree in near[:FEW])
