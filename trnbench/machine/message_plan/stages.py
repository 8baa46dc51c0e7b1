"""Patterns that each algorithm runs on the lines of a group's grid, level by level.

The table `_STAGES` names every algorithm. An impossible one is a `Refusal` with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from trnbench.errors import UnknownNameError
from trnbench.facts.arrays import IntArray
from trnbench.facts.hardware.fabric import Switch, Torus
from trnbench.facts.records import replace
from trnbench.machine.message_plan.algorithm import ALGORITHMS, AlgorithmStage, Refusal, Site
from trnbench.machine.message_plan.direct import direct, single_step
from trnbench.machine.message_plan.folded import folded_halving, two_level_ring
from trnbench.machine.message_plan.halving import gray_order, halving
from trnbench.machine.message_plan.in_switch import in_switch
from trnbench.machine.message_plan.kangaring import kangaring
from trnbench.machine.message_plan.pattern import CollectivePart, MessagePattern
from trnbench.machine.message_plan.ring import chain, ring, ring_exchange
from trnbench.machine.message_plan.ring_orders import rings_of
from trnbench.machine.message_plan.tree import tree
from trnbench.machine.placement import CORES, NODES, RankGrid


def stages_of(site: Site, name: str) -> list[AlgorithmStage] | Refusal:
    """Levels of an algorithm on a group, innermost first, or a refusal."""
    if name not in ALGORITHMS:
        raise UnknownNameError("collective algorithm", name, ALGORITHMS)
    if name != "hierarchical":
        return _STAGES[name](site)
    # Inside the node one algorithm, between nodes another, on the share that the inner one leaves.
    outer_axes = site.only(NODES)
    if not outer_axes:
        return Refusal(reason="hierarchical needs a group on several nodes")
    inner, outer = site.algorithm.inner or "ring", site.algorithm.outer or "ring"
    for part in (inner, outer):
        if part not in ALGORITHMS:
            raise UnknownNameError("collective algorithm", part, ALGORITHMS)
    inside = _inner_stages(site, inner) if site.inside else []
    if isinstance(inside, Refusal):
        return inside
    if outer not in _BETWEEN_NODES:
        return Refusal(reason=f"{outer} does not run between nodes; {', '.join(_BETWEEN_NODES)} do")
    return [*inside, _BETWEEN_NODES[outer](site, outer_axes)]


def _inner_stages(site: Site, name: str) -> list[AlgorithmStage] | Refusal:
    """Stages on one node of a group whose first axis is the nodes."""
    grid = site.grid
    # The stages are made as for a group on one node, and their axes then counted after the nodes'.
    node = RankGrid(ranks=grid.ranks[0], levels=grid.levels[1:], places=grid.places[1:])
    stages = _STAGES[name](replace(site, grid=node))
    if isinstance(stages, Refusal):
        return stages
    return [replace(stage, axes=tuple(axis + 1 for axis in stage.axes)) for stage in stages]


def _orders(site: Site, axis: int) -> IntArray:
    level = site.grid.levels[axis]
    # Nodes, cores and irregular chips have no wiring of their own: the order of their numbers.
    if level < 0:
        found = np.arange(site.size((axis,)))[None, :]
    else:
        found = rings_of(site.placement, level, site.grid.places[axis])
    return found[:1] if site.algorithm.one_way else found


def _with_cores(orders: IntArray, cores: int) -> IntArray:
    # A ring visits all cores of a chip before it goes on to the next chip.
    return (orders[:, :, None] * cores + np.arange(cores)).reshape(len(orders), -1)


def _ring_maker(
    site: Site, orders: IntArray
) -> Callable[[CollectivePart], MessagePattern | Refusal]:
    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if part == "exchange":
            return ring_exchange(orders.shape[1], two_way=not site.algorithm.one_way)
        if part == "broadcast":
            # Every chain begins at the root, which is position 0.
            starts = np.argmin(orders, axis=1)
            turned = np.stack([np.roll(o, -s) for o, s in zip(orders, starts, strict=True)])
            return chain(turned, site.algorithm.pieces)
        return ring(orders, part)

    return make


def _direct_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    size = site.size(axes)

    def make(part: CollectivePart) -> MessagePattern | Refusal:
        blocks = site.algorithm.pieces if part == "broadcast" else size
        return direct(size, part, blocks)

    return AlgorithmStage(axes=axes, make=make)


def _ring(site: Site) -> list[AlgorithmStage] | Refusal:
    if site.only(NODES):
        return _flat_ring(site)
    cores, chips = site.only(CORES), [a for a in site.inside if site.grid.levels[a] != CORES]
    stages = []
    # Axes are outermost first, so the last chip axis is the innermost level.
    for axis in reversed(chips):
        innermost = axis == chips[-1]
        inside = cores if innermost else ()
        orders = _with_cores(_orders(site, axis), site.size(inside))
        stages.append(AlgorithmStage(axes=(axis, *inside), make=_ring_maker(site, orders)))
    if not chips:
        orders = np.arange(site.size(cores))[None, :]
        stages.append(AlgorithmStage(axes=cores, make=_ring_maker(site, orders)))
    return stages


def _flat_ring(site: Site) -> list[AlgorithmStage] | Refusal:
    nodes = site.size(site.only(NODES))
    cores, chips = site.only(CORES), [a for a in site.inside if site.grid.levels[a] != CORES]
    if len(chips) > 1:
        return Refusal(reason="a flat ring over nodes of several link levels; use hierarchical")
    if chips:
        rings = _orders(site, chips[0])
        starts = 1 if site.algorithm.one_way else rings.shape[1]
        # Each start enters and leaves the node through other adapters; together they use all.
        rings = np.stack([np.roll(rings[s % len(rings)], -s) for s in range(starts)])
        chain = _with_cores(rings, site.size(cores))
    else:
        chain = np.arange(site.size(cores))[None, :]
    length = chain.shape[1]
    orders = (np.arange(nodes)[None, :, None] * length + chain[:, None, :]).reshape(len(chain), -1)
    axes = tuple(range(len(site.grid.levels)))
    return [AlgorithmStage(axes=axes, make=_ring_maker(site, orders))]


def _kangaring(site: Site) -> list[AlgorithmStage] | Refusal:
    cores, chips = site.only(CORES), [a for a in site.inside if site.grid.levels[a] != CORES]
    if site.only(NODES):
        return Refusal(reason="kangaring stays inside a node; use hierarchical between nodes")
    if site.size(cores) != site.placement.ranks_per_chip or not cores or not chips:
        return Refusal(reason="kangaring needs all ranks of each of several chips in the group")
    orders, per_chip = _orders(site, chips[-1]), site.size(cores)

    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if part in ("exchange", "broadcast"):
            return _ring_maker(site, _with_cores(orders, per_chip))(part)
        return kangaring(orders, per_chip, part)

    inner = AlgorithmStage(axes=(chips[-1], *cores), make=make)
    outer = [
        AlgorithmStage(axes=(axis,), make=_ring_maker(site, _orders(site, axis)))
        for axis in reversed(chips[:-1])
    ]
    return [inner, *outer]


def _halving(site: Site) -> list[AlgorithmStage] | Refusal:
    return _halved(site, _halving_stage)


def _folded_halving(site: Site) -> list[AlgorithmStage] | Refusal:
    return _halved(site, _folded_stage)


def _halved(
    site: Site, stage: Callable[[Site, tuple[int, ...]], AlgorithmStage]
) -> list[AlgorithmStage]:
    # Cores of a chip are all neighbours and few: they exchange directly, and partners halve beyond.
    cores = site.only(CORES)
    others = [axis for axis in range(len(site.grid.levels)) if axis not in cores]
    inside = [_direct_stage(site, cores)] if cores else []
    return [*inside, *(stage(site, (axis,)) for axis in reversed(others))]


def _folded_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    return _sums_only(site, axes, "folded-halving", folded_halving)


def _two_rings_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    return _sums_only(site, axes, "two-level-ring", two_level_ring)


def _sums_only(
    site: Site,
    axes: tuple[int, ...],
    name: str,
    pattern: Callable[[int, CollectivePart], MessagePattern],
) -> AlgorithmStage:
    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if part in ("exchange", "broadcast"):
            return Refusal(reason=f"{name} does all-reduce, all-gather and reduce-scatter only")
        return pattern(site.size(axes), part)

    return AlgorithmStage(axes=axes, make=make)


def _two_rings(site: Site) -> list[AlgorithmStage] | Refusal:
    if site.inside:
        return Refusal(reason="two-level-ring runs between nodes; use hierarchical")
    return [_two_rings_stage(site, site.only(NODES))]


def _halving_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    # On a whole torus partners shall be neighbours, which the Gray code of its places gives.
    size = site.size(axes)
    level = site.grid.levels[axes[0]]
    power = size & (size - 1) == 0
    order = None
    if power and level >= 0:
        spec = site.placement.fabric.levels[level].level
        if isinstance(spec, Torus) and size == site.placement.fabric.levels[level].count:
            order = gray_order(spec.shape)

    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if not power:
            return Refusal(reason=f"halving needs a power of two, not {size}")
        if part in ("exchange", "broadcast"):
            return Refusal(reason="halving does all-reduce, all-gather and reduce-scatter only")
        return halving(size, part)

    return AlgorithmStage(axes=axes, make=make, order=order)


def _mesh(site: Site) -> list[AlgorithmStage] | Refusal:
    cores, nodes = site.only(CORES), site.only(NODES)
    chips = tuple(axis for axis in site.inside if axis not in cores)
    return [_direct_stage(site, axes) for axes in (cores, chips, nodes) if axes]


def _everyone(site: Site) -> list[AlgorithmStage] | Refusal:
    axes = tuple(range(len(site.grid.levels)))
    if site.algorithm.by_level:
        return [_direct_stage(site, (axis,)) for axis in reversed(axes)]
    return [_direct_stage(site, axes)]


def _single_step(site: Site) -> list[AlgorithmStage] | Refusal:
    axes = tuple(range(len(site.grid.levels)))

    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if part != "reduce":
            return Refusal(reason="single-step-mesh does all-reduce only")
        return single_step(site.size(axes))

    return [AlgorithmStage(axes=axes, make=make)]


def _tree_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if part not in ("reduce", "broadcast"):
            return Refusal(reason="tree does all-reduce and broadcast only")
        return tree(site.size(axes), part, site.algorithm.pieces)

    return AlgorithmStage(axes=axes, make=make)


def _tree(site: Site) -> list[AlgorithmStage] | Refusal:
    return [_tree_stage(site, tuple(range(len(site.grid.levels))))]


def _in_switch(site: Site) -> list[AlgorithmStage] | Refusal:
    if len(site.grid.levels) != 1 or site.grid.levels[0] < 0:
        return Refusal(reason="in-switch reduction needs a group of chips on one switch")
    spec = site.placement.fabric.levels[site.grid.levels[0]].level
    name = site.placement.platform.instance.name
    if not isinstance(spec, Switch) or not spec.reduces:
        return Refusal(reason=f"{name} has no switch that reduces")
    size = site.size((0,))
    least = spec.reduces_from_chips or 2
    if size < least:
        return Refusal(reason=f"{name} reduces in its switch from {least} chips on, not {size}")

    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if part == "exchange":
            return Refusal(reason="in-switch reduction does no all-to-all")
        return in_switch(size, part, site.algorithm.pieces)

    return [AlgorithmStage(axes=(0,), make=make)]


_STAGES: Mapping[str, Callable[[Site], list[AlgorithmStage] | Refusal]] = {
    "ring": _ring,
    "two-level-ring": _two_rings,
    "kangaring": _kangaring,
    "halving": _halving,
    "folded-halving": _folded_halving,
    "mesh": _mesh,
    "single-step-mesh": _single_step,
    "direct": _everyone,
    "tree": _tree,
    "in-switch": _in_switch,
    "hierarchical": lambda _: Refusal(reason="hierarchical does not nest in itself"),
}


def _ring_between(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    orders = np.arange(site.size(axes))[None, :]
    return AlgorithmStage(axes=axes, make=_ring_maker(site, orders))


_BETWEEN_NODES: Mapping[str, Callable[[Site, tuple[int, ...]], AlgorithmStage]] = {
    "ring": _ring_between,
    "two-level-ring": _two_rings_stage,
    "halving": _halving_stage,
    "folded-halving": _folded_stage,
    "direct": _direct_stage,
    "mesh": _direct_stage,
    "tree": _tree_stage,
}
