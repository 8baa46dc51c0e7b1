"""Max-min fair sharing of links, in arrays: how fast each message goes, and when it is through.

Every message gets the largest speed such that none can go faster without slowing a slower one.
Independent groups of messages (rounds of a lock-step run) are solved in the same arrays: they
only need links of their own, that is, other link numbers.
"""

from __future__ import annotations

import numpy as np

from trnbench.arrays import FloatArray, IntArray

_EQUAL = 1e-9


def fair_rates(
    links: IntArray, capacity: FloatArray, crossing_by: FloatArray | None = None
) -> FloatArray:
    """Return the max-min fair speed of each message, bytes/s.

    `links[message, hop]` are link numbers; the last entry of `capacity` (infinite) means no link.
    A row may stand for many messages: `crossing_by[row, hop]` of them go over the link.
    Each pass settles every message that crosses a link which is the tightest for all on it.
    """
    rates = np.zeros(len(links))
    left = capacity.copy()
    going = np.arange(len(links))
    none = len(capacity) - 1
    while len(going):
        path = links[going]
        by = None if crossing_by is None else crossing_by[going]
        crossing = np.bincount(
            path.ravel(), None if by is None else by.ravel(), minlength=len(capacity)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            fair = np.where(crossing > 0, left / crossing, np.inf)
        fair[none] = np.inf
        offered = fair[path]
        own = offered.min(axis=1)
        slack = own[:, None] < offered * (1 - _EQUAL)
        if not slack[path != none].any():
            rates[going] = own
            break
        loose = np.zeros(len(capacity), dtype=bool)
        loose[path[slack]] = True
        loose[none] = True
        settled = ~loose[path].all(axis=1)
        done = going[settled]
        rates[done] = own[settled]
        each = np.repeat(own[settled], path.shape[1])
        used = np.bincount(
            path[settled].ravel(),
            weights=each if by is None else each * by[settled].ravel(),
            minlength=len(capacity),
        )
        used[none] = 0.0
        left = np.maximum(left - used, 0.0)
        going = going[~settled]
    return rates


def transfer_times(
    links: IntArray, size_bytes: FloatArray, capacity: FloatArray, group: IntArray, groups: int
) -> FloatArray:
    """Return when each message is through, in s, if all messages of a group start together.

    As messages end, the rest of their group share what becomes free. Groups must not share links.
    """
    times = np.zeros(len(links))
    left = size_bytes.astype(float)
    clock = np.zeros(groups)
    going = np.flatnonzero(left > 0)
    while len(going):
        rates = fair_rates(links[going], capacity)
        needed = left[going] / rates
        own = group[going]
        first = np.full(groups, np.inf)
        np.minimum.at(first, own, needed)
        step = first[own]
        ends = needed <= step * (1 + _EQUAL)
        times[going[ends]] = clock[own[ends]] + needed[ends]
        left[going] -= rates * step
        clock += np.where(np.isfinite(first), first, 0.0)
        going = going[~ends]
    return times
