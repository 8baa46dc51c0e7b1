"""Ranks in groups as users write them, what their stack does for them, and how busy links get.

Groups are a size, a size and a stride, or the ranks themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from trnbench.engines.analytic.collective.choice import chosen_for
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.legality import PlacementVerdict, even_groups
from trnbench.machine.message_plan.algorithm import Algorithm, Refusal
from trnbench.machine.message_plan.members import members_of
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.ring_orders import neighbour_pairs
from trnbench.machine.message_plan.select import Selected, selected_for
from trnbench.machine.placement import Placement
from trnbench.verbs.collective.answer import LinkLoad, Plane

_STRIDED = re.compile(r"(\d{1,9})(?:@(\d{1,9}))?")
MOST_LISTED = 1_000_000
"""Ranks that one range of listed groups may name."""


def replica_groups(
    placement: Placement, wanted: int | None, text: str | None
) -> IntArray | PlacementVerdict:
    """Return the groups a text describes among the first `wanted` ranks, or why there are none.

    "16": consecutive groups of 16; "16@32": groups whose ranks are 32 apart; "0-7;8-15": lists; no
    text: all ranks in one group.
    """
    ranks = placement.ranks if wanted is None else wanted
    if text is None:
        return even_groups(placement, ranks, ranks)
    match = _STRIDED.fullmatch(text)
    if match is None:
        if wanted is not None:
            raise InputError("--groups lists the ranks themselves; leave out --ranks")
        return listed_groups(text)
    size, stride = int(match[1]), int(match[2] or 1)
    if size < 1 or stride < 1:
        raise InputError(f"--groups: groups and steps of 1 rank or more, not {text!r}")
    blocks = even_groups(placement, ranks, size * stride)
    if isinstance(blocks, PlacementVerdict):
        return blocks if stride == 1 else replace(blocks, alternatives=())
    return blocks.reshape(-1, size, stride).swapaxes(1, 2).reshape(-1, size)


def listed_groups(text: str) -> IntArray:
    """Return the groups a text lists: ranks and ranges, groups apart by semicolons."""
    groups = []
    for part in text.split(";"):
        ranks: list[int] = []
        for item in part.split(","):
            match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", item)
            if match is None:
                raise InputError(
                    f"--groups: cannot read {text!r}; write 16, 16@32 or lists such as 0-7;8-15"
                )
            first, last = int(match[1]), int(match[2] or match[1])
            if not first <= last < first + MOST_LISTED:
                raise InputError(
                    f"--groups: {item.strip()!r} is not a range of 1 to {MOST_LISTED:,} ranks"
                )
            ranks += range(first, last + 1)
        groups.append(ranks)
    if len({len(group) for group in groups}) != 1:
        raise InputError("--groups: all groups must have the same number of ranks")
    return np.array(groups, dtype=np.int64)


def selected_of(
    stack: CollectiveStack,
    placement: Placement,
    op: Op,
    groups: IntArray,
    *,
    algorithm: Algorithm | None = None,
    symmetric: bool = True,
) -> tuple[Selected, ...] | Refusal:
    """Algorithms of a collective by size as its stack takes them, or why there is none."""
    pairs = neighbour_pairs(placement.fabric, groups[0]) if op == "permute" else None
    members = members_of(placement, groups, symmetric=symmetric)
    return chosen_for(stack, members, op, pairs, algorithm=algorithm)


def choice_at(selected: Sequence[Selected], size_bytes: float) -> Selected:
    return selected[int(selected_for(selected, np.array([size_bytes]))[0])]


def link_loads(
    placed: Placed, busy: FloatArray, carried_bytes: FloatArray, most: int | None = None
) -> tuple[LinkLoad, ...]:
    """Links that carried anything, the busiest first."""
    fabric = placed.placement.fabric
    return tuple(
        LinkLoad(
            name=placed.link_name(i),
            level=fabric.links[i % fabric.links_per_node].level,
            busy=float(busy[i]),
            size_bytes=float(carried_bytes[i]),
        )
        for i in np.argsort(-busy, kind="stable")[:most].tolist()
        if carried_bytes[i] > 0
    )


def busier(busy: FloatArray, *links: int) -> float:
    """The largest busy share of some links; a negative number stands for no link."""
    return float(max((busy[link] for link in links if link >= 0), default=0.0))


def plane_of(
    name: str, shape: tuple[int, int], wired: IntArray, busy: FloatArray, first: int = 0
) -> Plane:
    """The 2D torus whose first chip is given: each link counts as its busier way."""
    rows, columns = shape
    right, below = [], []
    for row, column in (divmod(place, columns) for place in range(rows * columns)):
        chip = first + row * columns + column
        east = first + row * columns + (column + 1) % columns
        south = first + (row + 1) % rows * columns + column
        right.append(busier(busy, wired[chip, 1, 0], wired[east, 1, 1]))
        below.append(busier(busy, wired[chip, 0, 0], wired[south, 0, 1]))
    return Plane(name=name, shape=shape, right=tuple(right), below=tuple(below))
