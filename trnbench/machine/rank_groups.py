"""Groups of ranks along a layout's axes, and the layouts that a platform takes.

Ranks count through the axes from the innermost outwards, so the groups along an axis are all alike:
four numbers (`RankGroups`) place every one of them. Arrays span grids of layouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.arrays import FloatArray, IntArray, distinct
from trnbench.facts.calibration.training_stack import RankOrder
from trnbench.facts.hardware.instance import LegalDegrees, Platform
from trnbench.facts.records import Record
from trnbench.machine.legality import cluster_verdict
from trnbench.program.grid import TIED_COPIES, Grid
from trnbench.program.reasons import FEW, Reason, Scalars, divisors_near
from trnbench.program.tensor import array

GroupAxis = Literal["tp", "cp", "dp", "pp"]
AXES: tuple[str, ...] = (
    *("tp", "cp", "ep", "dp", "pp", "data", "expert_tp", "expert_data", "kv_copies", "tied"),
    *("shard", "expert_shard", "copies", "world", "cp_inside", "cp_outside"),
)


class AxisOrder(Record):
    """Order in which a library counts ranks.

    `cp` comes right before `dp`: together they are `data`, of which `ep` is the innermost part.
    """

    name: str
    axes: tuple[GroupAxis, ...]  # from the innermost outwards
    kv_copies: Literal["adjacent", "interleaved"]  # tensor ranks with the same key-value heads

    def __post_init__(self) -> None:
        """Refuse orders that miss an axis or tear `data` apart."""
        if sorted(self.axes) != ["cp", "dp", "pp", "tp"]:
            raise InputError(f"{self.name}: an order of axes names tp, cp, dp and pp once each")
        if self.axes.index("dp") != self.axes.index("cp") + 1:
            raise InputError(f"{self.name}: dp must come right after cp")

    def stride(self, axis: GroupAxis, grid: Grid) -> FloatArray:
        """Distance in ranks between neighbours along an axis."""
        # Neighbours along an axis are as far apart as all ranks of the axes inside of it.
        stride = array(1)
        for inner in self.axes[: self.axes.index(axis)]:
            stride = array(stride * grid.ranks(inner))
        return stride

    @property
    def cuts_experts(self) -> bool:
        """True when experts can be cut over other ranks than the rest of their layer."""
        return self.axes.index("cp") == self.axes.index("tp") + 1

    def experts_apart(self, grid: Grid) -> FloatArray:
        """Distance in ranks between neighbours along `ep`.

        Only the ranks that share an expert come between them.
        """
        if grid.expert_tp is None:
            return self.stride("cp", grid)
        if not self.cuts_experts:
            raise InputError(
                f"{self.name}: experts are cut apart from tp only where context or data ranks "
                "follow tensor ranks; leave --expert-tp out"
            )
        return array(self.stride("tp", grid) * grid.expert_ranks)


MEGATRON = AxisOrder(name="megatron", axes=("tp", "cp", "dp", "pp"), kv_copies="adjacent")
"""Megatron-LM ("tp-cp-ep-dp-pp"), NeMo and, on Trn2, NxD (a mesh of PP x DP x CP x TP)."""
NXD_TRN1 = AxisOrder(name="nxd-trn1", axes=("tp", "cp", "dp", "pp"), kv_copies="interleaved")
"""NxD on Trn1: the same mesh; copies of key-value heads go round the tensor ranks."""
REPLICAS_INSIDE = AxisOrder(name="dp-tp-pp", axes=("cp", "dp", "tp", "pp"), kv_copies="adjacent")
"""Processes counted round the nodes of a stage: replicas are neighbours, tensor ranks are not."""
TENSOR_OUTSIDE = AxisOrder(name="dp-pp-tp", axes=("cp", "dp", "pp", "tp"), kv_copies="adjacent")
"""Processes counted round all nodes: tensor ranks are as far apart as can be."""
STAGES_INSIDE = AxisOrder(name="pp-tp-dp", axes=("pp", "tp", "cp", "dp"), kv_copies="adjacent")
"""A pipeline inside a node: its stages are neighbours, tensor ranks as far apart as it is long."""

ORDERS: Mapping[RankOrder, AxisOrder] = {
    "megatron": MEGATRON,
    "nxd-trn1": NXD_TRN1,
    "dp-tp-pp": REPLICAS_INSIDE,
    "dp-pp-tp": TENSOR_OUTSIDE,
    "pp-tp-dp": STAGES_INSIDE,
}
"""Orders of axes by the name that a training stack gives."""


class RankGroups(Record, eq=False):
    """Like groups that run side by side: ranks `turn * period + first + k * stride`.

    `k` counts the `ranks` of a group, `first` runs below `width`, `turn` over the cluster.
    """

    ranks: IntArray  # 0 where a layout has no such groups (no whole number)
    stride: IntArray  # ranks between neighbours of a group
    width: IntArray  # groups that lie inside each other's strides
    period: IntArray  # ranks after which the pattern of groups repeats

    def ranks_in_node(self, ranks_per_node: int) -> IntArray:
        """Most ranks of a group that share a node."""
        return np.minimum(self.ranks, -(-ranks_per_node // self.stride))

    def nodes(self, ranks_per_node: int) -> IntArray:
        """Most nodes that a group spans."""
        # The first rank furthest back in its node decides: turns begin at multiples of
        # the common divisor.
        apart = np.gcd(self.period, ranks_per_node)
        last_first = ranks_per_node - np.maximum(apart, self.width) + self.width - 1
        spanned = (last_first + (self.ranks - 1) * self.stride) // ranks_per_node + 1
        return np.where(self.stride >= ranks_per_node, self.ranks, spanned)

    def members(self, ranks: int) -> IntArray:
        """Groups [group, k] among the first `ranks` ranks, for a single layout."""
        turn = np.arange(0, ranks, int(self.period))
        first = (turn[:, None] + np.arange(int(self.width))).reshape(-1, 1)
        return np.asarray(first + np.arange(int(self.ranks)) * int(self.stride))


def groups_along(
    axis: str, grid: Grid, order: AxisOrder, ranks: FloatArray | None = None
) -> RankGroups:
    """Groups along an axis of a program; `kv_copies` needs the `ranks` of a group."""
    match axis:
        case "tp" | "cp" | "dp" | "pp":
            return _groups(grid.ranks(axis), order.stride(axis, grid))
        case "cp_inside":
            return _groups(grid.ranks(axis), order.stride("cp", grid))
        case "cp_outside":
            apart = array(order.stride("cp", grid) * grid.ranks("cp_inside"))
            return _groups(grid.ranks(axis), apart)
        case "data":
            return _groups(grid.ranks(axis), order.stride("cp", grid))
        case "expert_tp":
            return _groups(grid.ranks(axis), order.stride("tp", grid))
        case "ep":
            return _groups(grid.ranks(axis), order.experts_apart(grid))
        case "expert_data":
            return _groups(grid.ranks(axis), array(order.experts_apart(grid) * grid.ep))
        case "shard":
            return _groups(grid.ranks(axis), order.stride("cp", grid))
        case "expert_shard":
            return _groups(grid.ranks(axis), array(order.experts_apart(grid) * grid.ep))
        case "copies":
            # Copies are outside the groups that share slices, of dense weights and of experts.
            inner = array(order.stride("cp", grid) * grid.ranks("shard"))
            return _groups(grid.ranks(axis), inner)
        case "world":
            return _groups(grid.ranks(axis), array(1))
        case "tied":
            # The first and the last stage: as far apart as all stages between them.
            step = order.stride("pp", grid)
            far = array(step * np.maximum(grid.pp - 1, 1))
            ends = array(np.minimum(grid.pp, TIED_COPIES))
            return _groups(ends, far, width=step, period=array(step * grid.pp))
        case "kv_copies" if ranks is not None:
            apart = array(grid.tp / ranks) if order.kv_copies == "interleaved" else array(1)
            return _groups(ranks, array(order.stride("tp", grid) * apart))
        case "kv_copies":
            raise InputError("the groups along kv_copies need their ranks")
    raise UnknownNameError("axis", axis, AXES)


def _groups(
    ranks: FloatArray,
    stride: FloatArray,
    *,
    width: FloatArray | None = None,
    period: FloatArray | None = None,
) -> RankGroups:
    # Degrees that do not divide leave fractions: such layouts are refused elsewhere, and 0 ranks
    # keep them out of whatever is placed.
    whole = (ranks % 1 == 0) & (stride % 1 == 0)
    return RankGroups(
        ranks=np.where(whole, ranks, 0).astype(np.int64),
        stride=stride.astype(np.int64),
        width=(stride if width is None else width).astype(np.int64),
        period=np.maximum(ranks * stride if period is None else period, 1).astype(np.int64),
    )


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
    return tuple(reason for reason in refused if np.any(reason.broken))


def platform_warnings(
    platform: Platform, grid: Grid, *, logical_size: int | None = None
) -> tuple[Reason, ...]:
    """Warnings on layouts of a grid that do not forbid them."""
    degrees = platform.legal_degrees(logical_size)
    warned = () if degrees is None else (_warned(platform, degrees, grid),)
    return tuple(reason for reason in warned if np.any(reason.broken))


def _cluster(platform: Platform, nodes: int | IntArray) -> Iterator[Reason]:
    counts = [nodes] if isinstance(nodes, int) else distinct(nodes).tolist()
    verdicts = {count: cluster_verdict(platform, count) for count in counts}
    refused = {count: verdict for count, verdict in verdicts.items() if not verdict.legal}
    if refused:
        first = next(iter(refused.values()))
        text = f"{'; '.join(first.reasons)}; try {', '.join(first.alternatives)}"
        yield Reason(rule="cluster", broken=np.isin(nodes, [*refused]), words=lambda _: text)


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
    yield Reason(rule="ranks", broken=broken, words=words)


def _degrees(platform: Platform, degrees: LegalDegrees, grid: Grid) -> Iterator[Reason]:
    name = platform.instance.name
    taken = (*degrees.tensor_parallel, *degrees.tensor_parallel_warned)
    yield Reason(
        rule="tensor parallel",
        broken=~np.isin(grid.tp, taken),
        words=lambda at: (
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
            rule="ranks of a job",
            broken=broken,
            words=lambda at: (
                f"{name} runs {few}{more} ranks in a job, "
                f"not {at['tp'] * at['cp'] * at['pp'] * at['dp']}"
            ),
        )


def _warned(platform: Platform, degrees: LegalDegrees, grid: Grid) -> Reason:
    name = platform.instance.name
    return Reason(
        rule="tensor parallel",
        broken=np.isin(grid.tp, degrees.tensor_parallel_warned),
        words=lambda at: (
            f"tensor parallelism of {at['tp']} ranks is not supported everywhere on {name}; "
            f"tp={_nearest(degrees.tensor_parallel, at['tp'])} is"
        ),
    )


def _nearest(values: tuple[int, ...], value: int) -> str:
    near = sorted(values, key=lambda degree: (abs(degree - value), degree))
    return ", ".join(str(degree) for degree in near[:FEW])
