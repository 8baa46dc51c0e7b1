"""Binary trees: latency grows with the logarithm of the ranks, pieces follow one another."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.machine.message_plan.pattern import CollectivePart, MessagePattern, Messages


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

    def batch(source: IntArray, target: IntArray, piece: IntArray, *, reduces: bool) -> Messages:
        # Before the pipeline is full, and once it drains, some edges have no piece to carry.
        moving = (piece >= 0) & (piece < blocks)
        source, target, piece = source[moving], target[moving], piece[moving]
        source = np.concatenate([source, _second(source, positions)][:channels])
        target = np.concatenate([target, _second(target, positions)][:channels])
        return Messages(
            source=source,
            target=target,
            block=np.tile(piece, channels),
            count=np.ones(len(source), dtype=np.int64),
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


def _second(place: IntArray, positions: int) -> IntArray:
    # Leaves of the first tree are odd places. Mirrored, or shifted by one for an odd number, the
    # second tree has its leaves on even places.
    return positions - 1 - place if positions % 2 == 0 else (place + 1) % positions
