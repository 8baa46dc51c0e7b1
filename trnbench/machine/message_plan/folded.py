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
from trnbench.machine.message_plan.algorithm import (
    CollectivePart,
    MessagePattern,
    Messages,
    all_positions,
    messages,
)

UNEVEN = 4
"""Two rings that divide the ranks are taken unless their lengths add up to more than this multiple
of a square's side."""
Round: TypeAlias = Callable[[IntArray], tuple[IntArray, IntArray, int]]
"""Targets of a round's messages, their first parts and number of parts, by the numbers of the
acting ranks, surplus ranks left out."""


def halving(positions: int, part: CollectivePart, name: str = "halving") -> MessagePattern:
    """Scatter by halving, gather by doubling, reduce by both.

    Partners differ in one bit of their position, so a line whose order is a Gray code of a torus
    has every partner one link away. Every round differs in size. Of a number that is no power of
    two, the largest power in it acts.
    """
    cores = 1 << (positions.bit_length() - 1)

    def halve(distance: int) -> Round:
        # Scattering, a rank gives up the half that its partner keeps; gathering, it sends its own.
        return lambda core: (core ^ distance, (core ^ distance) & ~(distance - 1), distance)

    def double(distance: int) -> Round:
        return lambda core: (core ^ distance, core & ~(distance - 1), distance)

    steps = [cores >> (step + 1) for step in range(cores.bit_length() - 1)]
    down, up = [(halve(d), 1) for d in steps], [(double(d), 1) for d in reversed(steps)]
    return _folded(name, part, positions, cores, (down, up))


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


def two_level_ring(positions: int, part: CollectivePart) -> MessagePattern:
    """Rings over ranks far apart, which share the data out, and rings over near ones.

    A ring of n ranks has n - 1 rounds, two levels of a and b about 2 sqrt(n) for the same bytes.
    """
    far, near = ring_lengths(positions)

    def rounds(size: int, width: int, stride: int, *, first_lag: int) -> list[tuple[Round, int]]:
        """Rounds of rings of `size`; a part of theirs is `width` parts of the others."""

        def one(lag: int) -> Round:
            def send(core: IntArray) -> tuple[IntArray, IntArray, int]:
                place = core // stride % size
                # The ring's members differ in one digit of their number: only that digit turns.
                target = core + ((place + 1) % size - place) * stride
                lowest = core // (stride * size) * (stride * size)
                return target, lowest + (place - lag) % size * width, width

            return send

        return [(one(lag + first_lag), size - 1) for lag in range(size - 1)]

    down = rounds(far, near, near, first_lag=1) + rounds(near, 1, 1, first_lag=1)
    up = rounds(near, 1, 1, first_lag=0) + rounds(far, near, near, first_lag=0)
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
    rounds that scatter and add, and those that gather, each with the number of like rounds of its
    level.
    """
    extra = positions - cores
    # First block of each acting rank. Where every rank has a block of its own, a pair has two.
    starts = np.arange(cores + 1)
    if part != "reduce":
        starts = np.where(starts < extra, 2 * starts, starts + extra)
    blocks = int(starts[-1])
    # A reduce scatters and then gathers; each of the two alone is half of it.
    down, up = ways[0] if part != "gather" else [], ways[1] if part != "scatter" else []
    inner = [*down, *up]
    first = 1 if extra else 0

    def paired(senders: IntArray, *, odd: int) -> Messages:
        # Before all others the odd rank of a pair hands its neighbour its whole buffer to add, or
        # its own block to gather; after them it gets back its block of a scatter, or the result.
        source = senders[(senders < 2 * extra) & (senders % 2 == odd)]
        target = source - 1 if odd else source + 1
        own = part == ("gather" if odd else "scatter")
        surplus = source if odd else target
        return messages(
            source,
            target,
            surplus if own else 0 * source,
            count=1 if own else blocks,
            reduces=bool(odd) and not own,
        )

    def acting(senders: IntArray, number: int) -> Messages:
        # Acting ranks: the even one of each pair, then all ranks behind the pairs.
        source = senders[(senders >= 2 * extra) | (senders % 2 == 0)]
        target, part_at, parts = inner[number][0](
            np.where(source < 2 * extra, source // 2, source - extra)
        )
        block = starts[part_at]
        return messages(
            source,
            np.where(target < extra, 2 * target, target + extra),
            block,
            count=starts[part_at + parts] - block,
            reduces=number < len(down),
        )

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        senders = all_positions(positions, sources)
        if extra and round_ in (0, first + len(inner)):
            sent = paired(senders, odd=int(round_ == 0))
        else:
            sent = acting(senders, round_ - first)
        return (sent,) if len(sent.source) else ()

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
