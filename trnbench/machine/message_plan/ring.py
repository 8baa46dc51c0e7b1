"""Rings: each rank talks to its neighbours only, on one or several rings at a time.

On a KangaRing one primary rank per chip and ring acts for its chip: half the hops (or fewer) of a
ring over all ranks. The primary adds its neighbours' parts while the partial sum passes, and hands
copies to them while the result passes.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.records import replace
from trnbench.machine.message_plan.algorithm import (
    CollectivePart,
    MessagePattern,
    Messages,
    all_positions,
    messages,
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
        to, block = orders[channel, (place + 1) % size], orders[channel, (place - lag) % size]
        return (messages(orders[channel, place], to, block, channel=channel, reduces=reduces),)

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

        def one_way(way: int) -> Messages:
            # After `round_` hops a rank holds the part of the rank as many places behind.
            origin = (senders - way * round_) % size
            block = (senders - way * round_ + way * distance) % size
            return messages(senders, (senders + way) % size, block, origin=origin)

        return tuple(one_way(way) for way in ((1, -1) if distance <= backward else (1,)))

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
        source, target = orders[channel, place], orders[channel, place + 1]
        every = messages(source, target, round_ - place, channel=channel)
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


def kangaring(orders: IntArray, ranks_per_chip: int, part: CollectivePart) -> MessagePattern:
    """Rings `orders[channel, place]` over chips; positions are chip-major.

    One channel a ring; its primary is rank `channel mod ranks_per_chip` of each chip. A block a
    rank; a chip's blocks travel together. Scatter, gather and reduce only.
    """
    # With as many rings as ranks of a chip, every rank is the primary of one ring, and all work.
    channels, chips = orders.shape
    laps, others = chips - 1, ranks_per_chip - 1
    each_channel = np.repeat(np.arange(channels), chips)
    each_place = np.tile(np.arange(chips), channels)

    def primary(chip: IntArray, channel: IntArray) -> IntArray:
        return chip * ranks_per_chip + channel % ranks_per_chip

    def blocks_at(channel: IntArray, place: IntArray) -> IntArray:
        return np.asarray(orders[channel, place % chips] * ranks_per_chip)

    def between_chips(lag: int, *, reduces: bool) -> Messages:
        channel, place = each_channel, each_place
        return messages(
            primary(orders[channel, place], channel),
            primary(orders[channel, (place + 1) % chips], channel),
            blocks_at(channel, place - lag),
            count=ranks_per_chip,
            channel=channel,
            reduces=reduces,
        )

    def in_chips(lag: int, *, to_primary: bool) -> Messages:
        channel, place = np.repeat(each_channel, others), np.repeat(each_place, others)
        chip = orders[channel, place]
        step = np.tile(np.arange(1, others + 1), len(chip) // max(others, 1))
        first = primary(chip, channel)
        other = chip * ranks_per_chip + (first + step) % ranks_per_chip
        return messages(
            other if to_primary else first,
            first if to_primary else other,
            blocks_at(channel, place - lag),
            count=ranks_per_chip,
            channel=channel,
            reduces=to_primary,
        )

    def own_blocks(*, to_primary: bool) -> Messages:
        # With lag 0 a message carries the blocks of its own chip; one rank's block of them is left.
        local = in_chips(0, to_primary=to_primary)
        block = local.source if to_primary else local.target
        return replace(local, block=block, count=np.ones_like(block), reduces=False)

    def scattered(round_: int) -> tuple[Messages, ...]:
        # Laps, then each rank of a chip gets its block.
        if round_ > laps:
            return (own_blocks(to_primary=False),)
        # Neighbours add to the block that the ring brings in this round; it goes on in the next.
        feed = in_chips(1 + round_, to_primary=True)
        return (between_chips(round_, reduces=True), feed) if round_ else (feed,)

    def gathered(round_: int) -> tuple[Messages, ...]:
        # Each rank of a chip gives its block, then laps.
        if round_ == 0:
            return (own_blocks(to_primary=True),)
        # The block that came in the round before goes on, and to the neighbours at the same time.
        copies = in_chips(round_ - 1, to_primary=False)
        return (copies,) if round_ == chips else (between_chips(round_ - 1, reduces=False), copies)

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        if part == "scatter" or (part == "reduce" and round_ <= laps):
            batches = scattered(round_)
        else:
            batches = gathered(round_ - laps if part == "reduce" else round_)
        return tuple(batch.sent_by(sources) for batch in batches)

    # The first local round, the laps, the last local round; twice the laps for a reduce.
    rounds: tuple[tuple[int, int], ...] = ((0, 1), (1, laps), (laps + 1, 1))
    if part == "reduce":
        rounds = (*rounds[:2], (laps + 1, laps), (2 * laps + 1, 1))
    return MessagePattern(
        name="kangaring",
        part=part,
        positions=chips * ranks_per_chip,
        blocks=chips * ranks_per_chip,
        channels=channels,
        distinct_rounds=rounds,
        send=send,
        along=orders,
    )
