"""Few rounds: straight to all others or in pairs, up and down trees, or through a switch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.machine.message_plan.algorithm import (
    CollectivePart,
    Fan,
    MessagePattern,
    Messages,
    all_positions,
    messages,
)


def _to_others(senders: IntArray, positions: int) -> tuple[IntArray, IntArray]:
    # Targets begin right behind each sender and never include it.
    source = np.repeat(senders, positions - 1)
    step = np.tile(np.arange(1, positions), len(senders))
    return source, (source + step) % positions


def direct(positions: int, part: CollectivePart, blocks: int) -> MessagePattern:
    """Pattern in which each position sends straight to every other: one round, or two for a reduce.

    A reduce scatters, then gathers. A broadcast loads its root alone.
    """
    whole = part == "broadcast"

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        senders = all_positions(positions, sources)
        # Of a broadcast only the root has data.
        source, target = _to_others(senders[senders == 0] if whole else senders, positions)
        gathers = part == "gather" or (part == "reduce" and round_ == 1)
        sent = messages(
            source,
            target,
            0 * source if whole else source if gathers else target,
            count=blocks if whole else 1,
            reduces=part == "scatter" or (part == "reduce" and round_ == 0),
            origin=source if part == "exchange" else None,
        )
        return (sent,)

    return MessagePattern(
        name="direct",
        part=part,
        positions=positions,
        blocks=blocks,
        # All positions but a root send alike: one node then shows the load of all.
        alike=not whole,
        distinct_rounds=((0, 1), (1, 1)) if part == "reduce" else ((0, 1),),
        send=send,
    )


def single_step(positions: int) -> MessagePattern:
    """All-reduce in one round: each position sends its whole buffer to all, which add locally."""

    def send(_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        source, target = _to_others(all_positions(positions, sources), positions)
        # One round costs one latency, but each rank sends positions - 1 times its buffer.
        return (messages(source, target, 0 * source, reduces=True),)

    return MessagePattern(
        name="single-step-mesh",
        part="reduce",
        positions=positions,
        blocks=1,
        distinct_rounds=((0, 1),),
        send=send,
    )


def pairwise(positions: int, pairs: IntArray, *, alike: bool) -> MessagePattern:
    """Permute and send-receive: the whole buffer of each pair's source goes to its target.

    `alike`: each node's positions send as the first node's do, as many nodes further on.
    """
    source, target = pairs[:, 0], pairs[:, 1]
    every = messages(source, target, target, origin=source)
    return MessagePattern(
        name="direct",
        part="exchange",
        positions=positions,
        blocks=positions,
        alike=alike,
        distinct_rounds=((0, 1),),
        send=lambda _, sources: (every.sent_by(sources),),
        along=pairs,
    )


def in_switch(positions: int, part: CollectivePart, pieces: int) -> MessagePattern:
    """Pattern of a switch (NVLink SHARP) that adds all copies of a block, and spreads results.

    A reduce works in `pieces`: while one is copied out, the next is added. A broadcast has only one
    block a piece. There is no exchange.
    """
    both = part == "reduce"
    # Between the first and the last piece every round looks alike: one in, one out.
    middle = ((1, pieces - 1),) if pieces > 1 else ()
    owner = np.arange(positions)
    # The switch is no position: the end of a message that is all positions at once is -1.
    nobody = np.full(positions, -1, dtype=np.int64)

    def send(round_: int, _: IntArray | None) -> tuple[Messages, ...]:
        if part == "broadcast":
            root = np.zeros(1, dtype=np.int64)
            return (messages(root, root - 1, root, count=pieces, fan=Fan.OUT),)
        sent = []
        if part == "scatter" or (both and round_ < pieces):
            block = owner + round_ * positions
            sent.append(messages(nobody, owner, block, reduces=True, fan=Fan.IN))
        if part == "gather" or (both and round_ > 0):
            block = owner + (round_ - both) * positions
            sent.append(messages(owner, nobody, block, fan=Fan.OUT))
        return tuple(sent)

    return MessagePattern(
        name="in-switch",
        part=part,
        positions=positions,
        blocks=pieces if part == "broadcast" else positions * pieces if both else positions,
        # First piece in, both at once, last piece out.
        distinct_rounds=((0, 1), *middle, (pieces, 1)) if both else ((0, 1),),
        send=send,
    )


@lru_cache(maxsize=256)
def _tree(positions: int) -> tuple[IntArray, IntArray]:
    """Parent and depth of each position; root 0, odd positions are the leaves."""
    # NCCL's tree: the binary number of a place alone gives its parent, for any number of ranks.
    parent = np.full(positions, -1, dtype=np.int64)
    for place in range(1, positions):
        # The lowest bit set is a position's height; its parent clears that bit and sets the next.
        bit = place & -place
        above = (place ^ bit) | (bit << 1)
        parent[place] = above if above < positions else place ^ bit
    depth = np.zeros(positions, dtype=np.int64)
    for place in range(1, positions):
        at = place
        while parent[at] >= 0:
            at = int(parent[at])
            depth[place] += 1
    return parent, depth


def tree(positions: int, part: CollectivePart, blocks: int) -> MessagePattern:
    """All-reduce up and down two trees at once, or broadcast down one, in `blocks` pieces.

    One channel a tree. The second tree mirrors (or shifts) the first, so a leaf of one works in the
    other and both halves of the data load every rank alike.
    """
    # Piece p goes down to depth d in round p + d - 1, after the way up in a reduce. Up from depth d
    # it goes in round p + deepest - d, when it has come together from all children.
    parent, depth = _tree(positions)
    deepest = int(depth.max())
    both = part == "reduce"
    channels = 2 if both else 1

    def second(place: IntArray) -> IntArray:
        # Leaves of the first tree are odd places. Mirrored, or shifted by one for an odd number,
        # the second tree has its leaves on even places.
        return positions - 1 - place if positions % 2 == 0 else (place + 1) % positions

    def batch(source: IntArray, target: IntArray, piece: IntArray, *, reduces: bool) -> Messages:
        # Before the pipeline is full, and once it drains, some edges have no piece to carry.
        moving = (piece >= 0) & (piece < blocks)
        source, target, piece = source[moving], target[moving], piece[moving]
        return messages(
            np.concatenate([source, second(source)][:channels]),
            np.concatenate([target, second(target)][:channels]),
            np.tile(piece, channels),
            channel=np.repeat(np.arange(channels), len(piece)),
            reduces=reduces,
        )

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        # Pieces on their way down (copied) and up (added).
        child = np.arange(1, positions)
        down = round_ - (deepest if both else 0) - (depth[child] - 1)
        batches = [batch(parent[child], child, down, reduces=False)]
        if both:
            up = round_ - (deepest - depth[child])
            batches.append(batch(child, parent[child], up, reduces=True))
        sent = (one.sent_by(sources) for one in batches)
        return tuple(one for one in sent if len(one.source))

    # Every round differs: the pipeline fills, runs and drains.
    levels = 2 * deepest if both else deepest
    return MessagePattern(
        name="tree",
        part=part,
        positions=positions,
        blocks=blocks,
        channels=channels,
        pipelined=True,
        alike=False,
        distinct_rounds=tuple((t, 1) for t in range(blocks + levels - 1)),
        send=send,
    )
