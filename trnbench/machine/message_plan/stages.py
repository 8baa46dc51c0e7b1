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
from trnbench.machine.message_plan.algorithm import (
    ALGORITHMS,
    AlgorithmStage,
    CollectivePart,
    MessagePattern,
    Refusal,
    Site,
)
from trnbench.machine.message_plan.direct import direct, in_switch, single_step, tree
from trnbench.machine.message_plan.folded import gray_order, halving, two_level_ring
from trnbench.machine.message_plan.ring import chain, kangaring, ring, ring_exchange
from trnbench.machine.message_plan.ring_orders import rings_of
from trnbench.machine.placement import CORES, NODES, RankGrid

_SUMS: tuple[CollectivePart, ...] = ("scatter", "gather", "reduce")
_SUMS_ONLY = " does all-reduce, all-gather and reduce-scatter only"


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
    return [AlgorithmStage(axes=_all_axes(site), make=_ring_maker(site, orders))]


def _kangaring(site: Site) -> list[AlgorithmStage] | Refusal:
    cores, chips = site.only(CORES), [a for a in site.inside if site.grid.levels[a] != CORES]
    if site.only(NODES):
        return Refusal(reason="kangaring stays inside a node; use hierarchical between nodes")
    if site.size(cores) != site.placement.ranks_per_chip or not cores or not chips:
        return Refusal(reason="kangaring needs all ranks of each of several chips in the group")
    orders, per_chip = _orders(site, chips[-1]), site.size(cores)

    def make(part: CollectivePart) -> MessagePattern | Refusal:
        if part in _SUMS:
            return kangaring(orders, per_chip, part)
        return _ring_maker(site, _with_cores(orders, per_chip))(part)

    outer = [
        AlgorithmStage(axes=(axis,), make=_ring_maker(site, _orders(site, axis)))
        for axis in reversed(chips[:-1])
    ]
    return [AlgorithmStage(axes=(chips[-1], *cores), make=make), *outer]


def _stage(
    axes: tuple[int, ...],
    parts: tuple[CollectivePart, ...],
    refusal: str,
    make: Callable[[CollectivePart], MessagePattern],
    order: IntArray | None = None,
) -> AlgorithmStage:
    """Stage that does only these parts of a collective, and refuses the others in these words."""

    def made(part: CollectivePart) -> MessagePattern | Refusal:
        return make(part) if part in parts else Refusal(reason=refusal)

    return AlgorithmStage(axes=axes, make=made, order=order)


def _halved(
    site: Site, stage: Callable[[Site, tuple[int, ...]], AlgorithmStage]
) -> list[AlgorithmStage]:
    # Cores of a chip are all neighbours and few: they exchange directly, and partners halve beyond.
    cores = site.only(CORES)
    others = [axis for axis in range(len(site.grid.levels)) if axis not in cores]
    inside = [_direct_stage(site, cores)] if cores else []
    return [*inside, *(stage(site, (axis,)) for axis in reversed(others))]


def _folded_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    size, name = site.size(axes), "folded-halving"
    return _stage(axes, _SUMS, name + _SUMS_ONLY, lambda part: halving(size, part, name))


def _two_rings_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    refusal = f"two-level-ring{_SUMS_ONLY}"
    return _stage(axes, _SUMS, refusal, lambda part: two_level_ring(site.size(axes), part))


def _two_rings(site: Site) -> list[AlgorithmStage] | Refusal:
    if site.inside:
        return Refusal(reason="two-level-ring runs between nodes; use hierarchical")
    return [_two_rings_stage(site, site.only(NODES))]


def _halving_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    size = site.size(axes)
    if size & (size - 1):
        refusal = Refusal(reason=f"halving needs a power of two, not {size}")
        return AlgorithmStage(axes=axes, make=lambda _: refusal)
    # On a whole torus partners shall be neighbours, which the Gray code of its places gives.
    level, order = site.grid.levels[axes[0]], None
    if level >= 0:
        spec = site.placement.fabric.levels[level].level
        if isinstance(spec, Torus) and size == site.placement.fabric.levels[level].count:
            order = gray_order(spec.shape)
    return _stage(axes, _SUMS, f"halving{_SUMS_ONLY}", lambda part: halving(size, part), order)


def _mesh(site: Site) -> list[AlgorithmStage] | Refusal:
    cores, nodes = site.only(CORES), site.only(NODES)
    chips = tuple(axis for axis in site.inside if axis not in cores)
    return [_direct_stage(site, axes) for axes in (cores, chips, nodes) if axes]


def _everyone(site: Site) -> list[AlgorithmStage] | Refusal:
    axes = _all_axes(site)
    if site.algorithm.by_level:
        return [_direct_stage(site, (axis,)) for axis in reversed(axes)]
    return [_direct_stage(site, axes)]


def _all_axes(site: Site) -> tuple[int, ...]:
    return tuple(range(len(site.grid.levels)))


def _single_step(site: Site) -> list[AlgorithmStage] | Refusal:
    axes, refusal = _all_axes(site), "single-step-mesh does all-reduce only"
    return [_stage(axes, ("reduce",), refusal, lambda _: single_step(site.size(axes)))]


def _tree_stage(site: Site, axes: tuple[int, ...]) -> AlgorithmStage:
    size, pieces = site.size(axes), site.algorithm.pieces
    refusal = "tree does all-reduce and broadcast only"
    return _stage(axes, ("reduce", "broadcast"), refusal, lambda part: tree(size, part, pieces))


def _in_switch(site: Site) -> list[AlgorithmStage] | Refusal:
    if len(site.grid.levels) != 1 or site.grid.levels[0] < 0:
        return Refusal(reason="in-switch reduction needs a group of chips on one switch")
    spec = site.placement.fabric.levels[site.grid.levels[0]].level
    name = site.placement.platform.instance.name
    if not isinstance(spec, Switch) or not spec.reduces:
        return Refusal(reason=f"{name} has no switch that reduces")
    size, pieces = site.size((0,)), site.algorithm.pieces
    least = spec.reduces_from_chips or 2
    if size < least:
        return Refusal(reason=f"{name} reduces in its switch from {least} chips on, not {size}")
    parts, refusal = (*_SUMS, "broadcast"), "in-switch reduction does no all-to-all"
    return [_stage((0,), parts, refusal, lambda part: in_switch(size, part, pieces))]


_STAGES: Mapping[str, Callable[[Site], list[AlgorithmStage] | Refusal]] = {
    "ring": _ring,
    "two-level-ring": _two_rings,
    "kangaring": _kangaring,
    "halving": lambda site: _halved(site, _halving_stage),
    "folded-halving": lambda site: _halved(site, _folded_stage),
    "mesh": _mesh,
    "single-step-mesh": _single_step,
    "direct": _everyone,
    "tree": lambda site: [_tree_stage(site, _all_axes(site))],
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
