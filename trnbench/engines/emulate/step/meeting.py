"""Mutual delay of two kinds of exchange that run at the same time on the same nodes.

Both are played at once, each with all groups of its kind: groups of tensor ranks beside replicas
that reduce gradients, on the links and adapters that they share. 0: they take as long as the longer
one alone; 1: as long as one after the other.
"""

from __future__ import annotations

import math

import numpy as np

from trnbench.engines.emulate.collective.streams import ChunkStream, play_together
from trnbench.engines.emulate.step.exchanges import PlayedExchanges, PlayedSite
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.group_places import GroupPlace
from trnbench.machine.message_plan.plan import chunks_of
from trnbench.machine.message_plan.select import selected_for
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp
from trnbench.program.slots import Purpose, ending_of, purpose_of

NODES_AT_ONCE = 64
"""Kinds that begin anew together only after more nodes than this are not played at once."""


def gradient_traffic(exchanges: PlayedExchanges, blocks: tuple[Block, ...]) -> dict[Purpose, float]:
    """Share of each purpose's exchanges in slots that holds up the reduction of gradients.

    The largest exchange of each purpose meets the reduction. Exchanges that cannot be played
    together take turns where both run between nodes, and do not meet otherwise.
    """
    ops = [op for block in blocks for op in block.collectives if float(op.count)]
    reduced = [op for op in ops if op.phase == "optimizer" and ending_of(op) == "reduce"]
    if not reduced:
        return {}
    # Sorted by size, so the last one kept of each purpose is its largest exchange.
    gradients = max(reduced, key=_size)
    inside: dict[Purpose, CollectiveOp] = {}
    for op in sorted(ops, key=_size):
        if op.phase != "optimizer":
            inside[purpose_of(op.axis)] = op
    return {purpose: _meeting(exchanges, gradients, op) for purpose, op in inside.items()}


def _size(op: CollectiveOp) -> float:
    return float(op.size_bytes)


def _meeting(exchanges: PlayedExchanges, one: CollectiveOp, other: CollectiveOp) -> float:
    both = exchanges.lane(one) == exchanges.lane(other) == "network"
    places = [exchanges.where(op) for op in (one, other)]
    site = exchanges.site
    used = math.lcm(*(place[4] for place in places))
    if min(place[0] for place in places) <= 1:
        return 0.0
    if used > NODES_AT_ONCE * site.node_ranks:
        return float(both)
    streams = [
        _stream(site, op.op, (*place[:4], used), _size(op))
        for op, place in zip((one, other), places, strict=True)
    ]
    if len({(one.placed.of_one_node, one.placed.link_count) for one in streams}) > 1:
        return float(both)
    alone = [play_together([stream]).end_s[0] for stream in streams]
    # Of the longer one, as much as goes on beside the shorter one.
    short, long = sorted((0, 1), key=lambda number: alone[number])
    whole = streams[long]
    streams[long] = replace(whole, size_bytes=whole.size_bytes * alone[short] / alone[long])
    alone[long] = play_together([streams[long]]).end_s[0]
    together = max(play_together(streams).end_s)
    return float(np.clip((together - max(alone)) / min(alone), 0.0, 1.0))


def _stream(site: PlayedSite, op: Op, where: GroupPlace, size_bytes: float) -> ChunkStream:
    choices, size = site.choice(op, where), np.array([size_bytes])
    found = choices[int(selected_for(choices, size)[0])]
    return ChunkStream(
        placed=found.placed,
        tuning=found.tuning,
        size_bytes=size_bytes,
        chunks=int(chunks_of(found.tuning, len(found.placed.steps), size)[0]),
    )
