"""Recursive halving and doubling: log2 n rounds between partners ever nearer, or ever further."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.machine.message_plan.pattern import (
    CollectivePart,
    MessagePattern,
    Messages,
    all_positions,
)


def halving(positions: int, part: CollectivePart) -> MessagePattern:
    """Scatter by halving, gather by doubling, reduce by both; positions a power of two.

    Partners differ in one bit of their position, so a line whose order is a Gray code of a torus
    has every partner one link away. Every round differs in size.
    """
    steps = positions.bit_length() - 1

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        senders = all_positions(positions, sources)
        reduces = part == "scatter" or (part == "reduce" and round_ < steps)
        # The gather mirrors the scatter: its last exchange is between the partners furthest apart.
        step = round_ if reduces else 2 * steps - 1 - round_
        if part == "gather":
            step = steps - 1 - round_
        distance = positions >> (step + 1)
        # Partners exchange half of what is still at stake.
        partner = senders ^ distance
        # Scattering, a rank gives up the half that its partner keeps; gathering, it sends its own.
        kept_by = partner if reduces else senders
        return (
            Messages(
                source=senders,
                target=partner,
                block=kept_by & ~(distance - 1),
                count=np.full(len(senders), distance, dtype=np.int64),
                channel=0 * senders,
                reduces=reduces,
            ),
        )

    return MessagePattern(
        name="halving",
        part=part,
        positions=positions,
        blocks=positions,
        distinct_rounds=tuple((t, 1) for t in range(2 * steps if part == "reduce" else steps)),
        send=send,
    )


def gray_order(lengths: tuple[int, ...]) -> IntArray:
    """Row-major place of each label; labels one bit apart are torus neighbours.

    Every length must be a power of two; lengths over 4 keep one-bit partners one link away only for
    the lowest bits.
    """
    places = np.zeros(1, dtype=np.int64)
    for length in lengths:
        label = np.arange(length)
        # The inverse of the Gray code: the place on the ring whose code is this label.
        place = label.copy()
        shift = label >> 1
        while shift.any():
            place ^= shift
            shift >>= 1
        places = (places[:, None] * length + place[None, :]).ravel()
    return places
