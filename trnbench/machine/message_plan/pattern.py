"""What an algorithm does on one line of ranks: rounds of messages between positions.

All messages of a round read what the rounds before have left. The buffer is cut into `blocks`, and
each block into `channels` equal parts that travel different ways at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Literal

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record, replace

# scatter: block i ends reduced at position i. gather: the reverse, without adding. reduce: both, in
# one. exchange: position i's part for j ends at j. broadcast: position 0's buffer ends everywhere.
CollectivePart = Literal["scatter", "gather", "reduce", "exchange", "broadcast"]


class Fan(Enum):
    """A message has one source and one target, or a switch joins or copies on the way."""

    POINT = "point"
    IN = "in"
    OUT = "out"


class Messages(Record, eq=False):
    """A batch of messages of one round, between positions of a line.

    A message carries the blocks `block` to `block + count - 1` of its channel; where `origin` is
    given, the part of position `origin` meant for position `block`. With `Fan.IN` every position
    sends and the switch adds; with `Fan.OUT` every position receives: `source` (or `target`) is -1.
    """

    source: IntArray
    target: IntArray
    block: IntArray
    count: IntArray
    channel: IntArray
    reduces: bool
    fan: Fan = Fan.POINT
    origin: IntArray | None = None

    def sent_by(self, sources: IntArray | None) -> Messages:
        """Return the messages that these positions send, all if none are named."""
        if sources is None:
            return self
        kept = np.isin(self.source, sources)
        return replace(
            self,
            source=self.source[kept],
            target=self.target[kept],
            block=self.block[kept],
            count=self.count[kept],
            channel=self.channel[kept],
            origin=None if self.origin is None else self.origin[kept],
        )


class MessagePattern(Record, eq=False):
    """An algorithm on a line of `positions` ranks; `part` is what its rounds achieve.

    `relays`: each rank passes on what it has just received round a ring, so a slow hop is paid once
    a lap, not once a round. `pipelined`: pieces follow each other along a tree or chain, so latency
    is paid along the way, not once a piece. `alike`: every position does the same, so one of them
    shows the load of all. `distinct_rounds`: (round, times) of rounds that differ in their
    messages' ends or sizes, in order. `along`: the rings or pairs of positions that messages
    follow, where there are any.
    """

    name: str
    part: CollectivePart
    positions: int
    blocks: int
    channels: int = 1
    relays: bool = False
    pipelined: bool = False
    alike: bool = True
    distinct_rounds: tuple[tuple[int, int], ...]
    send: Callable[[int, IntArray | None], tuple[Messages, ...]]
    along: IntArray | None = None

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return the messages of a round; with `sources`, only those sent by these positions."""
        return self.send(round_, sources)

    @property
    def identity(self) -> Hashable:
        """A key by which equal patterns are found again."""
        sizes = self.positions, self.blocks, self.channels, self.distinct_rounds
        along = None if self.along is None else self.along.tobytes()
        return self.name, self.part, sizes, self.alike, along


def all_positions(positions: int, sources: IntArray | None) -> IntArray:
    """Return the sending positions: those asked for, or all."""
    return np.arange(positions) if sources is None else sources
