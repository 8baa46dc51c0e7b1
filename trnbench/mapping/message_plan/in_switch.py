"""Reduction and copying inside a switch (NVLink SHARP): each rank sends its data once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.arrays import IntArray
from trnbench.errors import GapError, unhandled
from trnbench.mapping.message_plan.pattern import CollectivePart, Fan, Messages


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InSwitch:
    """Position j owns block j: the switch adds all copies on the way to it, and spreads its result.

    A reduce works in `pieces`: while one is copied out, the next is added.
    """

    positions: int
    part: CollectivePart
    pieces: int
    name: str = "in-switch"
    channels: int = 1
    relays: bool = False
    pipelined: bool = False
    alike: bool = True

    @property
    def blocks(self) -> int:
        """A block a position and piece; a broadcast has one."""
        match self.part:
            case "broadcast":
                return self.pieces
            case "reduce":
                return self.positions * self.pieces
            case "scatter" | "gather" | "exchange":
                return self.positions
            case _:
                unhandled(self.part, "blocks in a switch")

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """First piece in, both at once, last piece out."""
        if self.part != "reduce":
            return ((0, 1),)
        middle = ((1, self.pieces - 1),) if self.pieces > 1 else ()
        return ((0, 1), *middle, (self.pieces, 1))

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return the messages that the switch adds and those that it spreads in this round."""
        match self.part:
            case "scatter":
                return (self._fan(Fan.IN, 0),)
            case "gather":
                return (self._fan(Fan.OUT, 0),)
            case "broadcast":
                return (self._spread(),)
            case "reduce":
                into = (self._fan(Fan.IN, round_),) if round_ < self.pieces else ()
                out = (self._fan(Fan.OUT, round_ - 1),) if round_ > 0 else ()
                return into + out
            case _:
                raise GapError(self.part, "messages through a switch")

    def _fan(self, fan: Fan, piece: int) -> Messages:
        owner = np.arange(self.positions)
        nobody = np.full(self.positions, -1, dtype=np.int64)
        return Messages(
            source=nobody if fan is Fan.IN else owner,
            target=owner if fan is Fan.IN else nobody,
            block=owner + piece * self.positions,
            count=np.ones(self.positions, dtype=np.int64),
            channel=0 * owner,
            reduces=fan is Fan.IN,
            fan=fan,
        )

    def _spread(self) -> Messages:
        zero = np.zeros(1, dtype=np.int64)
        return Messages(
            source=zero,
            target=zero - 1,
            block=zero,
            count=zero + self.pieces,
            channel=zero,
            reduces=False,
            fan=Fan.OUT,
        )
