"""Groups that run a collective side by side, and which of them one node shows in full.

Where every node does the same, the groups of one node (or the part of wide groups on one node) show
the load of all. Beyond that, only the number of nodes of a group counts.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import BoolArray, IntArray, distinct
from trnbench.facts.hardware.fabric import Torus
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field
from trnbench.machine.fabric import Fabric
from trnbench.machine.message_plan.algorithm import Algorithm, AlgorithmStage, Refusal
from trnbench.machine.message_plan.ring_orders import rings_of
from trnbench.machine.placement import CHIPS, NODES, Groups, Placement, RankGrid, grid_of


class Members(Record, eq=False):
    """Groups of one collective: those that are placed, and the grid of each."""

    placement: Placement
    listed: IntArray | None  # all groups [group, rank], sorted; None: only `local` is known
    looked_at: IntArray | None  # groups that are placed
    local: IntArray | None  # [group, i] ranks in each of `nodes`; None: rank by rank
    nodes: IntArray  # numbers of the nodes that `local` stands for
    one_node: bool  # what one node does is what every node does
    grids: tuple[RankGrid, ...]
    ways: tuple[int, ...]  # by group: index of its grid
    # cache: levels of an algorithm, by grid
    stages: Memo[tuple[int, Algorithm], list[AlgorithmStage] | Refusal] = field(
        default_factory=Memo
    )

    @property
    def ranks(self) -> int:
        """Number of ranks of one group."""
        if self.listed is not None:
            return int(self.listed.shape[1])
        assert self.local is not None
        return int(self.local.shape[1]) * len(self.nodes)

    @property
    def groups(self) -> IntArray:
        return _spread(self) if self.listed is None else self.listed

    @property
    def first(self) -> IntArray:
        if self.local is None:
            return np.asarray(self.kept[0])
        return np.asarray(self.at(np.arange(self.ranks), slice(0, 1))[0])

    @property
    def kept(self) -> IntArray:
        """Groups that are placed, rank by rank."""
        return _spread(self) if self.looked_at is None else self.looked_at

    @property
    def first_nodes(self) -> int:
        if self.listed is None:
            return len(self.nodes)
        return len(distinct(self.listed[0] // self.placement.fabric.ranks_per_node))

    def in_full(self) -> Members:
        """The same groups read rank by rank, all of them."""
        groups = self.groups
        alike = self.grids, self.ways
        if len(self.ways) < len(groups):
            alike = _grids(self.placement, groups)
        return _rank_by_rank(self.placement, groups, *alike)

    def at(self, index: IntArray, groups: slice) -> IntArray:
        """Ranks [group, ...] at these places of the groups that are placed."""
        if self.local is None:
            return self.kept[groups][:, index]
        if len(self.nodes) == 1 and self.nodes[0] == 0:
            return self.local[groups][:, index]
        node, in_node = np.divmod(index, self.local.shape[1])
        first = self.nodes[node] * self.placement.fabric.ranks_per_node
        return np.asarray(first + self.local[groups][:, in_node])


def members_of(placement: Placement, groups: Groups, *, symmetric: bool) -> Members:
    """Groups ready to be placed; `symmetric` allows one node to show all."""
    listed = checked_groups(placement, groups)
    fabric = placement.fabric
    # A faulty link belongs to one node: then no node shows the load of the others.
    if symmetric and not fabric.faulty:
        found = _alike_on_nodes(fabric, listed)
        if found is not None:
            looked_at, local, nodes = found
            grids, ways = _node_grids(placement, local, nodes)
            return Members(
                placement=placement,
                listed=listed,
                looked_at=looked_at,
                local=local,
                nodes=nodes,
                one_node=fabric.nodes > 1,
                grids=grids,
                ways=ways,
            )
    return _rank_by_rank(placement, listed, *_grids(placement, listed))


def even_members(placement: Placement, local: IntArray, nodes: int) -> Members:
    """Groups that have these ranks (sorted) of each of the first `nodes` nodes."""
    spanned = np.arange(nodes)
    grids, ways = _node_grids(placement, local, spanned)
    return Members(
        placement=placement,
        listed=None,
        looked_at=None,
        local=local,
        nodes=spanned,
        one_node=placement.fabric.nodes > 1,
        grids=grids,
        ways=ways,
    )


def plain_members(placement: Placement, groups: IntArray) -> Members:
    """Groups for sends from rank to rank, without the grids that their ranks form."""
    count = groups.shape[1]
    row = RankGrid(ranks=np.arange(count), levels=(CHIPS,), places=(tuple(range(count)),))
    return _rank_by_rank(placement, groups, (row,), (0,) * len(groups))


def _rank_by_rank(
    placement: Placement, groups: IntArray, grids: tuple[RankGrid, ...], ways: tuple[int, ...]
) -> Members:
    return Members(
        placement=placement,
        listed=groups,
        looked_at=groups,
        local=None,
        nodes=distinct(groups // placement.fabric.ranks_per_node),
        one_node=False,
        grids=grids,
        ways=ways,
    )


def checked_groups(placement: Placement, groups: Groups) -> IntArray:
    """Groups as an array of sorted ranks; malformed groups are an input error."""
    if not isinstance(groups, np.ndarray) and len({len(group) for group in groups}) != 1:
        raise InputError("replica groups must be lists of ranks of one length")
    members = np.sort(np.array(groups, dtype=np.int64), axis=1)
    if not members.size:
        raise InputError("replica groups must be lists of ranks of one length")
    if members.min() < 0 or members.max() >= placement.ranks:
        raise InputError(f"ranks are 0 to {placement.ranks - 1}, found {members.max()}")
    if np.bincount(members.ravel()).max() > 1:
        raise InputError("a rank is in two replica groups, or twice in one")
    return members


def _spread(members: Members) -> IntArray:
    assert members.local is not None
    first = members.nodes[:, None] * members.placement.fabric.ranks_per_node
    return np.asarray(members.local[:, None, :] + first).reshape(len(members.local), -1)


def _alike_on_nodes(
    fabric: Fabric, members: IntArray
) -> tuple[IntArray, IntArray, IntArray] | None:
    """Groups to place, their ranks in a node and their nodes; None if nodes differ."""
    node, local = np.divmod(members, fabric.ranks_per_node)
    first = node[:, 0]
    # Every group is inside one node.
    if (node == first[:, None]).all():
        here = first == first.min()
        at = np.flatnonzero(here)
        if len(at) < len(members):
            # Every node has to hold the same groups, in whatever order they are listed.
            count, rest = divmod(len(members), len(at))
            if rest:
                return None
            order = np.lexsort((*local.T[::-1], first))
            nodes = first[order].reshape(count, len(at))
            by_node = local[order].reshape(count, len(at), -1)
            if (nodes != nodes[:, :1]).any() or (by_node != by_node[0]).any():
                return None
        return members[at], local[at], first[at[:1]]
    # Every group spans the same nodes, with the same ranks on each of them.
    used = node[0][np.flatnonzero(np.diff(node[0], prepend=-1))]
    per_node, rest = divmod(members.shape[1], len(used))
    if rest:
        return None
    if (node.reshape(len(members), len(used), per_node) != used[:, None]).any():
        return None
    # Groups are sorted, so their ranks come node by node: compare each node with the first.
    cut = local.reshape(len(members), len(used), per_node)
    return (members, cut[:, 0], used) if (cut == cut[:, :1]).all() else None


def _key(grid: RankGrid) -> Hashable:
    return grid.levels, grid.places, grid.ranks.shape


def _grids(placement: Placement, groups: IntArray) -> tuple[tuple[RankGrid, ...], tuple[int, ...]]:
    node, local = np.divmod(groups, placement.fabric.ranks_per_node)
    if (node == node[:, :1]).all() and not placement.fabric.faulty:
        return _node_grids(placement, local, node[0, :1])
    return _distinct([grid_of(placement, group) for group in groups])


def _node_grids(
    placement: Placement, local: IntArray, nodes: IntArray
) -> tuple[tuple[RankGrid, ...], tuple[int, ...]]:
    """Grids of groups that lie alike on each of their nodes."""
    # Thousands of groups have few kinds of grids: a cheap mark finds a group's grid, and equal
    # grids are one object, so that their index in `grids` is their kind.
    grids: dict[int, RankGrid] = {}
    numbers: dict[int, int] = {}
    ways = []
    for group, mark in zip(local, _marks(placement.fabric, local), strict=True):
        found = placement.node_grids.of(mark, partial(_like_grid, placement, group))
        ways.append(numbers.setdefault(id(found), len(numbers)))
        grids[id(found)] = found
    over = tuple(_over_nodes(grid, nodes) for grid in grids.values())
    return over, tuple(ways)


def _like_grid(placement: Placement, group: IntArray) -> RankGrid:
    grid = grid_of(placement, group)
    # Groups on other places with the same rings make the same plan: they share the first grid.
    return placement.node_grids.of(_rings(placement, grid), lambda: grid)


def _marks(fabric: Fabric, local: IntArray) -> list[bytes]:
    """Key by group of all that its grid depends on: its part of each level of a node."""
    chip, core = np.divmod(local, fabric.ranks_per_chip)
    rows = np.arange(len(local))[:, None]
    has_chip, has_core = (
        _present(rows, values, count)
        for values, count in ((chip, fabric.chips), (core, fabric.ranks_per_chip))
    )
    columns = [np.full(len(local), local.shape[1]), has_chip.sum(axis=1), has_core.sum(axis=1)]
    places = []
    for up in fabric.levels:
        has = _present(rows, chip // up.span % up.count, up.count)
        columns.append(has.sum(axis=1))
        # On a torus the places decide on the rings; behind a switch only their number counts.
        if isinstance(up.level, Torus):
            places.append(has)
    numbers = np.stack(columns, axis=1).astype(np.int32).view(np.bool_)
    return [row.tobytes() for row in np.concatenate([numbers, *places], axis=1)]


def _present(rows: IntArray, values: IntArray, count: int) -> BoolArray:
    found = np.zeros((len(rows), count), dtype=np.bool_)
    found[rows, values] = True
    return found


def _rings(placement: Placement, grid: RankGrid) -> Hashable:
    """Key of all that plans read of a grid in a node: its shape, and the rings of its axes."""
    rings = [
        rings_of(placement, level, places).tobytes() if level >= 0 else b""
        for level, places in zip(grid.levels, grid.places, strict=True)
    ]
    return grid.levels, grid.ranks.shape, tuple(rings)


def _over_nodes(grid: RankGrid, nodes: IntArray) -> RankGrid:
    if len(nodes) == 1:
        return grid
    shape = grid.ranks.shape if grid.levels else ()
    return RankGrid(
        ranks=np.arange(grid.ranks.size * len(nodes)).reshape(len(nodes), *shape),
        levels=(NODES, *grid.levels),
        places=(tuple(nodes.tolist()), *grid.places),
    )


def _distinct(grids: list[RankGrid]) -> tuple[tuple[RankGrid, ...], tuple[int, ...]]:
    """Grids that differ, and the index of each grid among them."""
    numbers: dict[Hashable, int] = {}
    kept: list[RankGrid] = []
    ways = []
    for grid in grids:
        key = _key(grid)
        if key not in numbers:
            numbers[key] = len(kept)
            kept.append(grid)
        ways.append(numbers[key])
    return tuple(kept), tuple(ways)
