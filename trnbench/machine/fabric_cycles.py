"""Edge-disjoint Hamiltonian cycles: the rings a torus offers at the same time.

A torus of d axes, each of length 3 or more, splits into d such cycles. They are found by exchange:
start from the axes' own short rings, one factor an axis, and on a unit square swap the two edges
of one factor with the two of another while that joins rings. Other graphs (part of a torus, a
torus with dead links) are searched directly, which is quick for the sizes of an instance.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from functools import lru_cache

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
        return tuple(disjoint_cycles(set().union(*_edges(lengths))))
    # The exchange is a descent with a random order; a few fixed seeds make it sure and repeatable.
    for seed in range(32):
        factors = _exchange(lengths, random.Random(seed))
        if factors is not None:
            return tuple(_walk(factor) for factor in factors)
    return tuple(disjoint_cycles(set().union(*_edges(lengths))))


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


def _edges(shape: tuple[int, ...]) -> list[set[Edge]]:
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
    factors = _edges(shape)
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
