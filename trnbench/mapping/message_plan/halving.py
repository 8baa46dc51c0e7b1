"""Recursive halving and doubling: log2 n rounds between partners ever nearer, or ever further."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.arrays import IntArray
from trnbench.mapping.message_plan.pattern import CollectivePart, Messages, all_positions


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Halving:
    """Scatter by halving, gather by doubling, reduce by both; positions a power of two.

    Partners differ in one bit of their position, so a line whose order is a Gray code of a torus
    has every partner one link away.
    """

    positions: int
    part: CollectivePart
    name: str = "halving"
    channels: int = 1
    relays: bool = False
    pipelined: bool = False
    alike: bool = True

    @property
    def blocks(self) -> int:
        """One block a rank."""
        return self.positions

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """Every round differs in size."""
        steps = self.positions.bit_length() - 1
        return tuple((t, 1) for t in range(2 * steps if self.part == "reduce" else steps))

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return each position exchanging half of what is still at stake with its partner."""
        steps = self.positions.bit_length() - 1
        senders = all_positions(self.positions, sources)
        reduces = self.part == "scatter" or (self.part == "reduce" and round_ < steps)
        step = round_ if self.part == "scatter" or reduces else 2 * steps - 1 - round_
        if self.part == "gather":
            step = steps - 1 - round_
        distance = self.positions >> (step + 1)
        partner = senders ^ distance
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


def gray_order(lengths: tuple[int, ...]) -> IntArray:
    """Return the row-major place of each label, labels one bit apart being torus neighbours.

    Every length must be a power of two; lengths over 4 keep one-bit partners one link away only
    for the lowest bits.
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
