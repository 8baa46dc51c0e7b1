"""Reduction and copying inside a switch (NVLink SHARP): each rank sends its data once."""

from __future__ import annotations

import numpy as np

from trnbench.errors import GapError, unhandled
from trnbench.facts.arrays import IntArray
from trnbench.machine.message_plan.pattern import CollectivePart, Fan, MessagePattern, Messages


def in_switch(positions: int, part: CollectivePart, pieces: int) -> MessagePattern:
    """Pattern of a switch that adds all copies of block j for position j, and spreads results.

    A reduce works in `pieces`: while one is copied out, the next is added. A broadcast has only one
    block a piece.
    """
    # Between the first and the last piece every round looks alike: one in, one out.
    middle = ((1, pieces - 1),) if pieces > 1 else ()

    def send(round_: int, _: IntArray | None) -> tuple[Messages, ...]:
        match part:
            case "scatter":
                return (_fan(positions, Fan.IN, 0),)
            case "gather":
                return (_fan(positions, Fan.OUT, 0),)
            case "broadcast":
                return (_spread(pieces),)
            case "reduce":
                into = (_fan(positions, Fan.IN, round_),) if round_ < pieces else ()
                out = (_fan(positions, Fan.OUT, round_ - 1),) if round_ > 0 else ()
                return into + out
            case _:
                raise GapError(part, "messages through a switch")

    return MessagePattern(
        name="in-switch",
        part=part,
        positions=positions,
        blocks=_blocks(positions, part, pieces),
        # First piece in, both at once, last piece out.
        distinct_rounds=((0, 1), *middle, (pieces, 1)) if part == "reduce" else ((0, 1),),
        send=send,
    )


def _blocks(positions: int, part: CollectivePart, pieces: int) -> int:
    match part:
        case "broadcast":
            return pieces
        case "reduce":
            return positions * pieces
        case "scatter" | "gather" | "exchange":
            return positions
        case _:
            unhandled(part, "blocks in a switch")


def _fan(positions: int, fan: Fan, piece: int) -> Messages:
    # The switch is no position: the end of a message that is all positions at once is -1.
    owner = np.arange(positions)
    nobody = np.full(positions, -1, dtype=np.int64)
    return Messages(
        source=nobody if fan is Fan.IN else owner,
        target=owner if fan is Fan.IN else nobody,
        block=owner + piece * positions,
        count=np.ones(positions, dtype=np.int64),
        channel=0 * owner,
        reduces=fan is Fan.IN,
        fan=fan,
    )


def _spread(pieces: int) -> Messages:
    zero = np.zeros(1, dtype=np.int64)
    return Messages(
        source=zero,
        target=zero - 1,
        block=zero,
        count=zero + pieces,
        channel=zero,
        reduces=False,
        fan=Fan.OUT,
    )
