"""Arrival of pieces on a pipelined tree or chain: each waits for its own parts, not for a round.

A message leaves when its piece is whole at its source and the source has sent the piece before it
on the same way; it takes its transfer, then its latency. The chain of waits that ends last is the
critical way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.records import Record
from trnbench.machine.message_plan.placed import PlacedRound

_SPARSE = 64
"""Keys up to this multiple of their number are counted by a mark for each that may be."""


class PieceFlow(Record, eq=False):
    """Messages of a pipelined phase, round after round, and the waits between them."""

    piece_at_source: IntArray  # number of (way, source, piece)
    piece_at_target: IntArray  # number of (way, target, piece), in the same count
    sender: IntArray  # number of (way, source, target), which sends one at a time
    cuts: IntArray  # ends of rounds


class Arrival(Record, eq=False):
    """Arrival of the last piece, and the critical way to it.

    A message that does not end a hop only held up the next of its sender: its latency is not paid.
    """

    time_s: float
    messages: IntArray  # of the critical way
    ends_hop: BoolArray


def flow_of(rounds: Sequence[PlacedRound]) -> PieceFlow:
    """Messages of the rounds of one pipelined phase, and their waits."""
    way, source, target, piece = (
        np.concatenate([getattr(found, name) for found in rounds])
        for name in ("way", "source", "target", "piece")
    )
    # Keys are dense numbers: (way, rank, piece) and (way, source, target) index flat arrays below.
    ranks, pieces = int(max(source.max(), target.max())) + 1, int(piece.max()) + 1
    places = np.concatenate(
        [(way * ranks + source) * pieces + piece, (way * ranks + target) * pieces + piece]
    )
    place = _dense(places)
    sender = _dense((way * ranks + source) * ranks + target)
    return PieceFlow(
        piece_at_source=place[: len(way)],
        piece_at_target=place[len(way) :],
        sender=sender,
        cuts=np.cumsum([0, *(len(found.source) for found in rounds)]),
    )


def _dense(keys: IntArray) -> IntArray:
    """Number of each key among the distinct ones, which ascend."""
    most = int(keys.max())
    if most > _SPARSE * len(keys):
        return np.unique(keys, return_inverse=True)[1].astype(np.int64)
    there = np.zeros(most + 1, dtype=np.bool_)
    there[keys] = True
    return np.asarray((np.cumsum(there) - 1)[keys])


def last_arrival(flow: PieceFlow, start_s: FloatArray, through_s: FloatArray) -> Arrival:
    (found,) = last_arrivals(flow, start_s, through_s[None])
    return found


def last_arrivals(
    flow: PieceFlow, start_s: FloatArray, through_s: FloatArray
) -> tuple[Arrival, ...]:
    """Last arrival in each of several cases, which differ in `through_s[case]`."""
    cases, messages = through_s.shape
    through_s, nothing = np.ascontiguousarray(through_s.T), messages
    places = int(max(flow.piece_at_source.max(), flow.piece_at_target.max())) + 1
    senders = int(flow.sender.max()) + 1
    whole, made_by = np.zeros((places, cases)), np.full((places, cases), nothing)
    free, freed_by = np.zeros((senders, cases)), np.full((senders, 1), nothing)
    before = np.full((messages, cases), nothing)
    by_hop = np.zeros((messages, cases), dtype=bool)
    ends = np.zeros((messages, cases))
    # Messages of a round depend only on rounds before, so rounds are the steps of this loop. The
    # rule leaves at the later of two events: the piece is whole at the source, the way is free.
    for first, stop in pairwise(flow.cuts.tolist()):
        now, number = slice(first, stop), np.arange(first, stop)[:, None]
        at, to, sender = flow.piece_at_source[now], flow.piece_at_target[now], flow.sender[now]
        there, ready = whole.take(at, axis=0), free.take(sender, axis=0)
        hop = by_hop[now] = there >= ready
        before[now] = np.where(hop, made_by.take(at, axis=0), freed_by[sender])
        left = np.maximum(there, ready) + through_s[now]
        free[sender], freed_by[sender] = left, number
        end = ends[now] = left + start_s[now, None]
        # Of several parts of a piece the last to come counts, of equal ones the last named.
        old = whole.take(to, axis=0)
        for one in _each_once(to):
            place, came = to[one], end[one]
            known = whole[place]
            later = (came > old[one]) & (came >= known)
            whole[place] = np.where(later, came, known)
            made_by[place] = np.where(later, number[one], made_by[place])
    return tuple(_traced(*found, nothing) for found in zip(ends.T, before.T, by_hop.T, strict=True))


def _each_once(places: IntArray) -> list[slice] | list[IntArray]:
    """The messages in parts, of which each goes to a place once; those named first come first."""
    if np.bincount(places).max(initial=0) < 2:
        return [slice(None)]
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    nth = np.arange(len(places)) - np.searchsorted(ordered, ordered)
    return [order[nth == n] for n in range(int(nth.max()) + 1)]


def _traced(ends: FloatArray, before: IntArray, by_hop: BoolArray, nothing: int) -> Arrival:
    """Last arrival and the critical way, traced back from its end."""
    last = int(np.argmax(ends))
    way, paid = [], []
    pays = True
    while last != nothing:
        way.append(last)
        paid.append(pays)
        pays = bool(by_hop[last])
        last = int(before[last])
    return Arrival(
        time_s=float(ends.max()),
        messages=np.array(way[::-1], dtype=np.int64),
        ends_hop=np.array(paid[::-1], dtype=bool),
    )
