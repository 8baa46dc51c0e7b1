"""Groups of ranks along a layout's axes, and the few nodes on which groups of a kind are placed.

Ranks count through the axes from the innermost outwards, so the groups along an axis are all alike:
four numbers (`RankGroups`) place every one of them. Arrays span grids of layouts. Groups run side
by side on as many nodes as it takes until their pattern repeats; nodes further on share no link
with these.

Tokens on their way to experts may cross to a node only once (`handed_on`): routers draw all nodes
alike, so k copies of a token reach n (1 - (1 - 1/n)^k) of n nodes. Ranks of the node hand the other
copies on, and answers return the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.calibration.training_stack import RankOrder
from trnbench.facts.records import Record, replace
from trnbench.program.grid import TIED_COPIES, Grid
from trnbench.program.tensor import array

if TYPE_CHECKING:
    from trnbench.machine.message_plan.members import Members
    from trnbench.machine.placement import Placement

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
    if axis == "tied":
        # The first and the last stage: as far apart as all stages between them.
        step = order.stride("pp", grid)
        far = array(step * np.maximum(grid.pp - 1, 1))
        ends = array(np.minimum(grid.pp, TIED_COPIES))
        return _groups(ends, far, width=step, period=array(step * grid.pp))
    if axis == "kv_copies":
        if ranks is None:
            raise InputError("the groups along kv_copies need their ranks")
        apart = array(grid.tp / ranks) if order.kv_copies == "interleaved" else array(1)
        return _groups(ranks, array(order.stride("tp", grid) * apart))
    stride = stride_along(axis, grid, order)
    return _groups(grid.ranks(axis), stride)


def stride_along(axis: str, grid: Grid, order: AxisOrder) -> FloatArray:
    """Distance in ranks between neighbours of a group along an axis."""
    match axis:
        case "tp" | "cp" | "dp" | "pp":
            return order.stride(axis, grid)
        case "cp_inside" | "data" | "shard":
            return order.stride("cp", grid)
        case "cp_outside":
            return array(order.stride("cp", grid) * grid.ranks("cp_inside"))
        case "expert_tp":
            return order.stride("tp", grid)
        case "ep":
            return order.experts_apart(grid)
        case "expert_data" | "expert_shard":
            return array(order.experts_apart(grid) * grid.ep)
        case "copies":
            # Copies are outside the groups that share slices, of dense weights and of experts.
            return array(order.stride("cp", grid) * grid.ranks("shard"))
        case "world":
            return array(1)
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


GroupPlace: TypeAlias = tuple[int, int, int, int, int]
"""Ranks, stride, width and period of groups, and the ranks over which they are placed."""


def places_of(groups: RankGroups, per_node: int, world: IntArray) -> tuple[IntArray, ...]:
    """The five numbers of each layout's `GroupPlace`, with gaps of whole nodes reduced to one.

    A group is ranks first + k * stride, for k below `ranks`, and repeats after `period` ranks.
    Where stride and width are whole nodes each rank of a group is on a node of its own, at the same
    place of the node. A network that joins all nodes alike makes no difference between near and far
    nodes, so the stride becomes one node and the period `ranks` nodes.

    Groups are placed over the least number of ranks after which groups and nodes both repeat,
    lcm(period, ranks of a node). Groups further on are copies of these and share no link with them.
    A cluster of `world` ranks, fewer than a node has, is placed as it is.
    """
    same = (groups.stride % per_node == 0) & (groups.width % per_node == 0)
    period = np.where(same, groups.ranks * per_node, groups.period)
    used = np.lcm(np.maximum(period, 1), per_node)
    used = np.where(world < per_node, world, used)
    return tuple(
        np.broadcast_arrays(
            groups.ranks,
            np.where(same, per_node, groups.stride),
            np.where(same, per_node, groups.width),
            period,
            used,
        )
    )


def neighbours(stages: RankGroups, per_node: int) -> RankGroups:
    """Stages between which messages take the same links as between the given ones.

    Between like nodes only the place in a node matters at which a message leaves and arrives. So
    stages a whole number of nodes apart become two on neighbouring nodes. Others come as near as
    they can, in such a number that the first stage's place comes again. They fill three nodes at
    least, as the last stage's messages go to the first.
    """
    ranks, stride = stages.ranks, stages.stride
    pair = (stride % per_node == 0) & (ranks > 1)
    spread = ~pair & (ranks > 1) & (stages.period == ranks * stride) & (stages.width == stride)
    spread &= (stages.period > per_node) & (stages.period % per_node == 0)
    near = np.where(stride > per_node, per_node + stride % per_node, np.maximum(stride, 1))
    # `turn` steps of `near` come back to the first place of a node; whole turns fill three nodes.
    turn = np.lcm(near, per_node) // near
    again = turn * -(-3 * per_node // (turn * near))
    ranks = np.where(pair, 2, np.where(spread, again, ranks))
    stride = np.where(spread, near, stride)
    return RankGroups(
        ranks=ranks,
        stride=stride,
        width=np.where(spread, near, stages.width),
        period=np.where(pair | spread, ranks * stride, stages.period),
    )


def members_at(node: Placement, where: GroupPlace, per_node: int, *, plain: bool) -> Members:
    """Groups of one kind on as many nodes as it takes until they repeat.

    `per_node` of a node's ranks are in use. `plain` groups only send from rank to rank.
    """
    from trnbench.machine.message_plan.members import even_members, members_of, plain_members

    ranks, stride, width, period, used = where
    nodes = -(-used // per_node)
    # The two cases below need no list of ranks, which for wide groups is the slow part.
    if nodes == 1:
        return even_members(node, _listed(where), 1)
    several = node.of(nodes)
    if period == used == ranks * stride and width == stride and per_node % stride == 0:
        # Every node holds a like part of every group.
        local = np.arange(stride)[:, None] + np.arange(per_node // stride) * stride
        return even_members(several, local, nodes)
    # Ranks in use count through; placed ranks count with those that stay idle on each node.
    at, local = np.divmod(_listed(where), per_node)
    members = at * node.ranks + local
    # Algorithms are chosen by the first group: one that spans most nodes speaks for all.
    widest = np.argmax(np.ptp(at, axis=1))
    members = np.roll(members, -widest, axis=0)
    return (
        plain_members(several, members) if plain else members_of(several, members, symmetric=True)
    )


def _listed(where: GroupPlace) -> IntArray:
    ranks, stride, width, period, used = where
    groups = RankGroups(
        ranks=np.asarray(ranks),
        stride=np.asarray(stride),
        width=np.asarray(width),
        period=np.asarray(period),
    )
    return groups.members(used)


def handed_on(groups: RankGroups, per_node: int, copies: int) -> tuple[FloatArray, RankGroups]:
    """Share of an exchange's bytes that crosses the network, and its groups inside a node.

    The exchange is of `copies` of each token among groups of experts' ranks. Groups of one rank
    exchange nothing.
    """
    nodes, inside = groups.nodes(per_node), groups.ranks_in_node(per_node)
    # Only groups that fill their part of each node evenly hand on; others send every copy across.
    spread = (nodes > 1) & (nodes * inside == groups.ranks)
    reached = nodes * (1 - (1 - 1 / np.maximum(nodes, 1)) ** copies)
    handing = np.where(spread, inside, 1)
    local = replace(groups, ranks=handing, period=handing * groups.stride)
    return np.where(spread, reached / copies, 1.0), local
