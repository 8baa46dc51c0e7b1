"""Algorithms by name, refusals of one, the stages of a plan, and the patterns that stages run.

A pattern is an algorithm on one line of ranks: rounds of messages between positions. All messages
of a round read the state that the rounds before have left. The buffer is cut into `blocks`, and
each block into `channels` equal parts that travel different ways at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Literal

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.calibration.collective_stack import ALGORITHM_NAMES
from trnbench.facts.records import Record, replace

if TYPE_CHECKING:
    from trnbench.machine.placement import Placement, RankGrid

ALGORITHMS: tuple[str, ...] = ALGORITHM_NAMES


class Algorithm(Record):
    """Algorithm by name; `hierarchical` runs `inner` in the node and `outer` between nodes."""

    name: str
    inner: str | None = None
    outer: str | None = None
    one_way: bool = False  # only one direction of one ring
    by_level: bool = False  # direct goes level by level instead of straight across
    pieces: int = 16  # of the data, so that steps of trees, chains and switches overlap

    @property
    def label(self) -> str:
        """Name as shown, such as "hierarchical (kangaring, ring)"."""
        parts = [part for part in (self.inner, self.outer) if part]
        return f"{self.name} ({', '.join(parts)})" if parts else self.name


class Refusal(Record):
    """Reason that an algorithm cannot serve a group."""

    reason: str


class AlgorithmStage(Record, eq=False):
    """One level of a plan: lines of ranks, and the patterns they run."""

    axes: tuple[int, ...]  # of the grid, joined to one line
    make: Callable[[CollectivePart], MessagePattern | Refusal]
    order: IntArray | None = None  # of the ranks on a line


class Site(Record):
    """Setting in which stages are made: the cluster, the group's grid, the algorithm."""

    placement: Placement
    grid: RankGrid
    algorithm: Algorithm

    def size(self, axes: Sequence[int]) -> int:
        return math.prod(self.grid.ranks.shape[axis] for axis in axes)

    def only(self, *levels: int) -> tuple[int, ...]:
        return tuple(i for i, level in enumerate(self.grid.levels) if level in levels)

    @property
    def inside(self) -> tuple[int, ...]:
        from trnbench.machine.placement import NODES

        return tuple(i for i, level in enumerate(self.grid.levels) if level != NODES)


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


def messages(
    source: IntArray,
    target: IntArray,
    block: IntArray,
    *,
    count: IntArray | int = 1,
    channel: IntArray | int = 0,
    reduces: bool = False,
    fan: Fan = Fan.POINT,
    origin: IntArray | None = None,
) -> Messages:
    """Batch of messages; a single `count` or `channel` is that of each."""
    each = np.zeros(len(source), dtype=np.int64)
    return Messages(
        source=source,
        target=target,
        block=block,
        count=each + count,
        channel=each + channel,
        reduces=reduces,
        fan=fan,
        origin=origin,
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
    # (round, positions that send or None for all) -> messages
    send: Callable[[int, IntArray | None], tuple[Messages, ...]]
    along: IntArray | None = None  # rings or pairs of positions that messages follow

    @property
    def identity(self) -> Hashable:
        # `send` is a closure and compares by identity, so the key lists what it closes over.
        sizes = self.positions, self.blocks, self.channels, self.distinct_rounds
        along = None if self.along is None else self.along.tobytes()
        return self.name, self.part, sizes, self.alike, along


def all_positions(positions: int, sources: IntArray | None) -> IntArray:
    return np.arange(positions) if sources is None else sources
