"""Max-min fair sharing of links, in arrays, and messages that are alike in it.

Every message gets the largest speed such that none can go faster without slowing a slower one.

Equal messages. Messages of a round are alike if they carry as much and cross like links; links are
alike if they are as fast and like messages cross them. Starting from what messages and links are by
themselves, classes are cut until both hold (colour refinement). Max-min fair speeds are then the
same within a class, whichever of the rounds are under way and however often: a round is as many
rows as it has classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record
from trnbench.machine.message_plan.placed import PlacedRound

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


def transfer_times(links: IntArray, size_bytes: FloatArray, capacity: FloatArray) -> FloatArray:
    """Seconds until each message has arrived, if all start together.

    As messages end, the rest share the freed bandwidth.
    """
    times = np.zeros(len(links))
    clock = 0.0
    going = np.flatnonzero(size_bytes > 0)
    left, path = size_bytes[going].astype(float), links[going]
    rates = fair_rates(path, capacity)
    while len(going):
        # Time jumps to the next end of a message.
        needed = left / rates
        step = needed.min()
        ends = needed <= step * (1 + _EQUAL)
        times[going[ends]] = clock + needed[ends]
        clock += step
        stays = ~ends
        freed = np.zeros(len(capacity), dtype=bool)
        freed[path[ends]] = True
        freed[-1] = False
        left = (left - rates * step)[stays]
        going, path, rates = going[stays], path[stays], rates[stays]
        # Only those who share a link with what ended go on at another speed.
        if freed[path].any():
            rates = fair_rates(path, capacity)
    return times


_MARKS = 1 << 30
"""Marks of classes are drawn from so many; sums of millions of them are whole numbers still."""


class RoundClasses(Record, eq=False):
    """The classes of messages of a round."""

    first: IntArray  # First message of each class
    links: IntArray  # [class, hop]: class of the links that a message crosses
    crossing: FloatArray  # [class, hop]: messages of the class over each of these links


class ClassLoads(Record, eq=False):
    """The classes of several rounds in a table; classes that load links alike are merged."""

    links: IntArray  # [class, hop]
    crossing: FloatArray  # [class, hop]
    numbers: tuple[IntArray, ...]  # Numbers of the classes of each round


def class_loads(rounds: Sequence[RoundClasses], none: int) -> ClassLoads:
    """Table of these rounds' classes; `none` is the number of no link."""
    wide = max((of.links.shape[1] for of in rounds), default=1)
    total = sum(len(of.first) for of in rounds)
    links, crossing = np.full((total, wide), none), np.zeros((total, wide))
    cuts = np.cumsum([0, *(len(of.first) for of in rounds)])
    for of, start, stop in zip(rounds, cuts[:-1], cuts[1:], strict=True):
        links[start:stop, : of.links.shape[1]] = of.links
        crossing[start:stop, : of.links.shape[1]] = of.crossing
    rows = np.column_stack([links, crossing])
    _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return ClassLoads(
        links=links[first],
        crossing=crossing[first],
        numbers=tuple(np.split(number.reshape(-1), cuts[1:-1])),
    )


def like_messages(
    rounds: Sequence[PlacedRound], capacity: FloatArray
) -> tuple[tuple[RoundClasses, ...], FloatArray]:
    """Classes of some rounds that may run side by side, and the speed of each class of links.

    The last class of links is none.
    """
    if not rounds:
        return (), capacity
    none = len(capacity) - 1
    paths = [found.links.reshape(len(found.source), -1) for found in rounds]
    wide = max(path.shape[1] for path in paths)
    path = np.concatenate(
        [np.pad(p, ((0, 0), (0, wide - p.shape[1])), constant_values=none) for p in paths]
    )
    own = [
        np.repeat(np.arange(len(rounds)), [len(p) for p in paths]),
        np.concatenate([found.share for found in rounds]),
        np.concatenate([found.latency_s for found in rounds]),
        np.concatenate([found.remote for found in rounds]),
    ]
    message = _numbered(np.stack([np.asarray(column, dtype=float) for column in own], axis=1))
    link = _numbered(np.append(capacity[:-1], -1.0)[:, None])
    message, link = _refined(path, message, link)
    ends = np.cumsum([len(p) for p in paths])
    links_in = np.bincount(link)
    _, first_of_link = np.unique(link, return_index=True)
    return (
        tuple(
            _classes(path[end - len(p) : end], message[end - len(p) : end], link, links_in)
            for end, p in zip(ends, paths, strict=True)
        ),
        np.append(np.delete(capacity[first_of_link], int(link[none])), np.inf),
    )


def _refined(path: IntArray, message: IntArray, link: IntArray) -> tuple[IntArray, IntArray]:
    """Classes of messages and links, cut until all members of a class are equal."""
    draws = np.random.default_rng(0)
    while True:
        # Classes only split, so an unchanged number of them means that nothing changed.
        before = int(message.max()) + int(link.max())
        crossed = np.sort(link[path], axis=1)
        message = _numbered(np.column_stack([message, crossed]))
        sums = [link.astype(float)]
        # A link's messages as a sum of random marks: equal sums of two draws are equal sets, but
        # for a chance of about 1 in 2^60.
        for _ in range(2):
            marks = draws.integers(1, _MARKS, size=int(message.max()) + 1).astype(float)
            weights = np.repeat(marks[message], path.shape[1])
            sums.append(np.bincount(path.ravel(), weights=weights, minlength=len(link)))
        # No link is no link, however many messages lack one.
        sums[1][-1] = sums[2][-1] = -1.0
        link = _numbered(np.stack(sums, axis=1))
        if int(message.max()) + int(link.max()) == before:
            return message, link


def _classes(path: IntArray, message: IntArray, link: IntArray, links_in: IntArray) -> RoundClasses:
    none = int(link[-1])
    _, first, of = np.unique(message, return_index=True, return_inverse=True)
    crossed = link[path]
    pairs = (of[:, None] * len(links_in) + crossed).ravel()
    hops = np.bincount(pairs, minlength=len(first) * len(links_in)).reshape(len(first), -1)
    hops[:, none] = 0
    wide = max(int((hops > 0).sum(axis=1).max()), 1)
    order = np.argsort(hops == 0, axis=1, kind="stable")[:, :wide]
    count = np.take_along_axis(hops, order, axis=1)
    # What stands for no link is put behind all others.
    last = len(links_in) - 1
    number = np.where(order > none, order - 1, order)
    return RoundClasses(
        first=first, links=np.where(count > 0, number, last), crossing=count / links_in[order]
    )


def _numbered(rows: FloatArray | IntArray) -> IntArray:
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1]).reshape(-1)
