"""What a placed collective asks of its links, free of size and stack: the input of closed forms.

Messages of a round that meet the same latency and the same load are one class. Loads are seconds
per byte of the collective's size at the links' full speed. Phases that ask the same of one node,
up to the share of the size that they carry, are looked at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trnbench.mapping.fabric import Fabric, IntArray, LinkKind
from trnbench.mapping.message_plan.build import node_lines
from trnbench.mapping.message_plan.pattern import identity
from trnbench.mapping.message_plan.pieces import Flow, flow_of
from trnbench.mapping.message_plan.placed import Placed, PlacedRound

FloatArray = NDArray[np.float64]
KINDS = tuple(LinkKind)
_DIGITS = 12
_HOPS = 8
_OF_A_WAY = ("source", "target", "piece", "latency_s", "share", "remote")
_ENDS = slice(1, 3)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MessageClasses:
    """Messages alike: `count` of each class, their path's latency, its busiest link of each kind.

    `busiest_s_per_byte[kind, class]` counts all messages that share the link; `alone_s_per_byte` is
    one message by itself on the narrowest link of its path, of `hop_latencies_s[class, hop]` (-1:
    none); `queue` is how many messages leave through its first link.
    """

    count: IntArray
    latency_s: FloatArray
    remote: NDArray[np.bool_]
    busiest_s_per_byte: FloatArray
    share: FloatArray
    alone_s_per_byte: FloatArray
    hop_latencies_s: FloatArray
    queue: IntArray

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.count)

    def part(self, which: slice) -> MessageClasses:
        """Return some of the classes."""
        return MessageClasses(
            count=self.count[which],
            latency_s=self.latency_s[which],
            remote=self.remote[which],
            busiest_s_per_byte=self.busiest_s_per_byte[:, which],
            share=self.share[which],
            alone_s_per_byte=self.alone_s_per_byte[which],
            hop_latencies_s=self.hop_latencies_s[which],
            queue=self.queue[which],
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RoundProfile:
    """`times` rounds alike: their messages, which begin at class `first` of their phase."""

    times: int
    first: int
    classes: MessageClasses


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """The busiest link of one level that several lanes use, over the whole collective.

    `s_per_byte` at full speed. A link of one lane needs no mention: the lane is busy longer.
    """

    kind: LinkKind
    s_per_byte: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pipeline:
    """The messages of a pipelined phase: what waits for what, latency and [kind] need of each."""

    flow: Flow
    latency_s: FloatArray
    remote: NDArray[np.bool_]
    s_per_byte: FloatArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PhaseProfile:
    """The distinct rounds of a phase: `times[round]` each, of `counts[round]` of the `classes`.

    `adds[round]`: the largest share a rank adds up in one; `fanout[round]`: the messages that a
    rank sends at once; `loads[link]`: the share of the size that all rounds move over a link.
    """

    relays: bool
    times: IntArray
    counts: IntArray
    adds: FloatArray
    fanout: IntArray
    classes: MessageClasses
    pipeline: Pipeline | None
    loads: FloatArray

    @property
    def rounds(self) -> tuple[RoundProfile, ...]:
        """The rounds one by one."""
        ends = np.cumsum(self.counts)
        return tuple(
            RoundProfile(
                times=int(times),
                first=int(end - count),
                classes=self.classes.part(slice(int(end - count), int(end))),
            )
            for times, count, end in zip(self.times, self.counts, ends, strict=True)
        )

    def scaled(self, factor: float) -> PhaseProfile:
        """Return the same phase where every message carries that many times as much."""
        if factor == 1:
            return self
        found = self.classes
        classes = MessageClasses(
            count=found.count,
            latency_s=found.latency_s,
            remote=found.remote,
            busiest_s_per_byte=found.busiest_s_per_byte * factor,
            share=found.share * factor,
            alone_s_per_byte=found.alone_s_per_byte * factor,
            hop_latencies_s=found.hop_latencies_s,
            queue=found.queue,
        )
        pipeline = self.pipeline and replace(
            self.pipeline, s_per_byte=self.pipeline.s_per_byte * factor
        )
        return PhaseProfile(
            relays=self.relays,
            times=self.times,
            counts=self.counts,
            adds=self.adds * factor,
            fanout=self.fanout,
            classes=classes,
            pipeline=pipeline,
            loads=self.loads * factor,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Profile:
    """Phases and resources of one placed collective; chunks take turns on each `lanes[phase]`."""

    ranks: int
    lanes: tuple[int, ...]
    phases: tuple[PhaseProfile, ...]
    resources: tuple[Resource, ...]
    add_s_per_byte: float


PhaseMemo: TypeAlias = dict[Hashable, tuple[float, PhaseProfile]]
"""Phases of a platform that have been looked at, with the share that each block had there."""


def profile(placed: Placed, memo: PhaseMemo | None = None) -> Profile:
    """Return the profile of a placed collective; a `memo` serves all placements of one platform.

    `add_s_per_byte`: one pass over a rank's memory for each byte of the collective.
    """
    phases = tuple(_phase(placed, index, memo) for index in range(len(placed.steps)))
    return Profile(
        ranks=placed.ranks,
        lanes=tuple(step.lane for step in placed.steps),
        phases=phases,
        resources=_resources(placed, phases),
        add_s_per_byte=1 / placed.placement.memory_bandwidth_per_rank_bytes_per_s,
    )


def _phase(placed: Placed, index: int, memo: PhaseMemo | None) -> PhaseProfile:
    key = None if memo is None else _alike(placed, index)
    if memo is None or key is None:
        return _profiled(placed, index)
    step = placed.steps[index]
    unit = placed.outlines[0].share_per_block[step.level]
    if key not in memo:
        memo[key] = unit, _profiled(placed, index)
    known, found = memo[key]
    return found.scaled(unit / known)


def _alike(placed: Placed, index: int) -> Hashable | None:
    """Return what phases that ask the same of a node share; None where more has to be known."""
    members = placed.members
    if members.local is None or placed.op == "broadcast" or placed.placement.fabric.faulty:
        return None
    lines_of: dict[Hashable, list[IntArray]] = {}
    ways = np.array(members.ways)
    for grid, found in enumerate(placed.outlines):
        step = found.steps[index]
        lines = node_lines(found, step)
        if step.pattern.positions > lines.shape[1] > 1:
            return None
        ranks = members.local[ways == grid] if len(placed.outlines) > 1 else members.local
        lines_of.setdefault(identity(step.pattern), []).append(
            ranks[:, lines].reshape(-1, lines.shape[1])
        )
    key = []
    for pattern, parts in lines_of.items():
        rows = np.concatenate(parts)
        # Lines stand side by side: their order does not matter.
        key.append((pattern, rows.shape, rows[np.argsort(rows[:, 0])].tobytes()))
    return frozenset(key)


def _profiled(placed: Placed, index: int) -> PhaseProfile:
    rounds = placed.rounds_of(index)
    pattern = placed.steps[index].pattern
    loads = [link_loads(placed, one) for one in rounds]
    needs = [_needs(placed, one, load) for one, load in zip(rounds, loads, strict=True)]
    kept, each = rounds, 1
    if pattern.pipelined and rounds:
        kept, needs, each = _one_of_each(rounds, needs)
    found = [_distinct(_table(placed, one, need)) for one, need in zip(kept, needs, strict=True)]
    wide = max((rows.shape[1] for rows, _ in found), default=_HOPS)
    rows = np.full((sum(len(rows) for rows, _ in found), wide), -1.0)
    first = 0
    for own, _ in found:
        rows[first : first + len(own), : own.shape[1]] = own
        first += len(own)
    return PhaseProfile(
        relays=pattern.relays,
        times=np.array([one.times for one in rounds], dtype=np.int64),
        counts=np.array([len(own) for own, _ in found], dtype=np.int64),
        adds=np.array([one.adds for one in rounds]),
        fanout=np.array([one.fanout for one in rounds], dtype=np.int64),
        classes=MessageClasses(
            count=np.concatenate([np.zeros(0, np.int64), *(counts for _, counts in found)]) * each,
            latency_s=rows[:, 0],
            remote=rows[:, 1] > 0,
            busiest_s_per_byte=rows[:, 2:5].T,
            share=rows[:, 5],
            alone_s_per_byte=rows[:, 6],
            queue=rows[:, 7].astype(np.int64),
            hop_latencies_s=rows[:, _HOPS:],
        ),
        pipeline=_pipeline(kept, needs) if pattern.pipelined and rounds else None,
        loads=sum(
            (load * one.times for load, one in zip(loads, rounds, strict=True)),
            start=np.zeros(placed.link_count + 1),
        ),
    )


def _one_of_each(
    rounds: tuple[PlacedRound, ...], needs: list[FloatArray]
) -> tuple[tuple[PlacedRound, ...], list[FloatArray], int]:
    """Return the rounds with one of those ways only that do the same, and how many that stands for.

    Only messages of one way wait for each other; what others carry is in their needs already.
    """
    way = np.concatenate([found.way for found in rounds])
    order = np.argsort(way, kind="stable")
    ends = np.cumsum(np.bincount(way))
    number = np.repeat(np.arange(len(rounds)), [len(found.way) for found in rounds])
    columns = [np.concatenate([getattr(found, name) for found in rounds]) for name in _OF_A_WAY]
    table = np.stack([number, *columns, *np.concatenate(needs, axis=1)], axis=1)[order]
    first: dict[bytes, int] = {}
    marks = []
    for index, (start, end) in enumerate(pairwise([0, *ends.tolist()])):
        own = table[start:end]
        # Lines that run side by side differ by where their first rank is.
        own[:, _ENDS] -= own[:, _ENDS].min()
        marks.append(own.tobytes())
        first.setdefault(marks[-1], index)
    ways = len(marks)
    each, rest = divmod(ways, len(first))
    if rest or any(count != each for count in Counter(marks).values()):
        return rounds, needs, 1
    chosen = np.zeros(ways, dtype=np.bool_)
    chosen[list(first.values())] = True
    here = [chosen[found.way] for found in rounds]
    kept = tuple(_part(found, at) for found, at in zip(rounds, here, strict=True))
    return kept, [need[:, at] for need, at in zip(needs, here, strict=True)], each


def _part(found: PlacedRound, at: NDArray[np.bool_]) -> PlacedRound:
    return replace(
        found,
        source=found.source[at],
        target=found.target[at],
        links=found.links[at],
        latency_s=found.latency_s[at],
        share=found.share[at],
        remote=found.remote[at],
        way=found.way[at],
        piece=found.piece[at],
    )


def lanes(profile: Profile) -> list[list[int]]:
    """Return the phases of each lane, in order."""
    return [
        [phase for phase, found in enumerate(profile.lanes) if found == lane]
        for lane in sorted(set(profile.lanes))
    ]


def link_loads(placed: Placed, found: PlacedRound) -> FloatArray:
    """Return each link's share of the collective's size in one round; the last entry is nothing."""
    weights = np.repeat(found.share, found.links.shape[1])
    counts = np.bincount(found.links.ravel(), weights=weights, minlength=placed.link_count + 1)
    return counts.astype(float)


def _pipeline(rounds: tuple[PlacedRound, ...], needs: list[FloatArray]) -> Pipeline:
    return Pipeline(
        flow=flow_of(rounds),
        latency_s=np.concatenate([found.latency_s for found in rounds]),
        remote=np.concatenate([found.remote for found in rounds]),
        s_per_byte=np.concatenate(needs, axis=1),
    )


def _seconds(loads: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return loads over speeds; a dead link carries nothing."""
    return np.divide(loads, capacity, out=np.zeros_like(loads), where=loads > 0)


