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
    place = np.unique(places, return_inverse=True)[1].astype(np.int64)
    sender = np.unique((way * ranks + source) * ranks + target, return_inverse=True)[1]
    return PieceFlow(
        piece_at_source=place[: len(way)],
        piece_at_target=place[len(way) :],
        sender=sender.astype(np.int64),
        cuts=np.cumsum([0, *(len(found.source) for found in rounds)]),
    )


def last_arrival(flow: PieceFlow, start_s: FloatArray, through_s: FloatArray) -> Arrival:
    (found,) = last_arrivals(flow, start_s, through_s[None])
    return found


def last_arrivals(
    flow: PieceFlow, start_s: FloatArray, through_s: FloatArray
) -> tuple[Arrival, ...]:
    """Last arrival in each of several cases, which differ in `through_s[case]`."""
    cases, messages = through_s.shape
    nothing = messages
    places = int(max(flow.piece_at_source.max(), flow.piece_at_target.max())) + 1
    senders = int(flow.sender.max()) + 1
    whole, made_by = np.zeros((cases, places)), np.full((cases, places), nothing)
    free, freed_by = np.zeros((cases, senders)), np.full(senders, nothing)
    before = np.full((cases, messages), nothing)
    by_hop = np.zeros((cases, messages), dtype=bool)
    ends = np.zeros((cases, messages))
    row = np.arange(cases)[:, None]
    # Messages of a round depend only on rounds before, so rounds are the steps of this loop. The
    # rule leaves at the later of two events: the piece is whole at the source, the way is free.
    for first, stop in pairwise(flow.cuts.tolist()):
        now = slice(first, stop)
        at, to, sender = flow.piece_at_source[now], flow.piece_at_target[now], flow.sender[now]
        there, ready = whole[:, at], free[:, sender]
        by_hop[:, now] = there >= ready
        before[:, now] = np.where(by_hop[:, now], made_by[:, at], freed_by[sender])
        left = np.maximum(there, ready) + through_s[:, now]
        free[:, sender], freed_by[sender] = left, np.arange(first, stop)
        end = ends[:, now] = left + start_s[now]
        # Of several parts of a piece the last counts: it is written last.
        order = np.argsort(end, axis=1, kind="stable")
        place, latest = to[order], np.take_along_axis(end, order, axis=1)
        case, later = np.nonzero(latest > whole[row, place])
        at_place = case, place[case, later]
        whole[at_place] = latest[case, later]
        made_by[at_place] = first + order[case, later]
    return tuple(_traced(*found, nothing) for found in zip(ends, before, by_hop, strict=True))


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
