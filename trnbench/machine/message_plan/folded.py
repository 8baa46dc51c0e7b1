"""Few rounds on any number of ranks: what a regular number leaves over is folded onto the others.

Halving needs a power of two, two levels of rings a product. Of other numbers the ranks left over
first hand what they have to a neighbour, which stands for both, and get the result from it at the
end, as MPICH does it (Thakur, Rabenseifner and Gropp, Optimization of Collective Communication
Operations in MPICH, 2005). Those who stand for somebody move their whole
buffer twice more.
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
"""Two rings are taken that divide the ranks unless together they are so many times as long as a
square's side."""


class _Sent(Record, eq=False):
    """What those who stand for others send in a round: to whom, which of their parts, how many."""

    target: IntArray
    first: IntArray
    count: int
    reduces: bool


Round: TypeAlias = Callable[[IntArray], _Sent]
"""A round of those who stand for others, numbered without those left over."""


def folded_halving(positions: int, part: CollectivePart) -> MessagePattern:
    """Return scatter by halving, gather by doubling, reduce by both, on any number of ranks."""
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
    """Return rings over ranks far apart, which share the data out, and rings over near ones.

    A ring of n ranks has n - 1 rounds, two levels of a and b about 2 sqrt(n) for the same bytes.
    """
    far, near = ring_lengths(positions)

    def rounds(size: int, width: int, stride: int, *, reduces: bool) -> list[tuple[Round, int]]:
        """Return the rounds of rings of `size`, whose parts are `width` parts of the others."""

        def one(lag: int) -> Round:
            def send(core: IntArray) -> _Sent:
                place = core // stride % size
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
    """Return the lengths of the two levels of rings; what their product lacks is folded."""
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
    """Return a pattern of those who stand for others, `cores` of them, with what is left over.

    The first places of the line are pairs of one who stands for both and one left over. `ways`: the
    rounds that scatter, and those that gather, each with how many of its level are alike.
    """
    extra = positions - cores
    # A part each; where each rank's own is told apart, the pairs' parts are two.
    starts = np.arange(cores + 1)
    if part != "reduce":
        starts = np.where(starts < extra, 2 * starts, starts + extra)
    blocks = int(starts[-1])
    down, up = ways
    inner = [*(down if part != "gather" else []), *(up if part != "scatter" else [])]
    first = 1 if extra else 0

    def fold(senders: IntArray) -> Messages:
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
    """Return the rounds that differ, from how many of each level there are.

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
