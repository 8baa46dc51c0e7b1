"""Binary trees: latency grows with the logarithm of the ranks, pieces follow one another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trnbench.arrays import IntArray
from trnbench.mapping.message_plan.pattern import CollectivePart, Messages


@lru_cache(maxsize=256)
def _tree(positions: int) -> tuple[IntArray, IntArray]:
    """Return parent and depth of each position, root 0; odd positions are the leaves."""
    parent = np.full(positions, -1, dtype=np.int64)
    for place in range(1, positions):
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tree:
    """All-reduce up and down two trees at once, or broadcast down one, in `blocks` pieces.

    The second tree mirrors (or shifts) the first, so a leaf of one works in the other and both
    halves of the data load every rank alike.
    """

    positions: int
    part: CollectivePart
    blocks: int
    name: str = "tree"
    relays: bool = False
    pipelined: bool = True
    alike: bool = False

    @property
    def channels(self) -> int:
        """One channel a tree."""
        return 2 if self.part == "reduce" else 1

    @property
    def _depth(self) -> int:
        return int(_tree(self.positions)[1].max())

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """Every round: the pipeline fills, runs and drains."""
        levels = 2 * self._depth if self.part == "reduce" else self._depth
        return tuple((t, 1) for t in range(self.blocks + levels - 1))

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return pieces on their way up (added) and down (copied)."""
        parent, depth = _tree(self.positions)
        child = np.arange(1, self.positions)
        lead = self._depth if self.part == "reduce" else 0
        down = round_ - lead - (depth[child] - 1)
        batches = [self._batch(parent[child], child, down, sources, reduces=False)]
        if self.part == "reduce":
            up = round_ - (self._depth - depth[child])
            batches.append(self._batch(child, parent[child], up, sources, reduces=True))
        return tuple(batch for batch in batches if len(batch.source))

    def _other(self, place: IntArray) -> IntArray:
        """Return where the second tree puts what the first has at `place`."""
        even = self.positions % 2 == 0
        return self.positions - 1 - place if even else (place + 1) % self.positions

    def _batch(
        self,
        source: IntArray,
        target: IntArray,
        piece: IntArray,
        sources: IntArray | None,
        *,
        reduces: bool,
    ) -> Messages:
        moving = (piece >= 0) & (piece < self.blocks)
        source, target, piece = source[moving], target[moving], piece[moving]
        source = np.concatenate([source, self._other(source)][: self.channels])
        target = np.concatenate([target, self._other(target)][: self.channels])
        channel = np.repeat(np.arange(self.channels), len(piece))
        piece = np.tile(piece, self.channels)
        kept = np.ones(len(source), dtype=bool) if sources is None else np.isin(source, sources)
        return Messages(
            source=source[kept],
            target=target[kept],
            block=piece[kept],
            count=np.ones(int(kept.sum()), dtype=np.int64),
            channel=channel[kept],
            reduces=reduces,
        )
