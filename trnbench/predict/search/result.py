"""What a search found: counts that add up, and the best layouts of every cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import overload

import numpy as np

from trnbench.facts.memo import Memo
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import Layout


class Found(Record):
    """A layout on so many nodes, with its time and memory; conventions of `mfu` as elsewhere."""

    nodes: int
    layout: Layout
    step_time_s: float
    sequences_per_s: float
    tokens_per_s: float
    mfu: float
    memory_bytes: float
    memory_capacity_bytes: float


class Ranked(Sequence[Found]):
    """Layouts in order, each made into a record when it is read; equal to a tuple of the same."""

    def __init__(self, count: int, make: Callable[[int], Found]) -> None:
        self._count, self._make = count, make
        self._made: Memo[int, Found] = Memo()

    def __len__(self) -> int:
        """Layouts."""
        return self._count

    @overload
    def __getitem__(self, place: int) -> Found: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Found, ...]: ...

    def __getitem__(self, place: int | slice) -> Found | tuple[Found, ...]:
        """Return one of them, or several."""
        places = range(self._count)[place]
        if isinstance(places, range):
            return tuple(self[one] for one in places)
        return self._made.of(places, lambda: self._make(places))

    def __eq__(self, other: object) -> bool:
        """Tell whether another sequence has the same layouts."""
        return isinstance(other, Ranked | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Return the hash of the tuple that it is equal to."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Return the text of that tuple."""
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type, tuple[tuple[Found, ...]]]:
        """Return what another process reads: the records."""
        return tuple, (tuple(self),)


class NearestMiss(Record):
    """The legal layout that needs least memory where none fits: `ratio` of what may be used."""

    nodes: int
    layout: Layout
    memory_bytes: float
    ratio: float


class Tally(Record):
    """How many layouts came how far.

    considered = legal + those rejected by a rule of the platform or of division
    legal = feasible + rejected by "memory" + unseen (a search that was cancelled left them)
    feasible = priced + rejected by "collective" (the stack cannot) or "format" (the chip cannot)
    """

    considered: int
    legal: int
    feasible: int
    priced: int
    unseen: int
    rejected_by_reason: Mapping[str, int]

    @classmethod
    def sum(cls, tallies: Sequence[Tally]) -> Tally:
        """Return the counts of several searches added up, the commonest reason first."""
        rejected: dict[str, int] = {}
        for tally in tallies:
            for rule, count in tally.rejected_by_reason.items():
                rejected[rule] = rejected.get(rule, 0) + count
        return cls(
            considered=sum(tally.considered for tally in tallies),
            legal=sum(tally.legal for tally in tallies),
            feasible=sum(tally.feasible for tally in tallies),
            priced=sum(tally.priced for tally in tallies),
            unseen=sum(tally.unseen for tally in tallies),
            rejected_by_reason=dict(sorted(rejected.items(), key=lambda item: (-item[1], item[0]))),
        )


class ClusterResult(Record):
    """What was found on so many nodes; `ranked` are the best layouts, fastest first."""

    nodes: int
    tally: Tally
    ranked: Sequence[Found]
    nearest: NearestMiss | None

    @property
    def best(self) -> Found | None:
        """The fastest layout, if any is feasible."""
        return self.ranked[0] if self.ranked else None


class SearchResult(Record):
    """What was found on all clusters together, and on each.

    `reasons` say in words why nothing was found, for the layout that came nearest. `elapsed_s` is
    the wall time of the search.
    """

    tally: Tally
    ranked: Sequence[Found]
    by_nodes: Mapping[int, ClusterResult]
    nearest: NearestMiss | None
    reasons: tuple[str, ...]
    complete: bool
    elapsed_s: float

    @property
    def best(self) -> Found | None:
        """The fastest layout, if any is feasible."""
        return self.ranked[0] if self.ranked else None

    @property
    def legal(self) -> int:
        """Layouts that divide and that the platform takes."""
        return self.tally.legal

    @property
    def feasible(self) -> int:
        """Legal layouts that fit in memory."""
        return self.tally.feasible


def joined(results: Sequence[SearchResult], nodes: Sequence[int]) -> SearchResult:
    """Return one result of searches of different clusters, these in the order of `nodes`."""
    if len(results) == 1:
        return results[0]
    clusters = {n: cluster for result in results for n, cluster in result.by_nodes.items()}
    best = [found for result in results for found in result.ranked]
    ranked = sorted(best, key=lambda found: -found.tokens_per_s)[: max(map(len, _ranked(results)))]
    misses = [result.nearest for result in results if result.nearest is not None]
    return SearchResult(
        tally=Tally.sum([result.tally for result in results]),
        ranked=tuple(ranked),
        by_nodes={n: clusters[n] for n in nodes if n in clusters},
        nearest=min(misses, key=lambda miss: miss.ratio, default=None),
        reasons=() if ranked else tuple(r for result in results for r in result.reasons),
        complete=all(result.complete for result in results),
        elapsed_s=sum(result.elapsed_s for result in results),
    )


def reunited(results: Sequence[SearchResult], top: int) -> SearchResult:
    """Return what one search of all clusters finds, from searches that shared them."""
    if len(results) == 1:
        return results[0]
    in_order = [
        max((result.by_nodes[n] for result in results), key=lambda one: one.tally.considered)
        for n in results[0].by_nodes
    ]
    # As one search has it: of times that agree to 7 digits, that on the cluster asked for first.
    ranked = sorted(
        (found for cluster in in_order for found in cluster.ranked),
        key=lambda found: np.float32(found.step_time_s),
    )[:top]
    misses = [cluster.nearest for cluster in in_order if cluster.nearest is not None]
    nearest = None if ranked else min(misses, key=lambda miss: miss.ratio, default=None)
    blamed = [result for result in results if result.nearest is nearest] or [*results]
    return SearchResult(
        tally=Tally.sum([result.tally for result in results]),
        ranked=tuple(ranked),
        by_nodes={cluster.nodes: cluster for cluster in in_order},
        nearest=nearest,
        reasons=() if ranked else blamed[0].reasons,
        complete=all(result.complete for result in results),
        elapsed_s=max(result.elapsed_s for result in results),
    )


def _ranked(results: Sequence[SearchResult]) -> list[Sequence[Found]]:
    return [result.ranked for result in results]
