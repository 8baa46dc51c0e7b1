"""KangaRing: one primary rank per chip and ring acts for its chip; others feed or copy it.

Half the hops (or fewer) of a ring over all ranks: the primary adds its neighbours' parts while the
partial sum passes, and hands copies to them while the result passes.
"""

from __future__ import annotations

import numpy as np

from trnbench.errors import GapError
from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record, replace
from trnbench.machine.message_plan.pattern import CollectivePart, MessagePattern, Messages


def kangaring(orders: IntArray, ranks_per_chip: int, part: CollectivePart) -> MessagePattern:
    """Rings `orders[channel, place]` over chips; positions are chip-major.

    One channel a ring; its primary is rank `channel mod ranks_per_chip` of each chip. A block a
    rank; a chip's blocks travel together.
    """
    channels, chips = orders.shape
    # With as many rings as ranks of a chip, every rank is the primary of one ring, and all work.
    rings = _Rings(orders=orders, ranks_per_chip=ranks_per_chip)
    laps = chips - 1

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        if part not in ("scatter", "gather", "reduce"):
            raise GapError(part, "messages on a KangaRing")
        if part == "scatter" or (part == "reduce" and round_ <= laps):
            batches = rings.scatter(round_)
        else:
            batches = rings.gather(round_ - laps if part == "reduce" else round_)
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


class _Rings(Record, eq=False):
    """Messages between the primaries of chips on rings, and inside the chips."""

    orders: IntArray
    ranks_per_chip: int

    @property
    def channels(self) -> int:
        """Number of rings."""
        return int(self.orders.shape[0])

    @property
    def chips(self) -> int:
        """Number of chips on each ring."""
        return int(self.orders.shape[1])

    def scatter(self, round_: int) -> tuple[Messages, ...]:
        """Messages of a round of the scatter: laps, then each rank of a chip gets its block."""
        if round_ > self.chips - 1:
            return (self._own_blocks(to_primary=False),)
        # Neighbours add to the block that the ring brings in this round; it goes on in the next.
        feed = self._local(lag=1 + round_, to_primary=True)
        return (self._ring(lag=round_, reduces=True), feed) if round_ else (feed,)

    def gather(self, round_: int) -> tuple[Messages, ...]:
        """Messages of a round of the gather: each rank of a chip gives its block, then laps."""
        if round_ == 0:
            return (self._own_blocks(to_primary=True),)
        # The block that came in the round before goes on, and to the neighbours at the same time.
        copies = self._local(lag=round_ - 1, to_primary=False)
        if round_ == self.chips:
            return (copies,)
        return self._ring(lag=round_ - 1, reduces=False), copies

    def _primary(self, chip: IntArray, channel: IntArray) -> IntArray:
        return chip * self.ranks_per_chip + channel % self.ranks_per_chip

    def _places(self) -> tuple[IntArray, IntArray]:
        channel = np.repeat(np.arange(self.channels), self.chips)
        return channel, np.tile(np.arange(self.chips), self.channels)

    def _ring(self, *, lag: int, reduces: bool) -> Messages:
        channel, place = self._places()
        to = self.orders[channel, (place + 1) % self.chips]
        carried = self.orders[channel, (place - lag) % self.chips]
        return Messages(
            source=self._primary(self.orders[channel, place], channel),
            target=self._primary(to, channel),
            block=carried * self.ranks_per_chip,
            count=np.full(len(place), self.ranks_per_chip, dtype=np.int64),
            channel=channel,
            reduces=reduces,
        )

    def _local(self, *, lag: int, to_primary: bool) -> Messages:
        channel, place = self._places()
        others = self.ranks_per_chip - 1
        channel, place = np.repeat(channel, others), np.repeat(place, others)
        chip = self.orders[channel, place]
        step = np.tile(np.arange(1, others + 1), len(chip) // max(others, 1))
        primary = self._primary(chip, channel)
        other = chip * self.ranks_per_chip + (primary + step) % self.ranks_per_chip
        return Messages(
            source=other if to_primary else primary,
            target=primary if to_primary else other,
            block=self.orders[channel, (place - lag) % self.chips] * self.ranks_per_chip,
            count=np.full(len(chip), self.ranks_per_chip, dtype=np.int64),
            channel=channel,
            reduces=to_primary,
        )

    def _own_blocks(self, *, to_primary: bool) -> Messages:
        # With lag 0 a message carries the blocks of its own chip; one rank's block of them is left.
        local = self._local(lag=0, to_primary=to_primary)
        block = local.source if to_primary else local.target
        return replace(local, block=block, count=np.ones_like(block), reduces=False)
