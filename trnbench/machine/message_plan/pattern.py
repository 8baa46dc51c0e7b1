"""Pattern of an algorithm on one line of ranks: rounds of messages between positions.

All messages of a round read the state that the rounds before have left. The buffer is cut into
`blocks`, and each block into `channels` equal parts that travel different ways at the same time.
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
# Operations between given pairs (permute, send-receive) are exchanges with few parts.
CollectivePart = Literal["scatter", "gather", "reduce", "exchange", "broadcast"]


class Fan(Enum):
    """Ends of a message: one source and one target, or a switch that joins or copies on the way."""

    POINT = "point"
    IN = "in"
    OUT = "out"


class Messages(Record, eq=False):
    """Batch of messages of one round, between positions of a line; arrays are [message]."""

    source: IntArray  # -1 with `Fan.IN`: every position sends and the switch adds
    target: IntArray  # -1 with `Fan.OUT`: every position receives
    block: IntArray  # first block carried, of the channel
    count: IntArray  # blocks carried
    channel: IntArray  # part of each block: channels travel different ways at once
    reduces: bool  # the receiver adds the blocks to its own
    fan: Fan = Fan.POINT
    origin: IntArray | None = None  # of all-to-all: carries its part for position `block`

    def sent_by(self, sources: IntArray | None) -> Messages:
        """Messages that these positions send; all if none are named."""
        if sources is None:
            return self
        # All columns have one entry a message, so one mask cuts them all.
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
    """Algorithm on a line of `positions` ranks."""

    name: str
    part: CollectivePart  # result of its rounds
    positions: int
    blocks: int
    channels: int = 1
    relays: bool = False  # ranks pass on what just came: a slow hop is paid once a lap
    pipelined: bool = False  # pieces follow each other: latency is paid once along the way
    alike: bool = True  # every position does the same: one shows the load of all
    distinct_rounds: tuple[tuple[int, int], ...]  # (round, times), of different ends or sizes
    send: Callable[[int, IntArray | None], tuple[Messages, ...]]  # round, sources -> messages
    along: IntArray | None = None  # rings or pairs of positions that messages follow

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Messages of a round; with `sources`, only those of these positions."""
        return self.send(round_, sources)

    @property
    def identity(self) -> Hashable:
        """Key that equal patterns share."""
        # `send` is a closure and compares by identity, so the key lists what it closes over.
        sizes = self.positions, self.blocks, self.channels, self.distinct_rounds
        along = None if self.along is None else self.along.tobytes()
        return self.name, self.part, sizes, self.alike, along


def all_positions(positions: int, sources: IntArray | None) -> IntArray:
    """Sending positions: those asked for, or all."""
    return np.arange(positions) if sources is None else sources
