"""What a placed collective asks of its links, free of size and stack: the input of closed forms.

Messages of a round that meet the same latency and the same load are one class. Loads are seconds
per byte of the collective's size at the links' full speed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trnbench.mapping.fabric import LinkKind
from trnbench.mapping.message_plan.pieces import Flow, flow_of
from trnbench.mapping.message_plan.placed import Placed, PlacedRound

FloatArray = NDArray[np.float64]
KINDS = tuple(LinkKind)
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageClass:
    """Messages alike: `count` of them, with their path's latency and its busiest link of each kind.

    `busiest_s_per_byte[kind]` counts all messages that share the link; `alone_s_per_byte` is one
    message by itself on the narrowest link of its path, of `hop_latencies_s`; `queue` is how many
    messages leave through its first link.
    """

    count: int
    latency_s: float
    remote: bool
    busiest_s_per_byte: tuple[float, float, float]
    share: float
    alone_s_per_byte: float
    hop_latencies_s: tuple[float, ...]
    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProfile:
    """`times` rounds alike, of one phase; `adds` is the largest share a rank adds up in one."""

    phase: int
    times: int
    relays: bool
    pipelined: bool
    adds: float
    fanout: int
    classes: tuple[MessageClass, ...]


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

    phase: int
    flow: Flow
    latency_s: FloatArray
    remote: NDArray[np.bool_]
    s_per_byte: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Rounds and resources of one placed collective; chunks take turns on each `lanes[phase]`."""

    ranks: int
    lanes: tuple[int, ...]
    rounds: tuple[RoundProfile, ...]
    resources: tuple[Resource, ...]
    pipelines: tuple[Pipeline, ...]
    add_s_per_byte: float


def profile(placed: Placed) -> Profile:
    """Return the profile of a placed collective.

    `add_s_per_byte`: one pass over a rank's memory for each byte of the collective.
    """
    phases = placed.plan.phases
    rounds = tuple(
        RoundProfile(
            phase=found.phase,
            times=found.times,
            relays=phases[found.phase].pattern.relays,
            pipelined=phases[found.phase].pattern.pipelined,
            adds=found.adds,
            fanout=found.fanout,
            classes=_classes(placed, found),
        )
        for found in placed.rounds
    )
    return Profile(
        ranks=placed.ranks,
        lanes=tuple(phase.lane for phase in phases),
        rounds=rounds,
        resources=_resources(placed),
        pipelines=tuple(
            _pipeline(placed, index)
            for index, phase in enumerate(phases)
            if phase.pattern.pipelined
        ),
        add_s_per_byte=1 / placed.placement.memory_bandwidth_per_rank_bytes_per_s,
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


def _pipeline(placed: Placed, phase: int) -> Pipeline:
    rounds = [found for found in placed.rounds if found.phase == phase]
    return Pipeline(
        phase=phase,
        flow=flow_of(rounds),
        latency_s=np.concatenate([found.latency_s for found in rounds]),
        remote=np.concatenate([found.remote for found in rounds]),
        s_per_byte=np.concatenate([_needs(placed, found) for found in rounds], axis=1),
    )


def _seconds(loads: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return loads over speeds; a dead link carries nothing."""
    return np.divide(loads, capacity, out=np.zeros_like(loads), where=loads > 0)


def _needs(placed: Placed, found: PlacedRound) -> FloatArray:
    """Return [kind, message] the busiest link of each kind on each path, s per byte."""
    need = _seconds(link_loads(placed, found), placed.capacity)
    per_link = need[found.links]
    kinds = placed.kind[found.links]
    return np.stack([np.where(kinds == kind, per_link, 0.0).max(axis=1) for kind in KINDS])


def _classes(placed: Placed, found: PlacedRound) -> tuple[MessageClass, ...]:
    none = placed.link_count
    per_kind = _needs(placed, found)
    narrowest = placed.capacity[found.links].min(axis=1)
    latency = np.append(placed.placement.fabric.latency, 0.0)
    local = found.links % placed.placement.fabric.links_per_node
    hops = np.where(found.links == none, -1.0, latency[local])
    crossed = np.bincount(found.links.ravel(), minlength=none + 1)
    queue = crossed[found.links[:, 0]]
    table = np.column_stack(
        [
            found.latency_s,
            found.remote,
            *per_kind,
            found.share,
            found.share / narrowest,
            queue,
            hops,
        ]
    )
    rows, counts = _distinct(table)
    return tuple(
        MessageClass(
            count=int(count),
            latency_s=float(row[0]),
            remote=bool(row[1]),
            busiest_s_per_byte=(float(row[2]), float(row[3]), float(row[4])),
            share=float(row[5]),
            alone_s_per_byte=float(row[6]),
            queue=int(row[7]),
            hop_latencies_s=tuple(float(hop) for hop in row[8:] if hop >= 0),
        )
        for row, count in zip(rows, counts, strict=True)
    )


def _distinct(table: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return distinct rows (up to rounding noise) and how often each stands there."""
    scale = np.abs(table).max(axis=0)
    scale[scale == 0] = 1.0
    rounded = np.round(table / scale, _DIGITS)
    if (rounded == rounded[0]).all():
        return table[:1], np.array([len(table)])
    _, first, counts = np.unique(rounded, axis=0, return_index=True, return_counts=True)
    return table[first], counts


def _resources(placed: Placed) -> tuple[Resource, ...]:
    """Return for each level of links its busiest one over all phases, if several lanes use it."""
    fabric = placed.placement.fabric
    phases = len(placed.plan.phases)
    loads = np.zeros((phases, placed.link_count + 1))
    for found in placed.rounds:
        loads[found.phase] += link_loads(placed, found) * found.times
    need = _seconds(loads, np.broadcast_to(placed.capacity, loads.shape))[:, :-1]
    total = need.sum(axis=0)
    names = sorted({link.level for link in fabric.links})
    level_of = np.array([names.index(link.level) for link in fabric.links])
    levels = level_of[np.arange(placed.link_count) % fabric.links_per_node]
    resources = []
    for level in range(len(names)):
        where = np.flatnonzero(levels == level)
        busiest = where[np.argmax(total[where])]
        using = {placed.plan.phases[phase].lane for phase in np.flatnonzero(need[:, busiest])}
        if len(using) > 1:
            resources.append(
                Resource(kind=LinkKind(int(placed.kind[busiest])), s_per_byte=float(total[busiest]))
            )
    return tuple(resources)
