"""Kinds of like groups in a layout, and the few nodes on which one kind is placed whole.

Groups of a kind run side by side on as many nodes as it takes until their pattern repeats; nodes
further on share no link with these.

Tokens on their way to experts may cross to a node only once (`handed_on`): routers draw all nodes
alike, so k copies of a token reach n (1 - (1 - 1/n)^k) of n nodes. Ranks of the node hand the other
copies on, and answers return the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import replace
from trnbench.machine.rank_groups import RankGroups

if TYPE_CHECKING:
    from trnbench.machine.message_plan.members import Members
    from trnbench.machine.placement import Placement

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
