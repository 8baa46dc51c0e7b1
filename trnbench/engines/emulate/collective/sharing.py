"""Max-min fair sharing of links, in arrays: how fast each message goes, and when it is through.

Every message gets the largest speed such that none can go faster without slowing a slower one.
Independent groups of messages (rounds of a lock-step run) are solved in the same arrays: they
only need links of their own, that is, other link numbers.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray

_EQUAL = 1e-9


def fair_rates(
    links: IntArray, capacity: FloatArray, crossing_by: FloatArray | None = None
) -> FloatArray:
    """Max-min fair speed of each message, bytes/s.

    `links[message, hop]` are link numbers; the last entry of `capacity` (infinite) means no link.
    A row may stand for many messages: `crossing_by[row, hop]` of them go over the link.
    Each pass settles every message that crosses a link which is the tightest for all on it.
    """
    rates = np.zeros(len(links))
    left = capacity.copy()
    going = np.arange(len(links))
    none = len(capacity) - 1
    # Hop by hop: numpy goes fastest along the messages.
    paths = np.ascontiguousarray(links.T)
    shares = None if crossing_by is None else np.ascontiguousarray(crossing_by.T)
    while len(going):
        crossing = np.bincount(
            paths.ravel(), None if shares is None else shares.ravel(), minlength=len(capacity)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            fair = np.where(crossing > 0, left / crossing, np.inf)
        fair[none] = np.inf
        # A message is settled where its tightest link is the tightest of every message on it: no
        # later pass can give these more.
        offered = fair[paths]
        own = offered.min(axis=0)
        slack = own < offered * (1 - _EQUAL)
        loose = np.zeros(len(capacity), dtype=bool)
        loose[paths[slack]] = True
        loose[none] = False
        if not loose.any():
            rates[going] = own
            break
        loose[none] = True
        settled = ~loose[paths].all(axis=0)
        rates[going[settled]] = own[settled]
        each = np.repeat(own[settled], len(paths))
        used = np.bincount(
            paths[:, settled].T.ravel(),
            weights=each if shares is None else each * shares[:, settled].T.ravel(),
            minlength=len(capacity),
        )
        used[none] = 0.0
        left = np.maximum(left - used, 0.0)
        going, paths = going[~settled], paths[:, ~settled]
        shares = None if shares is None else shares[:, ~settled]
    return rates


def transfer_times(
    links: IntArray, size_bytes: FloatArray, capacity: FloatArray, group: IntArray, groups: int
) -> FloatArray:
    """Seconds until each message has arrived, if all messages of a group start together.

    As messages end, the rest of their group share the freed bandwidth. Groups must not share links.
    """
    times = np.zeros(len(links))
    clock = np.zeros(groups)
    going = np.flatnonzero(size_bytes > 0)
    left, path, own = size_bytes[going].astype(float), links[going], group[going]
    rates = fair_rates(path, capacity)
    while len(going):
        # Every group jumps to its own next end of a message, so groups keep clocks of their own.
        needed = left / rates
        first = np.full(groups, np.inf)
        np.minimum.at(first, own, needed)
        step = first[own]
        ends = needed <= step * (1 + _EQUAL)
        times[going[ends]] = clock[own[ends]] + needed[ends]
        clock += np.where(np.isfinite(first), first, 0.0)
        stays = ~ends
        freed = np.zeros(len(capacity), dtype=bool)
        freed[path[ends]] = True
        freed[-1] = False
        left = (left - rates * step)[stays]
        going, path, own, rates = going[stays], path[stays], own[stays], rates[stays]
        # Only those who share a link with what ended go on at another speed.
        if freed[path].any():
            rates = fair_rates(path, capacity)
    return times
