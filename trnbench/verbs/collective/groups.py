"""Replica groups as users write them: a size, a size and a stride, or the ranks themselves."""

from __future__ import annotations

import re

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import IntArray
from trnbench.facts.records import replace
from trnbench.machine.legality import PlacementVerdict, even_groups
from trnbench.machine.placement import Placement

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
                    f"--groups: {item.strip()!r} is no range of 1 to {MOST_LISTED:,} ranks"
                )
            ranks += range(first, last + 1)
        groups.append(ranks)
    if len({len(group) for group in groups}) != 1:
        raise InputError("--groups: all groups must have the same number of ranks")
    return np.array(groups, dtype=np.int64)
