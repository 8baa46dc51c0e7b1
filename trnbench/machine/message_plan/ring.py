"""Rings: each rank talks to its neighbours only, on one or several rings at a time."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.machine.message_plan.pattern import (
    CollectivePart,
    MessagePattern,
    Messages,
    all_positions,
)


def ring(orders: IntArray, part: CollectivePart) -> MessagePattern:
    """Scatter, gather or reduce round rings `orders[channel, place]`, one channel a ring.

    In round t of the scatter, place q passes on the block of place q-1-t; the gather goes the same
    way with whole blocks. All rounds of the scatter look alike, and all of the gather.

        round 0   place 0 -d-> 1 -a-> 2 -b-> 3 -c-> 0       blocks a b c d of places 0 1 2 3
        round 1   place 0 -c-> 1 -d-> 2 -a-> 3 -b-> 0       after round 2 place q has block q
    """
    channels, size = orders.shape
    laps = size - 1

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        senders = all_positions(size, sources)
        reduces = part == "scatter" or (part == "reduce" and round_ < laps)
        # The scatter starts with the block behind the sender's own, so that its own arrives last,
        # with everybody's part in it. The gather starts from there, with the sender's own.
        lag = 1 + round_ if reduces else round_ % laps
        channel = np.repeat(np.arange(channels), len(senders))
        if sources is None:
            place = np.tile(np.arange(size), channels)
        else:
            place = _places(orders)[:, senders].ravel()
        return (
            Messages(
                source=orders[channel, place],
                target=orders[channel, (place + 1) % size],
                block=orders[channel, (place - lag) % size],
                count=np.ones(len(place), dtype=np.int64),
                channel=channel,
                reduces=reduces,
            ),
        )

    return MessagePattern(
        name="ring",
        part=part,
        positions=size,
        blocks=size,
        channels=channels,
        relays=True,
        distinct_rounds=((0, laps), (laps, laps)) if part == "reduce" else ((0, laps),),
        send=send,
        along=orders,
    )


def _places(orders: IntArray) -> IntArray:
    # The inverse of each ring's order: position -> its place on the ring.
    places = np.empty_like(orders)
    np.put_along_axis(places, orders, np.arange(orders.shape[1])[None, :], axis=1)
    return places


def ring_exchange(size: int, *, two_way: bool) -> MessagePattern:
    """All-to-all round a ring of `size` positions.

    The part for distance d takes d hops, one distance after the other. `two_way`: near parts go
    forward and the others backward at the same time.
    """
    # An even ring has one part exactly half way round: it goes forward.
    forward = size // 2 if two_way else size - 1
    backward = size - 1 - forward
    # Rounds with traffic both ways, then those with one way only.
    both = backward * (backward + 1) // 2
    rest = forward * (forward + 1) // 2 - both

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        senders = all_positions(size, sources)
        # Distance d takes d rounds: 1, then 2, ... After the loop `round_` is the hop within it.
        distance = 1
        while round_ >= distance:
            round_ -= distance
            distance += 1
        ways = (1, -1) if distance <= backward else (1,)
        ones = np.ones(len(senders), dtype=np.int64)
        return tuple(
            Messages(
                source=senders,
                target=(senders + way) % size,
                # After `round_` hops a rank holds the part of the rank as many places behind.
                origin=(senders - way * round_) % size,
                block=(senders - way * round_ + way * distance) % size,
                count=ones,
                channel=0 * ones,
                reduces=False,
            )
            for way in ways
        )

    return MessagePattern(
        name="ring",
        part="exchange",
        positions=size,
        blocks=size,
        distinct_rounds=tuple((at, times) for at, times in ((0, both), (both, rest)) if times),
        send=send,
    )


def chain(orders: IntArray, blocks: int) -> MessagePattern:
    """Broadcast from `orders[:, 0]` down each chain, in `blocks` pieces one by one."""
    channels, size = orders.shape

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        # Place q sends piece t - q to place q + 1.
        place = np.arange(size - 1)
        place = place[(round_ - place >= 0) & (round_ - place < blocks)]
        channel = np.repeat(np.arange(channels), len(place))
        place = np.tile(place, channels)
        every = Messages(
            source=orders[channel, place],
            target=orders[channel, place + 1],
            block=round_ - place,
            count=np.ones(len(place), dtype=np.int64),
            channel=channel,
            reduces=False,
        )
        return (every.sent_by(sources),)

    return MessagePattern(
        name="ring",
        part="broadcast",
        positions=size,
        blocks=blocks,
        channels=channels,
        pipelined=True,
        alike=False,
        # The chain fills over size - 2 rounds; then one piece a round reaches its end.
        distinct_rounds=tuple((t, 1) for t in range(blocks + size - 2)),
        send=send,
        along=orders,
    )
