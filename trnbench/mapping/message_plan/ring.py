"""Rings: each rank talks to its neighbours only, on one or several rings at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.arrays import IntArray
from trnbench.mapping.message_plan.pattern import CollectivePart, Messages, all_positions


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ring:
    """Scatter, gather or reduce round rings `orders[channel, place]`; full use of the links.

    In round t of the scatter, place q passes on the block of place q-1-t; the gather goes the same
    way with whole blocks.
    """

    orders: IntArray
    part: CollectivePart
    name: str = "ring"
    relays: bool = True
    pipelined: bool = False
    alike: bool = True

    @property
    def positions(self) -> int:
        """Ranks on the ring."""
        return int(self.orders.shape[1])

    @property
    def blocks(self) -> int:
        """One block a rank."""
        return self.positions

    @property
    def channels(self) -> int:
        """One channel a ring."""
        return int(self.orders.shape[0])

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """All rounds of the scatter look alike, and all of the gather."""
        laps = self.positions - 1
        return ((0, laps), (laps, laps)) if self.part == "reduce" else ((0, laps),)

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return one message a sender and ring."""
        size = self.positions
        senders = all_positions(size, sources)
        reduces = self.part == "scatter" or (self.part == "reduce" and round_ < size - 1)
        lag = 1 + round_ if reduces else round_ % (size - 1)
        channel = np.repeat(np.arange(self.channels), len(senders))
        if sources is None:
            place = np.tile(np.arange(size), self.channels)
        else:
            place = _places(self.orders)[:, senders].ravel()
        return (
            Messages(
                source=self.orders[channel, place],
                target=self.orders[channel, (place + 1) % size],
                block=self.orders[channel, (place - lag) % size],
                count=np.ones(len(place), dtype=np.int64),
                channel=channel,
                reduces=reduces,
            ),
        )


def _places(orders: IntArray) -> IntArray:
    """Return [channel, position] the place at which each position stands on each ring."""
    places = np.empty_like(orders)
    np.put_along_axis(places, orders, np.arange(orders.shape[1])[None, :], axis=1)
    return places


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RingExchange:
    """All-to-all round a ring: the part for distance d takes d hops, one distance after the other.

    `two_way`: near parts go forward and the others backward at the same time.
    """

    positions: int
    two_way: bool
    name: str = "ring"
    part: CollectivePart = "exchange"
    channels: int = 1
    relays: bool = False
    pipelined: bool = False
    alike: bool = True

    @property
    def blocks(self) -> int:
        """One part for every position."""
        return self.positions

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """Rounds with traffic both ways, then those with one way only."""
        forward, backward = self._reach()
        both = backward * (backward + 1) // 2
        rest = forward * (forward + 1) // 2 - both
        return tuple((at, times) for at, times in ((0, both), (both, rest)) if times)

    def _reach(self) -> tuple[int, int]:
        forward = self.positions // 2 if self.two_way else self.positions - 1
        return forward, self.positions - 1 - forward

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return the hop of every part on its way in this round."""
        size = self.positions
        senders = all_positions(size, sources)
        distance = 1
        while round_ >= distance:
            round_ -= distance
            distance += 1
        ways = (1, -1) if distance <= self._reach()[1] else (1,)
        ones = np.ones(len(senders), dtype=np.int64)
        return tuple(
            Messages(
                source=senders,
                target=(senders + way) % size,
                origin=(senders - way * round_) % size,
                block=(senders - way * round_ + way * distance) % size,
                count=ones,
                channel=0 * ones,
                reduces=False,
            )
            for way in ways
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Chain:
    """Broadcast from `orders[:, 0]` down each chain, in `blocks` pieces behind one another."""

    orders: IntArray
    blocks: int
    name: str = "ring"
    part: CollectivePart = "broadcast"
    relays: bool = False
    pipelined: bool = True
    alike: bool = False

    @property
    def positions(self) -> int:
        """Ranks on the chain."""
        return int(self.orders.shape[1])

    @property
    def channels(self) -> int:
        """One channel a chain."""
        return int(self.orders.shape[0])

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """Every round: the chain fills, runs and drains."""
        return tuple((t, 1) for t in range(self.blocks + self.positions - 2))

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return place q sending piece t - q to place q + 1."""
        place = np.arange(self.positions - 1)
        place = place[(round_ - place >= 0) & (round_ - place < self.blocks)]
        channel = np.repeat(np.arange(self.channels), len(place))
        place = np.tile(place, self.channels)
        source = self.orders[channel, place]
        kept = np.ones(len(place), dtype=bool) if sources is None else np.isin(source, sources)
        return (
            Messages(
                source=source[kept],
                target=self.orders[channel, place + 1][kept],
                block=(round_ - place)[kept],
                count=np.ones(int(kept.sum()), dtype=np.int64),
                channel=channel[kept],
                reduces=False,
            ),
        )
