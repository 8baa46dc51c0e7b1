"""The profile of a placed collective: each phase is profiled on the smallest part that decides it.

Phases with the same needs on one node, up to the share of the size, are profiled once; likewise
their rounds, whatever a rank adds up and however much a message carries. A ring's scatter and
gather send between the same ends, and all parts of halving do. On lines of one rank per node every
message goes to another node: there the rounds of a ring over few nodes and over many are equal, and
all rounds of halving are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import numpy as np

from trnbench.engines.analytic.collective.messages import profiled, seconds
from trnbench.engines.analytic.collective.shape import (
    MessageClasses,
    PhaseProfile,
    Profile,
    Resource,
)
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record, fields, replace
from trnbench.machine.fabric import Fabric, LinkKind
from trnbench.machine.message_plan.algorithm import Fan, MessagePattern
from trnbench.machine.message_plan.build import node_lines
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.rails import one_rail

PhaseMemo: TypeAlias = dict[Hashable, tuple[float, PhaseProfile]]
"""Profiled phases of a platform, each with the share of the size that a block had there."""


class _Round(Record, eq=False):
    """Equal rounds of a phase."""

    round_: int
    times: int  # Number of such rounds that follow one another
    ends: Hashable  # Key: senders, receivers and relative sizes of the messages
    blocks: float  # Size of the smallest message, in blocks
    adds: float  # Most blocks that one rank adds up in a round


def remembered(
    key: Hashable, memo: PhaseMemo | None, unit: float, look: Callable[[], PhaseProfile]
) -> PhaseProfile:
    """A phase whose blocks have the share `unit`, scaled from the remembered one if any."""
    if memo is None:
        return look()
    if key not in memo:
        memo[key] = unit, look()
    # Loads are proportional to the share of a block: one profile serves every number of nodes.
    known_unit, phase = memo[key]
    return phase.scaled(unit / known_unit)


def phase_of_rounds(
    placed: Placed, index: int, memo: PhaseMemo, unit: float, lines: Hashable
) -> PhaseProfile | None:
    """A phase assembled from remembered rounds; None where its rounds cannot be told apart.

    `lines` are the lines of ranks of the phase on a node, all of one pattern.
    """
    outline = placed.outlines[0]
    step = outline.steps[index]
    width = node_lines(outline, step).shape[1]
    # Rounds of a pipelined phase depend on one another, so they have no times of their own.
    rounds = None if step.pattern.pipelined else _rounds(step.pattern, width)
    if not rounds:
        return None
    parts = []
    for round_ in rounds:

        def look(round_: _Round = round_) -> PhaseProfile:
            played = placed.round_of(index, round_.round_, 1)
            return profiled(placed, index, rounds=() if played is None else (played,))

        key = ("round", round_.ends, lines)
        parts.append(remembered(key, memo, unit * round_.blocks, look))
    return _joined(step.pattern, rounds, parts, unit)


def _rounds(pattern: MessagePattern, width: int) -> list[_Round] | None:
    """Distinct rounds of a pattern whose lines have `width` positions on a node."""
    wide = pattern.positions > width
    rounds = []
    for round_, times in pattern.distinct_rounds:
        batches = pattern.send(round_, np.arange(width) if wide else None) if times else ()
        if not batches:
            continue
        # Fans and mixed batches share links in ways that one pair of ends does not describe.
        if len(batches) > 1 or batches[0].fan is not Fan.POINT or not len(batches[0].source):
            return None
        (batch,) = batches
        least = int(batch.count.min())
        added = np.bincount(batch.target % width, weights=batch.count).max() if batch.reduces else 0
        # On lines of one rank a node all messages leave the node, whoever sends them.
        ends: Hashable = "elsewhere", batch.channel.tobytes()
        if not (wide and width == 1):
            ends = batch.source.tobytes(), batch.target.tobytes(), batch.channel.tobytes()
        rounds.append(
            _Round(
                round_=round_,
                times=times,
                ends=(pattern.channels, ends, (batch.count / least).tobytes()),
                blocks=float(least),
                adds=float(added),
            )
        )
    return rounds


def _joined(
    pattern: MessagePattern, rounds: list[_Round], parts: list[PhaseProfile], unit: float
) -> PhaseProfile:
    classes = [part.classes for part in parts]
    wide = max(found.hop_latencies_s.shape[1] for found in classes)

    def joined(name: str) -> Any:  # noqa: ANN401
        parts = [getattr(found, name) for found in classes]
        if name == "hop_latencies_s":
            return np.concatenate([_padded(hops, wide) for hops in parts])
        return np.concatenate(parts, axis=-1)

    return PhaseProfile(
        relays=pattern.relays,
        times=np.array([one.times for one in rounds], dtype=np.int64),
        counts=np.array([len(found) for found in classes], dtype=np.int64),
        adds=np.array([one.adds for one in rounds]) * (unit / pattern.channels),
        fanout=np.concatenate([part.fanout for part in parts]),
        classes=MessageClasses(**{one.name: joined(one.name) for one in fields(MessageClasses)}),
        pipeline=None,
        loads=np.asarray(
            sum(part.loads * one.times for one, part in zip(rounds, parts, strict=True))
        ),
    )


def _padded(hops: FloatArray, wide: int) -> FloatArray:
    missing = wide - hops.shape[1]
    return np.pad(hops, ((0, 0), (0, missing)), constant_values=-1.0) if missing else hops


def profile(placed: Placed, memo: PhaseMemo | None = None) -> Profile:
    """The profile of a placed collective; a `memo` serves all placements on one platform.

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
    """One phase, profiled on the least that decides it: a line, a node or the whole cluster."""
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
    # All rails are equal: one is placed, and `lines_on` counts how many share each link.
    key = (step.pattern.identity, rail.links, rail.lines)

    def many_lines() -> PhaseProfile:
        found = profiled(rail.placed, 0, lines=rail.lines, lines_on=rail.lines_on)
        return _of_a_node(rail.placed.placement.fabric, found)

    return remembered(key, memo, unit, many_lines)


