"""From the messages of a placed phase to the classes that they fall into."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from trnbench.engines.analytic.collective.shape import ChunkPipeline, MessageClasses, PhaseProfile
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.records import replace
from trnbench.machine.fabric import LinkKind
from trnbench.machine.message_plan.pieces import flow_of
from trnbench.machine.message_plan.placed import Placed, PlacedRound

KINDS = tuple(LinkKind)
_DIGITS = 12
_HOPS = 8
_OF_A_WAY = ("source", "target", "piece", "latency_s", "share", "remote")
_OF_A_MESSAGE = (*_OF_A_WAY, "way")
_ENDS = slice(1, 3)


def profiled(
    placed: Placed,
    index: int,
    *,
    rounds: tuple[PlacedRound, ...] | None = None,
    lines: int = 1,
    lines_on: IntArray | None = None,
) -> PhaseProfile:
    """Return a phase, or some rounds; `lines` run alike, `lines_on` each link of a node."""
    rounds = placed.rounds_of(index) if rounds is None else rounds
    pattern = placed.steps[index].pattern
    each_link = np.ones(1, dtype=np.int64)
    if lines_on is not None:
        each_link = np.append(np.tile(lines_on, placed.link_count // len(lines_on)), 1)
    loads = [link_loads(placed, one) * each_link for one in rounds]
    needs = [_needs(placed, one, load) for one, load in zip(rounds, loads, strict=True)]
    kept, each = rounds, lines
    if pattern.pipelined and rounds:
        kept, needs, ways = _one_of_each(rounds, needs)
        each *= ways
    found = [
        _distinct(_table(placed, one, need, each_link))
        for one, need in zip(kept, needs, strict=True)
    ]
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
    """Return the rounds cut to one of each set of equal ways, their needs, and the size of a set.

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


def _part(found: PlacedRound, at: BoolArray) -> PlacedRound:
    return replace(found, **{name: getattr(found, name)[at] for name in ("links", *_OF_A_MESSAGE)})


def link_loads(placed: Placed, found: PlacedRound) -> FloatArray:
    """Return each link's share of the collective's size in one round; the last entry is nothing."""
    weights = np.repeat(found.share, found.links.shape[1])
    counts = np.bincount(found.links.ravel(), weights=weights, minlength=placed.link_count + 1)
    return counts.astype(float)


def _pipeline(rounds: tuple[PlacedRound, ...], needs: list[FloatArray]) -> ChunkPipeline:
    return ChunkPipeline(
        flow=flow_of(rounds),
        latency_s=np.concatenate([found.latency_s for found in rounds]),
        remote=np.concatenate([found.remote for found in rounds]),
        s_per_byte=np.concatenate(needs, axis=1),
    )


def seconds(loads: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return loads over speeds; a dead link carries nothing."""
    return np.divide(loads, capacity, out=np.zeros_like(loads), where=loads > 0)


def _needs(placed: Placed, found: PlacedRound, load: FloatArray) -> FloatArray:
    """Return [kind, message] the busiest link of each kind on each path, s per byte."""
    need = seconds(load, placed.capacity)
    per_kind = np.where(placed.kind == np.array(KINDS)[:, None], need, 0.0)
    busiest = per_kind[:, found.links[:, 0]]
    for hop in found.links.T[1:]:
        np.maximum(busiest, per_kind[:, hop], out=busiest)
    return busiest


def _table(placed: Placed, found: PlacedRound, need: FloatArray, lines_on: IntArray) -> FloatArray:
    """Return [message, column]: what distinguishes classes, with the hops at the end."""
    none = placed.link_count
    narrowest = placed.capacity[found.links].min(axis=1)
    latency = np.append(placed.placement.fabric.latency, 0.0)
    local = found.links % placed.placement.fabric.links_per_node
    hops = np.where(found.links == none, -1.0, latency[local])
    crossed = np.bincount(found.links.ravel(), minlength=none + 1) * lines_on
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
