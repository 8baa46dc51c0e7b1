"""Few rounds on any number of ranks: surplus ranks are folded onto others.

Halving needs a power of two, a two-level ring a product. For other numbers the surplus ranks first
hand their data to a neighbour, which acts for both and returns the result at the end, as in MPICH
(Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH,
2005). A rank that acts for two moves its whole buffer twice more.

    ranks    0 1   2 3   4   5        6 = 4 + 2: two surplus ranks, 1 and 3
    fold     0<1   2<3                1 and 3 hand over
    halve     0     1    2   3        acting ranks, renumbered: a power of two
    unfold   0>1   2>3                1 and 3 get the result
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record
from trnbench.machine.message_plan.pattern import (
    CollectivePart,
    MessagePattern,
    Messages,
    all_positions,
)

UNEVEN = 4
"""Two rings that divide the ranks are taken unless their lengths add up to more than this multiple
of a square's side."""


class _Sent(Record, eq=False):
    """Messages of the acting ranks in a round: target, first of their parts, number of parts."""

    target: IntArray
    first: IntArray
    count: int
    reduces: bool


Round: TypeAlias = Callable[[IntArray], _Sent]
"""Messages of a round by the numbers of the acting ranks, surplus ranks left out."""


def folded_halving(positions: int, part: CollectivePart) -> MessagePattern:
    """Scatter by halving, gather by doubling, reduce by both, on any number of ranks."""
    # The largest power of two among the ranks acts; the others are surplus.
    cores = 1 << (positions.bit_length() - 1)

    def halve(distance: int) -> Round:
        return lambda core: _Sent(
            target=core ^ distance,
            first=(core ^ distance) & ~(distance - 1),
            count=distance,
            reduces=True,
        )

    def double(distance: int) -> Round:
        return lambda core: _Sent(
            target=core ^ distance, first=core & ~(distance - 1), count=distance, reduces=False
        )

    steps = [cores >> (step + 1) for step in range(cores.bit_length() - 1)]
    down, up = [(halve(d), 1) for d in steps], [(double(d), 1) for d in reversed(steps)]
    return _folded("folded-halving", part, positions, cores, (down, up))


def two_level_ring(positions: int, part: CollectivePart) -> MessagePattern:
    """Rings over ranks far apart, which share the data out, and rings over near ones.

    A ring of n ranks has n - 1 rounds, two levels of a and b about 2 sqrt(n) for the same bytes.
    """
    far, near = ring_lengths(positions)

    def rounds(size: int, width: int, stride: int, *, reduces: bool) -> list[tuple[Round, int]]:
        """Rounds of rings of `size`; a part of theirs is `width` parts of the others."""

        def one(lag: int) -> Round:
            def send(core: IntArray) -> _Sent:
                place = core // stride % size
                # The ring's members differ in one digit of their number: only that digit turns.
                return _Sent(
                    target=core + ((place + 1) % size - place) * stride,
                    first=core // (stride * size) * (stride * size) + (place - lag) % size * width,
                    count=width,
                    reduces=reduces,
                )

            return send

        return [(one(lag + reduces), size - 1) for lag in range(size - 1)]

    down = rounds(far, near, near, reduces=True) + rounds(near, 1, 1, reduces=True)
    up = rounds(near, 1, 1, reduces=False) + rounds(far, near, near, reduces=False)
    return _folded("two-level-ring", part, positions, far * near, (down, up))


def ring_lengths(positions: int) -> tuple[int, int]:
    """Lengths of the two levels of rings; ranks beyond their product are folded."""
    # Rings of a and b ranks take a + b - 2 rounds a way, fewest at the square root. A product that
    # is not too far from a square avoids the two extra rounds of folding.
    side = isqrt(positions)
    divisor = next(size for size in range(side, 0, -1) if positions % size == 0)
    if divisor + positions // divisor <= UNEVEN * side:
        return divisor, positions // divisor
    return side, positions // side


def _folded(
    name: str,
    part: CollectivePart,
    positions: int,
    cores: int,
    ways: tuple[list[tuple[Round, int]], list[tuple[Round, int]]],
) -> MessagePattern:
    """Pattern of `cores` acting ranks, with the surplus ranks folded onto them.

    The first places of the line are pairs of an acting rank and the one folded onto it. `ways`: the
    rounds that scatter, and those that gather, each with the number of like rounds of its level.
    """
    extra = positions - cores
    # First block of each acting rank. Where every rank has a block of its own, a pair has two.
    starts = np.arange(cores + 1)
    if part != "reduce":
        starts = np.where(starts < extra, 2 * starts, starts + extra)
    blocks = int(starts[-1])
    down, up = ways
    # A reduce scatters and then gathers; each of the two alone is half of it.
    inner = [*(down if part != "gather" else []), *(up if part != "scatter" else [])]
    first = 1 if extra else 0

    def fold(senders: IntArray) -> Messages:
        # A surplus rank hands its neighbour its whole buffer to add, or its own block to gather.
        source = senders[(senders < 2 * extra) & (senders % 2 == 1)]
        own = part == "gather"
        return _messages(
            source,
            source - 1,
            source if own else 0 * source,
            np.full(len(source), 1 if own else blocks),
            reduces=not own,
        )

    def unfold(senders: IntArray) -> Messages:
        # It gets back its own block of a scatter, or else the whole result.
        source = senders[(senders < 2 * extra) & (senders % 2 == 0)]
        own = part == "scatter"
        return _messages(
            source,
            source + 1,
            source + 1 if own else 0 * source,
            np.full(len(source), 1 if own else blocks),
            reduces=False,
        )

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        senders = all_positions(positions, sources)
        if extra and round_ == 0:
            return _some(fold(senders))
        if round_ == first + len(inner):
            return _some(unfold(senders))
        # Acting ranks: the even one of each pair, then all ranks behind the pairs.
        source = senders[(senders >= 2 * extra) | (senders % 2 == 0)]
        core = np.where(source < 2 * extra, source // 2, source - extra)
        sent = inner[round_ - first][0](core)
        block = starts[sent.first]
        count = starts[sent.first + sent.count] - block
        target = np.where(sent.target < extra, 2 * sent.target, sent.target + extra)
        return _some(_messages(source, target, block, count, reduces=sent.reduces))

    return MessagePattern(
        name=name,
        part=part,
        positions=positions,
        blocks=blocks,
        alike=not extra,
        distinct_rounds=_distinct(
            [times for _, times in inner], alike=not extra or part == "reduce", folds=bool(extra)
        ),
        send=send,
    )


def _distinct(times: list[int], *, alike: bool, folds: bool) -> tuple[tuple[int, int], ...]:
    """Rounds that differ, as (round, times), from the number of rounds of each level.

    All rounds of a level are `alike` unless some parts are larger than others.
    """
    found = [(0, 1)] if folds else []
    at = 0
    while at < len(times):
        together = times[at] if alike else 1
        found.append((at + folds, together))
        at += together
    if folds:
        found.append((len(times) + 1, 1))
    return tuple(found)


def _messages(
    source: IntArray, target: IntArray, block: IntArray, count: IntArray, *, reduces: bool
) -> Messages:
    return Messages(
        source=source,
        target=target,
        block=block,
        count=count.astype(np.int64),
        channel=0 * source,
        reduces=reduces,
    )


def _some(batch: Messages) -> tuple[Messages, ...]:
    return (batch,) if len(batch.source) else ()
