"""Ranks on a cluster: the chip of each rank, and the regular grid that a group of ranks forms.

A rank is a logical core on Trainium, a device on a GPU machine. Ranks count through cores of a
chip, chips of a node, nodes of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import IntArray, distinct
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.machine.fabric import Fabric, LinkFault, build_fabric
from trnbench.machine.fabric_routes import Routes, build_routes


class Placement(Record, eq=False):
    """Cluster with its ranks, its links and the paths between them."""

    platform: Platform
    fabric: Fabric
    routes: Routes
    # cache: grids of groups inside a node, by ranks and by grid
    node_grids: Memo[Hashable, RankGrid] = field(default_factory=Memo)
    # cache: ring orders by level and places, where all links are sound
    rings: Memo[tuple[int, tuple[int, ...]], IntArray] = field(default_factory=Memo)

    def of(self, nodes: int) -> Placement:
        """Cluster of `nodes` of the same instances, all of them in good order."""
        if self.fabric.faulty:
            raise InputError("links of these instances are faulty: more like them are not sound")
        fabric = replace(self.fabric, nodes=nodes)
        return replace(self, fabric=fabric, routes=replace(self.routes, fabric=fabric))

    @property
    def nodes(self) -> int:
        return self.fabric.nodes

    @property
    def ranks(self) -> int:
        return self.fabric.ranks_per_node * self.fabric.nodes

    @property
    def ranks_per_chip(self) -> int:
        return self.fabric.ranks_per_chip

    @property
    def memory_bandwidth_per_rank_bytes_per_s(self) -> float:
        chip = self.platform.chip
        return chip.memory.bandwidth_per_chip_bytes_per_s / self.ranks_per_chip


class RankGrid(Record, eq=False):
    """Group as a grid of ranks, outermost axis first: nodes, units of each level, cores."""

    ranks: IntArray  # numbers within the group
    levels: tuple[int, ...]  # by axis: index of a scale-up level, NODES, CORES or CHIPS
    places: tuple[tuple[int, ...], ...]  # by axis: nodes, places on a level, or cores of a chip


# CHIPS: chips in no regular pattern.
NODES, CORES, CHIPS = -1, -2, -3
Groups = Sequence[Sequence[int] | IntArray] | IntArray


def place(
    platform: Platform,
    *,
    nodes: int = 1,
    logical_size: int | None = None,
    faults: Sequence[LinkFault] = (),
) -> Placement:
    """`nodes` instances of a platform with their ranks and links.

    Instances that a switch joins are one instance for each domain of the switch.
    """
    sizes = platform.chip.unit.logical_sizes
    if logical_size is not None and logical_size not in sizes:
        known = ", ".join(map(str, sizes)) or "none: a device is one rank"
        raise InputError(f"{platform.chip.name} has no logical size {logical_size}; known: {known}")
    ranks_per_chip = platform.chip.ranks(logical_size)
    # Inside a switch domain (an UltraServer, an NVL72) instances have one scale-up fabric: to the
    # fabric they are one instance with more chips.
    domain = min(platform.domain_of(nodes), nodes)
    platform, nodes = platform.joined(domain), nodes // domain
    fabric = build_fabric(
        platform.instance, nodes=nodes, ranks_per_chip=ranks_per_chip, faults=faults
    )
    return Placement(platform=platform, fabric=fabric, routes=build_routes(fabric))


def grid_of(placement: Placement, group: IntArray) -> RankGrid:
    """Grid that a group's ranks form (sorted); irregular parts become one axis."""
    fabric = placement.fabric
    group = np.sort(group)
    node, local = np.divmod(group, fabric.ranks_per_node)
    nodes = distinct(node)
    per_node = len(group) // len(nodes)
    # A grid needs the same ranks on every node; any other group is one axis without structure.
    same = len(group) % len(nodes) == 0 and bool(
        (local.reshape(len(nodes), -1) == local[:per_node]).all()
    )
    if not same:
        axis = tuple(range(len(group)))
        return RankGrid(ranks=np.arange(len(group)), levels=(CHIPS,), places=(axis,))
    shape: list[int] = []
    levels: list[int] = []
    places: list[tuple[int, ...]] = []

    def axis_of(level: int, values: list[int]) -> None:
        # An axis of one place sends nothing and would only add a phase.
        if len(values) > 1:
            shape.append(len(values))
            levels.append(level)
            places.append(tuple(values))

    axis_of(NODES, nodes.tolist())
    inside = local[:per_node]
    chips = sorted(set((inside // fabric.ranks_per_chip).tolist()))
    cores = sorted(set((inside % fabric.ranks_per_chip).tolist()))
    # The product of two projections is as large as the set only where the set is that product.
    if len(chips) * len(cores) != per_node:
        axis_of(CHIPS, inside.tolist())
    else:
        per_level = [sorted({chip // up.span % up.count for chip in chips}) for up in fabric.levels]
        if math.prod(len(values) for values in per_level) == len(chips):
            for index in reversed(range(len(per_level))):
                axis_of(index, per_level[index])
        else:
            axis_of(CHIPS, chips)
        axis_of(CORES, cores)
    ranks = np.arange(len(group)).reshape(tuple(shape) or (1,))
    return RankGrid(ranks=ranks, levels=tuple(levels), places=tuple(places))