def _of_a_node(fabric: Fabric, phase: PhaseProfile) -> PhaseProfile:
    # Where nodes differ, the busiest one stands for all: links of a place are compared over nodes.
    by_node = phase.loads[:-1].reshape(fabric.nodes, fabric.links_per_node)
    return replace(phase, loads=np.append(by_node.max(axis=0), phase.loads[-1]))


def _of_lines(placed: Placed, index: int, memo: PhaseMemo | None, unit: float) -> PhaseProfile:
    """The phase profiled on one node in place of all, where its lines of ranks allow."""
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
    """Key, pattern and ranks of the lines of a phase on a node; None where these do not decide it.

    Phases with equal lines have equal loads on a node.
    """
    members = placed.members
    # A broadcast's root and faulty links make nodes differ, so one node cannot represent all.
    if members.local is None or placed.op == "broadcast" or placed.placement.fabric.faulty:
        return None
    lines_of: dict[Hashable, list[IntArray]] = {}
    patterns: dict[Hashable, MessagePattern] = {}
    ways = np.array(members.ways)
    for grid, outline in enumerate(placed.outlines):
        step = outline.steps[index]
        lines = node_lines(outline, step)
        # Several positions on each of several nodes: which messages leave a node depends on more
        # than the lines of one.
        if step.pattern.positions > lines.shape[1] > 1:
            return None
        mark = step.pattern.identity
        patterns[mark] = step.pattern
        ranks = members.local[ways == grid] if len(placed.outlines) > 1 else members.local
        lines_of.setdefault(mark, []).append(ranks[:, lines].reshape(-1, lines.shape[1]))
    key: list[tuple[Hashable, MessagePattern, Hashable]] = []
    for mark, parts in lines_of.items():
        rows = np.concatenate(parts)
        # Lines run in parallel: their order does not matter.
        ordered = rows[np.argsort(rows[:, 0])]
        key.append((mark, patterns[mark], (rows.shape, ordered.tobytes())))
    return key


def _resources(placed: Placed, phases: tuple[PhaseProfile, ...]) -> tuple[Resource, ...]:
    """The busiest link of each level over all phases, for levels that several lanes use."""
    fabric = placed.placement.fabric
    lanes_of = np.array([step.lane for step in placed.steps])
    if len(set(lanes_of.tolist())) < 2:
        return ()
    loads = np.stack([phase.loads for phase in phases])
    need = seconds(loads, np.broadcast_to(placed.capacity, loads.shape))[:, :-1]
    # A link that a single phase uses already lengthens that phase.
    shared = (need > 0).sum(axis=0) > 1
    if not shared.any():
        return ()
    total = need.sum(axis=0)
    names = sorted({link.level for link in fabric.links})
    number = np.array([names.index(link.level) for link in fabric.links])
    levels = number[np.arange(placed.link_count) % fabric.links_per_node]
    resources = []
    for level in range(int(levels.max()) + 1):
        where = np.flatnonzero(levels == level)
        busiest = where[np.argmax(total[where])]
        if len(set(lanes_of[need[:, busiest] > 0].tolist())) > 1:
            resources.append(
                Resource(kind=LinkKind(int(placed.kind[busiest])), s_per_byte=float(total[busiest]))
            )
    return tuple(resources)
