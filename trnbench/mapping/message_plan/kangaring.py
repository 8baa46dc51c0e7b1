"""KangaRing: one primary rank per chip and ring stands for its chip; the others feed or copy it.

Half the hops (or fewer) of a ring over all ranks: the primary adds its neighbours' parts while the
partial sum passes, and hands copies to them while the result passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.arrays import IntArray
from trnbench.errors import GapError
from trnbench.mapping.message_plan.pattern import CollectivePart, Messages


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KangaRing:
    """Rings `orders[channel, place]` over chips of `ranks_per_chip` ranks, position chip-major."""

    orders: IntArray
    ranks_per_chip: int
    part: CollectivePart
    name: str = "kangaring"
    relays: bool = False
    pipelined: bool = False
    alike: bool = True

    @property
    def chips(self) -> int:
        """Chips on each ring."""
        return int(self.orders.shape[1])

    @property
    def positions(self) -> int:
        """Ranks in all."""
        return self.chips * self.ranks_per_chip

    @property
    def blocks(self) -> int:
        """One block a rank; a chip's blocks travel together."""
        return self.positions

    @property
    def channels(self) -> int:
        """One channel a ring; its primary is rank `channel mod ranks_per_chip` of each chip."""
        return int(self.orders.shape[0])

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """The first local round, the laps, the last local round; twice for a reduce."""
        laps = self.chips - 1
        if self.part == "reduce":
            return ((0, 1), (1, laps), (laps + 1, laps), (2 * laps + 1, 1))
        return ((0, 1), (1, laps), (laps + 1, 1))

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return the messages between primaries and those inside the chips."""
        laps = self.chips - 1
        match self.part:
            case "reduce":
                adding = round_ <= laps
                batches = self._scatter(round_) if adding else self._gather(round_ - laps)
            case "scatter":
                batches = self._scatter(round_)
            case "gather":
                batches = self._gather(round_)
            case _:
                raise GapError(self.part, "messages on a KangaRing")
        if sources is None:
            return batches
        return tuple(_only(batch, sources) for batch in batches)

    def _scatter(self, round_: int) -> tuple[Messages, ...]:
        if round_ > self.chips - 1:
            return (self._own_blocks(to_primary=False),)
        feed = self._local(lag=1 + round_, to_primary=True)
        return (self._ring(lag=round_, reduces=True), feed) if round_ else (feed,)

    def _gather(self, round_: int) -> tuple[Messages, ...]:
        if round_ == 0:
            return (self._own_blocks(to_primary=True),)
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
        local = self._local(lag=0, to_primary=to_primary)
        return Messages(
            source=local.source,
            target=local.target,
            block=local.source if to_primary else local.target,
            count=np.ones(len(local.source), dtype=np.int64),
            channel=local.channel,
            reduces=False,
        )


def _only(batch: Messages, sources: IntArray) -> Messages:
    kept = np.isin(batch.source, sources)
    return Messages(
        source=batch.source[kept],
        target=batch.target[kept],
        block=batch.block[kept],
        count=batch.count[kept],
        channel=batch.channel[kept],
        reduces=batch.reduces,
    )
