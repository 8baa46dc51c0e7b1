"""Everyone to everyone at once: fewest rounds, most messages. Also pairs given one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.arrays import IntArray
from trnbench.mapping.message_plan.pattern import CollectivePart, Messages, all_positions


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DirectPattern:
    """Each position sends straight to every other: one round, or two for a reduce."""

    positions: int
    part: CollectivePart
    blocks: int
    name: str = "direct"
    channels: int = 1
    relays: bool = False
    pipelined: bool = False

    @property
    def alike(self) -> bool:
        """A broadcast loads its root alone."""
        return self.part != "broadcast"

    @property
    def distinct_rounds(self) -> tuple[tuple[int, int], ...]:
        """A reduce scatters, then gathers."""
        return ((0, 1), (1, 1)) if self.part == "reduce" else ((0, 1),)

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return the messages, each sender's in the order of rising distance."""
        senders = all_positions(self.positions, sources)
        if self.part == "broadcast":
            senders = senders[senders == 0]
        reduces = self.part == "scatter" or (self.part == "reduce" and round_ == 0)
        others = self.positions - 1
        source = np.repeat(senders, others)
        step = np.tile(np.arange(1, self.positions), len(senders))
        target = (source + step) % self.positions
        gathers = self.part == "gather" or (self.part == "reduce" and round_ == 1)
        whole = self.part == "broadcast"
        return (
            Messages(
                source=source,
                target=target,
                block=0 * source if whole else source if gathers else target,
                count=np.full(len(source), self.blocks if whole else 1, dtype=np.int64),
                channel=0 * source,
                reduces=reduces,
                origin=source if self.part == "exchange" else None,
            ),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SingleStep:
    """All-reduce in one round: everyone sends its whole buffer to everyone and adds locally."""

    positions: int
    name: str = "single-step-mesh"
    part: CollectivePart = "reduce"
    blocks: int = 1
    channels: int = 1
    relays: bool = False
    pipelined: bool = False
    alike: bool = True
    distinct_rounds: tuple[tuple[int, int], ...] = ((0, 1),)

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return every buffer going to every other position."""
        senders = all_positions(self.positions, sources)
        source = np.repeat(senders, self.positions - 1)
        step = np.tile(np.arange(1, self.positions), len(senders))
        return (
            Messages(
                source=source,
                target=(source + step) % self.positions,
                block=0 * source,
                count=0 * source + 1,
                channel=0 * source,
                reduces=True,
            ),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pairs:
    """Permute and send-receive: the whole buffer of each pair's source goes to its target.

    `alike`: what the first node's positions send is what every node's do, as many nodes further on.
    """

    positions: int
    pairs: IntArray
    alike: bool
    name: str = "direct"
    part: CollectivePart = "exchange"
    channels: int = 1
    relays: bool = False
    pipelined: bool = False
    distinct_rounds: tuple[tuple[int, int], ...] = ((0, 1),)

    @property
    def blocks(self) -> int:
        """One buffer a position."""
        return self.positions

    def messages(self, round_: int, sources: IntArray | None = None) -> tuple[Messages, ...]:
        """Return one message a pair."""
        pairs = self.pairs if sources is None else self.pairs[np.isin(self.pairs[:, 0], sources)]
        ones = np.ones(len(pairs), dtype=np.int64)
        return (
            Messages(
                source=pairs[:, 0],
                target=pairs[:, 1],
                origin=pairs[:, 0],
                block=pairs[:, 1],
                count=ones,
                channel=0 * ones,
                reduces=False,
            ),
        )
