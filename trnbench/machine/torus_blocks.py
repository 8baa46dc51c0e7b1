"""Groups of chips that a torus can route: those that are one block of it.

A block is an unbroken stretch of places along every axis, round the wrap if need be: one chip, two
neighbours, a row, a column, a rectangle.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from trnbench.facts.hardware.fabric import Torus
from trnbench.facts.hardware.instance import Platform

PAIR = 2


def is_block(shape: tuple[int, ...], chips: tuple[int, ...]) -> bool:
    """True when chips, by row-major places on a torus of this shape, are a block."""
    sides = []
    for length, places in zip(shape, np.unravel_index(chips, shape), strict=True):
        used = set(places.tolist())
        # An unbroken stretch has one end; a whole ring has none.
        ends = sum((place + 1) % length not in used for place in used)
        if ends > 1:
            return False
        sides.append(len(used))
    # As many chips as the box of their stretches has places: then they fill it.
    return prod(sides) == len(set(chips))


def routable(platform: Platform, logical_size: int | None, ranks: int, stride: int) -> bool:
    """True when all groups of `ranks` ranks, `stride` apart, can be routed in an instance.

    Groups over several instances, and instances without a known rule, are never refused.
    """
    routing = platform.instance.routing
    if routing is None:
        return True
    size = platform.chip.unit.cores_per_rank(logical_size)
    asked = (size, ranks, stride)
    if any(asked == (one.logical_size, one.ranks, one.stride) for one in routing.also):
        return True
    torus = next((level for level in platform.instance.fabric if isinstance(level, Torus)), None)
    if torus is None:
        return True
    per_chip = platform.chip.ranks(logical_size)
    return _all_blocks(torus.shape, per_chip, ranks, stride)


@lru_cache(maxsize=4096)
def _all_blocks(shape: tuple[int, ...], per_chip: int, ranks: int, stride: int) -> bool:
    per_node, period = prod(shape) * per_chip, ranks * stride
    # Groups wider than an instance, or out of step with it, are no matter of its torus.
    if ranks < PAIR or period > per_node or per_node % period:
        return True
    steps = np.arange(ranks) * stride
    groups = {
        tuple(sorted({int(rank) // per_chip for rank in turn + first + steps}))
        for turn in range(0, per_node, period)
        for first in range(stride)
    }
    return all(is_block(shape, chips) for chips in groups)
