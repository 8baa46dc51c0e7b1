"""The profile of a placed collective: its phases, each looked at where that takes least.

Phases that ask the same of one node, up to the share of the size that they carry, are looked at
once; so are their rounds (`collective_rounds`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from trnbench.analytic.collective.messages import profiled, seconds
from trnbench.analytic.collective.rounds import PhaseMemo, phase_of_rounds, remembered
from trnbench.analytic.collective.shape import PhaseProfile, Profile, Resource
from trnbench.arrays import IntArray
from trnbench.mapping.fabric import Fabric, LinkKind
from trnbench.mapping.message_plan.build import node_lines
from trnbench.mapping.message_plan.pattern import MessagePattern
from trnbench.mapping.message_plan.placed import Placed
from trnbench.mapping.message_plan.rails import Rail, one_rail


def profile(placed: Placed, memo: PhaseMemo | None = None) -> Profile:
    """Return the profile of a placed collective; a `memo` serves all placements of one platform.

    `add_s_per_byte`: one pass over a rank's memory for each byte of the collective.
    """
    phases = tuple(_phase(placed, index, memo) for index in range(len(placed.steps)))
    return Profile(
        ranks=placed.ranks,
        lanes=tuple(step.lane for step in placed.steps),
        phases=phases,
        resources=_resources(placed.on_a_node or placed, phases),
        add_s_per_byte=1 / placed.placement.memory_bandwidth_per_rank_bytes_per_s,
    )


def _phase(placed: Placed, index: int, memo: PhaseMemo | None) -> PhaseProfile:
    """Return one phase, looked at where that takes least: a line, a node, the whole cluster."""
    step, node = placed.steps[index], placed.on_a_node
    unit = placed.outlines[0].share_per_block[step.level]
    if node is None:
        return _of_lines(placed, index, memo, unit)
    if step.pattern.alike:
        # Other phases tell nodes apart, this one does not.
        return _of_lines(node, index, memo, unit)
    rail = one_rail(node, index)
    if rail is None:
        return _of_a_node(placed.placement.fabric, profiled(placed, index))
    key = (step.pattern.identity, rail.adapter, rail.lines, rail.lines_per_link)
    return remembered(key, memo, unit, lambda: _on_rail(rail))


def _on_rail(rail: Rail) -> PhaseProfile:
    """Return a phase that runs on many lines like one."""
    return _of_a_node(
        rail.placed.placement.fabric,
        profiled(rail.placed, 0, lines=rail.lines, lines_per_link=rail.lines_per_link),
    )


def _of_a_node(fabric: Fabric, phase: PhaseProfile) -> PhaseProfile:
    """Return a phase with the loads of one node: of each link, that on the node with most."""
    by_node = phase.loads[:-1].reshape(fabric.nodes, fabric.links_per_node)
    return replace(phase, loads=np.append(by_node.max(axis=0), phase.loads[-1]))


def _of_lines(placed: Placed, index: int, memo: PhaseMemo | None, unit: float) -> PhaseProfile:
    """Return a phase in which one node stands for all, where its lines allow."""
    lines = _lines(placed, index) if memo is not None else None
    if memo is None or lines is None:
        return profiled(placed, index)
    patterns = {mark: pattern for mark, pattern, _ in lines}
    key = frozenset((mark, rows) for mark, _, rows in lines)

    def look() -> PhaseProfile:
        found = None
        if len(patterns) == 1:
            found = phase_of_rounds(placed, index, memo, unit, lines[0][2])
        return profiled(placed, index) if found is None else found

    return remembered(key, memo, unit, look)


def _lines(placed: Placed, index: int) -> list[tuple[Hashable, MessagePattern, Hashable]] | None:
    """Return the lines of a phase on a node by pattern; None where more has to be known.

    Phases with like lines ask the same of a node.
    """
    members = placed.members
    if members.local is None or placed.op == "broadcast" or placed.placement.fabric.faulty:
        return None
    lines_of: dict[Hashable, list[IntArray]] = {}
    patterns: dict[Hashable, MessagePattern] = {}
    ways = np.array(members.ways)
    for grid, found in enumerate(placed.outlines):
        step = found.steps[index]
        lines = node_lines(found, step)
        if step.pattern.positions > lines.shape[1] > 1:
            return None
        mark = step.pattern.identity
        patterns[mark] = step.pattern
        ranks = members.local[ways == grid] if len(placed.outlines) > 1 else members.local
        lines_of.setdefault(mark, []).append(ranks[:, lines].reshape(-1, lines.shape[1]))
    key: list[tuple[Hashable, MessagePattern, Hashable]] = []
    for mark, parts in lines_of.items():
        rows = np.concatenate(parts)
        # Lines stand side by side: their order does not matter.
        ordered = rows[np.argsort(rows[:, 0])]
        key.append((mark, patterns[mark], (rows.shape, ordered.tobytes())))
    return key


def _resources(placed: Placed, phases: tuple[PhaseProfile, ...]) -> tuple[Resource, ...]:
    """Return for each level of links its busiest one over all phases, if several lanes use it."""
    fabric = placed.placement.fabric
    lanes_of = np.array([step.lane for step in placed.steps])
    if len(set(lanes_of.tolist())) < 2:
        return ()
    loads = np.stack([phase.loads for phase in phases])
    need = seconds(loads, np.broadcast_to(placed.capacity, loads.shape))[:, :-1]
    shared = (need > 0).sum(axis=0) > 1
    if not shared.any():
        return ()
    total = need.sum(axis=0)
    levels = _levels(fabric)[np.arange(placed.link_count) % fabric.links_per_node]
    resources = []
    for level in range(int(levels.max()) + 1):
        where = np.flatnonzero(levels == level)
        busiest = where[np.argmax(total[where])]
        if len(set(lanes_of[need[:, busiest] > 0].tolist())) > 1:
            resources.append(
                Resource(kind=LinkKind(int(placed.kind[busiest])), s_per_byte=float(total[busiest]))
            )
    return tuple(resources)


def _levels(fabric: Fabric) -> IntArray:
    """Return for each local link the number of its level, levels by name."""
    names = sorted({link.level for link in fabric.links})
    return np.array([names.index(link.level) for link in fabric.links])
