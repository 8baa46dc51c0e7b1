"""Rings that a group can run on: physical cycles of its links that are in good order.

A torus of d axes, each of length 3 or more, splits into d edge-disjoint Hamiltonian cycles. They
are found by exchange: start from the axes' own short rings, one factor an axis, and on a unit
square swap the two edges of one factor with the two of another while that joins rings. Other graphs
(part of a torus, a torus with dead links) are searched directly, which is quick for the sizes of an
instance.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.hardware.fabric import Direct, FullMesh, Switch, Torus
from trnbench.machine.fabric import Fabric
from trnbench.machine.placement import Placement


def rings_of(placement: Placement, level: int, places: tuple[int, ...]) -> IntArray:
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


Edge = tuple[int, int]
_SEARCH_STEPS = 20_000
_ROUNDS_WITHOUT_GAIN = 400


@lru_cache(maxsize=64)
def torus_cycles(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Edge-disjoint Hamiltonian cycles of a torus, row-major numbers, as many as axes."""
    lengths = tuple(length for length in shape if length > 1)
    if not lengths:
        return ()
    if len(lengths) == 1:
        return (tuple(range(lengths[0])),)
    if min(lengths) < 3:
        return tuple(disjoint_cycles(set().union(*_torus_edges(lengths))))
    # The exchange is a descent with a random order; a few fixed seeds make it sure and repeatable.
    for seed in range(32):
        factors = _exchange(lengths, random.Random(seed))
        if factors is not None:
            return tuple(_walk(factor) for factor in factors)
    return tuple(disjoint_cycles(set().union(*_torus_edges(lengths))))


def disjoint_cycles(edges: Iterable[Edge]) -> list[tuple[int, ...]]:
    """Edge-disjoint Hamiltonian cycles of an undirected graph, found one after the other."""
    near: dict[int, set[int]] = {}
    for a, b in edges:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    # Greedy: a cycle that blocks the next one is not taken back. Two places are a ring of one edge.
    if len(near) == 2:
        return [tuple(sorted(near))]
    found: list[tuple[int, ...]] = []
    while (cycle := _hamiltonian(near)) is not None:
        found.append(cycle)
        for a, b in itertools.pairwise((*cycle, cycle[0])):
            near[a].discard(b)
            near[b].discard(a)
    return found


def _hamiltonian(near: dict[int, set[int]]) -> tuple[int, ...] | None:
    if len(near) < 3 or any(len(around) < 2 for around in near.values()):
        return None
    # Depth first with an explicit stack; the limit of steps bounds the time of hopeless graphs.
    start = min(near)
    path = [start]
    used = {start}
    # Places with few ways left go first: they are the ones that could become dead ends.
    choices = [_by_need(near, start, used)]
    for _ in range(_SEARCH_STEPS):
        if len(path) == len(near) and start in near[path[-1]]:
            return tuple(path)
        if len(path) < len(near) and choices[-1]:
            step = choices[-1].pop(0)
            path.append(step)
            used.add(step)
            choices.append(_by_need(near, step, used))
        else:
            used.discard(path.pop())
            choices.pop()
            if not path:
                return None
    return None


def _by_need(near: dict[int, set[int]], place: int, used: set[int]) -> list[int]:
    free = [n for n in near[place] if n not in used]
    return sorted(free, key=lambda n: (len(near[n] - used), n))


def _number(place: tuple[int, ...], shape: tuple[int, ...]) -> int:
    number = 0
    for at, length in zip(place, shape, strict=True):
        number = number * length + at % length
    return number


def _torus_edges(shape: tuple[int, ...]) -> list[set[Edge]]:
    """Edges of a torus along each axis."""
    edges: list[set[Edge]] = [set() for _ in shape]
    for place in itertools.product(*map(range, shape)):
        for axis in range(len(shape)):
            there = tuple(at + (axis == i) for i, at in enumerate(place))
            a, b = _number(place, shape), _number(there, shape)
            edges[axis].add((min(a, b), max(a, b)))
    return edges


def _squares(shape: tuple[int, ...]) -> list[tuple[Edge, Edge, Edge, Edge]]:
    """Unit squares as (edge, opposite edge, other edge, its opposite)."""
    squares = []
    for place in itertools.product(*map(range, shape)):
        for i, j in itertools.combinations(range(len(shape)), 2):
            corner = {
                (di, dj): _number(
                    tuple(at + di * (n == i) + dj * (n == j) for n, at in enumerate(place)), shape
                )
                for di in (0, 1)
                for dj in (0, 1)
            }
            edges = (
                (corner[0, 0], corner[1, 0]),
                (corner[0, 1], corner[1, 1]),
                (corner[0, 0], corner[0, 1]),
                (corner[1, 0], corner[1, 1]),
            )
            squares.append(tuple((min(e), max(e)) for e in edges))
    return squares  # type: ignore[return-value]


def _exchange(shape: tuple[int, ...], chance: random.Random) -> list[set[Edge]] | None:
    # Every factor is 2-regular throughout, so it is a set of rings; the aim is one ring each. Swaps
    # that keep the number of rings are taken, too: they lead out of dead ends.
    factors = _torus_edges(shape)
    owner = {edge: i for i, factor in enumerate(factors) for edge in factor}
    squares = _squares(shape)
    rings = [_rings(factor) for factor in factors]
    idle = 0
    while sum(rings) > len(shape) and idle < _ROUNDS_WITHOUT_GAIN:
        before = sum(rings)
        chance.shuffle(squares)
        for a, b, c, d in squares:
            i, j = owner[a], owner[c]
            # With opposite edges in one factor each, a swap leaves two edges of a factor at every
            # place.
            if owner[b] != i or owner[d] != j or i == j:
                continue
            first = factors[i] - {a, b} | {c, d}
            second = factors[j] - {c, d} | {a, b}
            counts = _rings(first), _rings(second)
            if sum(counts) <= rings[i] + rings[j]:
                factors[i], factors[j] = first, second
                rings[i], rings[j] = counts
                owner.update({a: j, b: j, c: i, d: i})
                if sum(rings) == len(shape):
                    return factors
        idle = idle + 1 if sum(rings) == before else 0
    return factors if sum(rings) == len(shape) else None


def _rings(factor: set[Edge]) -> int:
    # In a 2-regular graph a walk that never turns back runs through exactly one ring.
    near = _neighbours(factor)
    left = set(near)
    count = 0
    while left:
        count += 1
        at = left.pop()
        while True:
            ahead = [n for n in near[at] if n in left]
            if not ahead:
                break
            at = ahead[0]
            left.discard(at)
    return count


def _neighbours(factor: set[Edge]) -> dict[int, list[int]]:
    near: dict[int, list[int]] = {}
    for a, b in sorted(factor):
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    return near


def _walk(factor: set[Edge]) -> tuple[int, ...]:
    near = _neighbours(factor)
    start = min(near)
    path = [start]
    before = -1
    at = start
    while True:
        ahead = [n for n in near[at] if n != before]
        before, at = at, ahead[0]
        if at == start:
            return tuple(path)
        path.append(at)
