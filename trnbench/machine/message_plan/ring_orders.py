"""Rings that a group can run on: physical cycles of its links that are in good order."""

from __future__ import annotations

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.hardware.fabric import Direct, FullMesh, Switch, Torus
from trnbench.machine.fabric import Fabric
from trnbench.machine.fabric_cycles import disjoint_cycles, torus_cycles
from trnbench.machine.placement import Placement


def rings_of(placement: Placement, level: int, places: tuple[int, ...]) -> IntArray:
    """Ring orders on a placement, which caches them."""
    if placement.fabric.faulty:
        return ring_orders(placement.fabric, level, places)
    return placement.rings.of((level, places), lambda: ring_orders(placement.fabric, level, places))


def ring_orders(fabric: Fabric, level: int, places: tuple[int, ...]) -> IntArray:
    """Indices [ring, step] into `places` of one level, each ring one way round.

    A torus gives every edge-disjoint cycle in both directions; faulty links cost the rings that use
    them, whichever choice leaves the most bandwidth.
    """
    # Behind a switch or in a full mesh every order is as good, and two places have one ring.
    natural = np.arange(len(places))[None, :]
    spec = fabric.levels[level].level
    if not isinstance(spec, Torus) or len(places) < 3:
        return natural
    index = {place: i for i, place in enumerate(places)}
    # A whole torus has known cycles; part of one is searched.
    if len(places) == fabric.levels[level].count:
        cycles = [tuple(index[place] for place in cycle) for cycle in torus_cycles(spec.shape)]
    else:
        cycles = disjoint_cycles(_edges(fabric, level, places, least=0.0))
    choices = [_best(fabric, level, places, cycles)]
    # Fewer rings that avoid faulty links may move more than all rings with slow ones among them.
    if fabric.faulty:
        sound = disjoint_cycles(_edges(fabric, level, places, least=1.0))
        choices.append(_best(fabric, level, places, sound))
    rings, worth = max(choices, key=lambda choice: choice[1])
    return np.array(rings) if worth > 0 else natural


def neighbour_pairs(fabric: Fabric, group: IntArray) -> IntArray:
    """(from, to) numbers within a sorted group: each rank to the next along wired chips.

    Whole nodes follow a cycle of their links; in other groups each rank's next is the one after it.
    """
    group = np.sort(group)
    order = np.arange(len(group))
    # Only groups of whole nodes, aligned to nodes, can follow the wires of a node one by one.
    whole = np.arange(len(group)) + group[0]
    per_node = fabric.ranks_per_node
    if bool((group == whole).all()) and len(group) % per_node == 0 == group[0] % per_node:
        cores = np.arange(fabric.ranks_per_chip)
        node = (np.array(_wired_chips(fabric))[:, None] * len(cores) + cores).ravel()
        nodes = np.arange(len(group) // per_node) * per_node
        order = (nodes[:, None] + node).ravel()
    return np.stack([order, np.roll(order, -1)], axis=1)


def _wired_chips(fabric: Fabric) -> list[int]:
    """Chips of an instance in an order in which each has a link to the next."""
    chips = [0]
    for up in fabric.levels:
        match up.level:
            case Torus(shape=shape) if up.count >= 3:
                steps = [place * up.span for place in torus_cycles(shape)[0]]
                # The chips wired up to now and this level's cycle form a torus, whose own cycle
                # joins both; fewer than three chips are repeated place by place.
                if len(chips) < 3:
                    chips = [chip + step for step in steps for chip in chips]
                else:
                    both = torus_cycles((len(chips), len(steps)))[0]
                    chips = [chips[at // len(steps)] + steps[at % len(steps)] for at in both]
            case Direct():
                # Out through one unit and back through the next: only like chips are wired.
                ways = [chips if unit % 2 == 0 else chips[::-1] for unit in range(up.count)]
                chips = [chip + unit * up.span for unit, way in enumerate(ways) for chip in way]
            case Torus() | Switch() | FullMesh():
                chips = [chip + unit * up.span for unit in range(up.count) for chip in chips]
            case _:
                unhandled(up.level, "order in which its chips are wired")
    return chips


def _best(
    fabric: Fabric, level: int, places: tuple[int, ...], cycles: list[tuple[int, ...]]
) -> tuple[list[tuple[int, ...]], float]:
    """Directed rings worth using, and their joint speed in units of a sound link."""
    # Links are directed, so each cycle gives two rings: one each way round.
    ways = [*cycles, *((cycle[0], *reversed(cycle[1:])) for cycle in cycles)]
    ways = [way for way in ways if len(way) == len(places)]
    speeds = [float(_speed(fabric, level, places, np.array(way)).min()) for way in ways]
    # All rings carry equal parts, so the slowest sets the pace: fewer rings may be faster.
    order = sorted(range(len(ways)), key=lambda i: -speeds[i])
    totals = [(n + 1) * speeds[i] for n, i in enumerate(order)]
    if not totals or max(totals) == 0:
        return [], 0.0
    used = sorted(order[: totals.index(max(totals)) + 1])
    return [ways[i] for i in used], max(totals)


def _speed(fabric: Fabric, level: int, places: tuple[int, ...], order: IntArray) -> FloatArray:
    """Worst share of speed that a link has left on any unit, by step of a ring."""
    if not fabric.faulty:
        return np.ones(len(order))
    at = np.array(places)[order]
    links = _links(fabric, level)[at, np.roll(at, -1)]
    share = np.where(links < 0, 0.0, fabric.worst_factor()[links])
    return np.asarray(share.min(axis=1))


def _edges(
    fabric: Fabric, level: int, places: tuple[int, ...], *, least: float
) -> list[tuple[int, int]]:
    """Pairs of places with links both ways that keep at least this share of speed."""
    links = _links(fabric, level)[np.ix_(places, places)]
    # All units use one order, so the unit with the worst link decides on a pair of places.
    share = np.where(links < 0, -1.0, fabric.worst_factor()[links]).min(axis=2)
    sound = np.minimum(share, share.T) >= least
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(sound, 1)), strict=True)]


def _links(fabric: Fabric, level: int) -> IntArray:
    """Link between chips one step apart, [place, place, unit]; -1 where there is none."""
    up, table = fabric.levels[level], fabric.torus_link[level]
    chips = np.arange(fabric.chips)
    units = chips[chips // up.span % up.count == 0]
    here = np.arange(up.count)
    chips = units[None, :] + here[:, None] * up.span
    between = np.full((up.count, up.count, len(units)), -1, dtype=np.int64)
    assert isinstance(up.level, Torus)
    shape = tuple(up.level.shape)
    at = np.array(np.unravel_index(here, shape))
    unit = np.arange(len(units))
    for axis, length in enumerate(shape):
        for way, step in enumerate((1, -1)):
            link = table[chips, axis, way]
            there = at.copy()
            there[axis] = (there[axis] + step) % length
            end = np.ravel_multi_index(tuple(there), shape)
            pair = here[:, None], end[:, None], unit[None, :]
            # On an axis of length 2 both ways lead to the same place: the first link counts.
            between[pair] = np.where(between[pair] < 0, link, between[pair])
    return between
