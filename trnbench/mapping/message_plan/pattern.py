"""What an algorithm does on one line of ranks: rounds of messages between positions.

All messages of a round read what the rounds before have left. The buffer is cut into `blocks`, and
each block into `channels` equal parts that travel different ways at the same time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

import numpy as np

from trnbench.arrays import IntArray

# scatter: block i ends reduced at position i. gather: the reverse, without adding. reduce: both, in
# one. exchange: position i's part for j ends at j. broadcast: position 0's buffer ends everywhere.
CollectivePart = Literal["scatter", "gather", "reduce", "exchange", "broadcast"]


class Fan(Enum):
    """A message has one source and one target, or a switch joins or copies on the way."""

    POINT = "point"
    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Messages:
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


class MessagePattern(Protocol):
    """An algorithm on a line of `positions` ranks.

    `relays`: each rank passes on what it has just received round a ring, so a slow hop is paid once
    a lap, not once a round. `pipelined`: pieces follow each other along a tree or chain, so latency
    is paid along the way, not once a piece. `alike`: every position does the same, so one of them
    shows the load of all.
    """

    @property
    def name(self) -> str:
        """The algorithm's name."""
        ...

    @property
    def part(self) -> CollectivePart:
        """What the rounds achieve."""
        ...

    @property
    def positions(self) -> int:
        """Ranks on the line."""
        ...

    @property
    def blocks(self) -> int:
        """Blocks the buffer is cut into."""
        ...

    @property
    def channels(self) -> int:
        """Equal parts of each block that travel separately."""
        ...

    @property
    def relays(self) -> bool:
        """Whether ranks pass on what they received in the round before."""
        ...

    @property
    def pipelined(self) -> bool:
        """Whether pieces follow each other without waiting for the slowest in every round."""
        ...

    @property
    def alike(self) -> bool:
        """Whether all positions carry the same load."""
        ...

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """(round, times): rounds that differ in their messages' ends or sizes, in order."""
        ...

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return the messages of a round; with `sources`, only those sent by these positions."""
        ...


def identity(pattern: MessagePattern) -> Hashable:
    """Return a key by which equal patterns are found again: type and fields."""
    found: list[Hashable] = [type(pattern).__name__]
    for name in getattr(type(pattern), "__dataclass_fields__", ()):
        value = getattr(pattern, name)
        found.append((value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value)
    return tuple(found)


def all_positions(positions: int, sources: IntArray | None) -> IntArray:
    """Return the sending positions: those asked for, or all."""
    return np.arange(positions) if sources is None else sources


def rounds(pattern: MessagePattern) -> int:
    """Return the number of rounds of a pattern."""
    return sum(times for _, times in pattern.distinct_rounds)
