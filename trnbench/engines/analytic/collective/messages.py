"""The messages of a placed phase, grouped into classes of equal latency and load."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from trnbench.engines.analytic.collective.shape import ChunkPipeline, MessageClasses, PhaseProfile
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.records import replace
from trnbench.machine.fabric import LinkKind
from trnbench.machine.message_plan.pieces import flow_of
from trnbench.machine.message_plan.placed import Placed, PlacedRound

KINDS = tuple(LinkKind)
_DIGITS = 12  # Digits within which messages count as equal: rounding noise is smaller
_HOPS = 8  # Columns of a message's table in front of the latencies of its hops
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
    """The profile of a phase, or of some of its rounds.

    `lines` such lines of ranks run side by side; `lines_on` counts them on each link of a node.
    """
    rounds = placed.rounds_of(index) if rounds is None else rounds
    pattern = placed.steps[index].pattern
    each_link = np.ones(1, dtype=np.int64)
    if lines_on is not None:
        each_link = np.append(np.tile(lines_on, placed.link_count // len(lines_on)), 1)
    # Side by side, like lines add their loads on the links they share.
    loads = [link_loads(placed, played) * each_link for played in rounds]
    needs = [_needs(placed, played, load) for played, load in zip(rounds, loads, strict=True)]
    pipeline = None
    if pattern.pipelined and rounds:
        one_way, needs = _one_of_each(rounds, needs)
        pipeline = ChunkPipeline(
            flow=flow_of(one_way),
            latency_s=np.concatenate([found.latency_s for found in one_way]),
            remote=np.concatenate([found.remote for found in one_way]),
            s_per_byte=np.concatenate(needs, axis=1),
        )
        # Its critical ways tell its time: nobody asks for classes.
        distinct = [(np.zeros((0, _HOPS)), np.zeros(0, np.int64))] * len(rounds)
    else:
        distinct = [
            _distinct(_table(placed, played, need, each_link))
            for played, need in zip(rounds, needs, strict=True)
        ]
    wide = max((rows.shape[1] for rows, _ in distinct), default=_HOPS)
    rows = np.full((sum(len(rows) for rows, _ in distinct), wide), -1.0)
    first = 0
    for table, _ in distinct:
        rows[first : first + len(table), : table.shape[1]] = table
        first += len(table)
    return PhaseProfile(
        relays=pattern.relays,
        times=np.array([played.times for played in rounds], dtype=np.int64),
        counts=np.array([len(table) for table, _ in distinct], dtype=np.int64),
        adds=np.array([played.adds for played in rounds]),
        fanout=np.array([played.fanout for played in rounds], dtype=np.int64),
        classes=MessageClasses(
            count=np.concatenate([np.zeros(0, np.int64), *(counts for _, counts in distinct)])
            * lines,
            latency_s=rows[:, 0],
            remote=rows[:, 1] > 0,
            busiest_s_per_byte=rows[:, 2:5].T,
            share=rows[:, 5],
            alone_s_per_byte=rows[:, 6],
            queue=rows[:, 7].astype(np.int64),
            hop_latencies_s=rows[:, _HOPS:],
        ),
        pipeline=pipeline,
        loads=sum(
            (load * played.times for load, played in zip(loads, rounds, strict=True)),
            start=np.zeros(placed.link_count + 1),
        ),
    )


def _one_of_each(
    rounds: tuple[PlacedRound, ...], needs: list[FloatArray]
) -> tuple[tuple[PlacedRound, ...], list[FloatArray]]:
    """Rounds cut to one of each set of equal ways, and their needs."""
    # Only messages of one way wait for each other; loads of the other ways are already in the
    # needs.
    # Sorted by way, the messages of one way are a slice of the table: slices are compared by bytes.
    way = np.concatenate([found.way for found in rounds])
    order = np.argsort(way, kind="stable")
    ends = np.cumsum(np.bincount(way))
    number = np.repeat(np.arange(len(rounds)), [len(found.way) for found in rounds])
    columns = [np.concatenate([getattr(found, name) for found in rounds]) for name in _OF_A_WAY]
    table = np.stack([number, *columns, *np.concatenate(needs, axis=1)], axis=1)[order]
    first: dict[bytes, int] = {}
    for index, (start, end) in enumerate(pairwise([0, *ends.tolist()])):
        own = table[start:end]
        # Lines that run side by side differ by where their first rank is.
        own[:, _ENDS] -= own[:, _ENDS].min()
        first.setdefault(own.tobytes(), index)
    chosen = np.zeros(len(ends), dtype=np.bool_)
    chosen[[*first.values()]] = True
    here = [chosen[found.way] for found in rounds]
    kept = tuple(_part(found, at) for found, at in zip(rounds, here, strict=True))
    return kept, [need[:, at] for need, at in zip(needs, here, strict=True)]


def _part(found: PlacedRound, at: BoolArray) -> PlacedRound:
    return replace(found, **{name: getattr(found, name)[at] for name in ("links", *_OF_A_MESSAGE)})


def link_loads(placed: Placed, found: PlacedRound) -> FloatArray:
    """Share of the collective's size on each link in one round; the last entry is for no link."""
    weights = np.repeat(found.share, found.links.shape[1])
    counts = np.bincount(found.links.ravel(), weights=weights, minlength=placed.link_count + 1)
    return counts.astype(float)


def seconds(loads: FloatArray, capacity: FloatArray) -> FloatArray:
    """Seconds per byte on each link, loads over bytes/s; a dead link has no load."""
    return np.divide(loads, capacity, out=np.zeros_like(loads), where=loads > 0)


def _needs(placed: Placed, found: PlacedRound, load: FloatArray) -> FloatArray:
    """Seconds per byte of the busiest link of each kind on each path, [kind, message]."""
    need = seconds(load, placed.capacity)
    per_kind = np.where(placed.kind == np.array(KINDS)[:, None], need, 0.0)
    # A stack slows each kind of link by a share of its own, so the busiest of every kind is kept.
    busiest = per_kind[:, found.links[:, 0]]
    for hop in found.links.T[1:]:
        np.maximum(busiest, per_kind[:, hop], out=busiest)
    return busiest


def _table(placed: Placed, found: PlacedRound, need: FloatArray, lines_on: IntArray) -> FloatArray:
    """Properties by which classes differ, [message, column]; latencies of hops come last."""
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
    """Distinct rows (up to rounding noise), sorted, and the number of times each occurs."""
    # Columns differ by many orders of magnitude (seconds, shares), so each is rounded by its own
    # scale.
    scale = np.abs(table).max(axis=0)
    scale[scale == 0] = 1.0
    rounded = np.round(table / scale, _DIGITS)
    # Most columns are equal in all rows, and sorting by them would be the larger part of the work.
    uneven = np.flatnonzero((rounded != rounded[0]).any(axis=0))
    if not len(uneven):
        return table[:1], np.array([len(table)])
    order = np.lexsort(rounded.T[uneven[::-1]])
    ordered = rounded[order][:, uneven]
    first = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1)))
    return table[order[first]], np.diff(first, append=len(table))