def _needs(placed: Placed, found: PlacedRound, load: FloatArray) -> FloatArray:
    """Return [kind, message] the busiest link of each kind on each path, s per byte."""
    need = _seconds(load, placed.capacity)
    per_kind = np.where(placed.kind == np.array(KINDS)[:, None], need, 0.0)
    busiest = per_kind[:, found.links[:, 0]]
    for hop in found.links.T[1:]:
        np.maximum(busiest, per_kind[:, hop], out=busiest)
    return busiest


def _table(placed: Placed, found: PlacedRound, need: FloatArray) -> FloatArray:
    """Return [message, column]: what is told of classes, with the hops at the end."""
    none = placed.link_count
    narrowest = placed.capacity[found.links].min(axis=1)
    latency = np.append(placed.placement.fabric.latency, 0.0)
    local = found.links % placed.placement.fabric.links_per_node
    hops = np.where(found.links == none, -1.0, latency[local])
    crossed = np.bincount(found.links.ravel(), minlength=none + 1)
    return np.column_stack(
        [
            found.latency_s,
            found.remote,
            *need,
            found.share,
            found.share / narrowest,
            crossed[found.links[:, 0]],
            hops,
        ]
    )


def _distinct(table: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return distinct rows (up to rounding noise), sorted, and how often each stands there."""
    scale = np.abs(table).max(axis=0)
    scale[scale == 0] = 1.0
    rounded = np.round(table / scale, _DIGITS)
    uneven = np.flatnonzero((rounded != rounded[0]).any(axis=0))
    if not len(uneven):
        return table[:1], np.array([len(table)])
    order = np.lexsort(rounded.T[uneven[::-1]])
    ordered = rounded[order][:, uneven]
    first = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1)))
    return table[order[first]], np.diff(first, append=len(table))


def _resources(placed: Placed, phases: tuple[PhaseProfile, ...]) -> tuple[Resource, ...]:
    """Return for each level of links its busiest one over all phases, if several lanes use it."""
    fabric = placed.placement.fabric
    lanes_of = np.array([step.lane for step in placed.steps])
    if len(set(lanes_of.tolist())) < 2:
        return ()
    loads = np.stack([phase.loads for phase in phases])
    need = _seconds(loads, np.broadcast_to(placed.capacity, loads.shape))[:, :-1]
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
