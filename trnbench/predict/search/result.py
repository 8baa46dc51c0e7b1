"""Result of a search: counts that add up, and the best layouts of every cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import overload

import numpy as np

from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.assumption import Assumption


class Found(Record):
    """A layout on `nodes` instances, with its time and its memory per rank."""

    nodes: int
    layout: Layout
    step_time_s: float
    sequences_per_s: float
    tokens_per_s: float
    mfu: float
    memory_bytes: float
    memory_capacity_bytes: float
    doubt: float = 1.0
    """Factor of the time by which the layout is ranked: 1 within the measured rows."""

    def paced(self, pace: float) -> Found:
        """The layout at a multiple of its time."""
        return replace(
            self,
            step_time_s=pace * self.step_time_s,
            sequences_per_s=self.sequences_per_s / pace,
            tokens_per_s=self.tokens_per_s / pace,
            mfu=self.mfu / pace,
        )


class Ranked(Sequence[Found]):
    """Layouts in order, each made into a record when first read; equal to a tuple of records."""

    def __init__(self, count: int, make: Callable[[int], Found]) -> None:
        self._count, self._make = count, make
        self._made: Memo[int, Found] = Memo()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Found: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Found, ...]: ...

    def __getitem__(self, place: int | slice) -> Found | tuple[Found, ...]:
        """One layout, or a tuple of several for a slice."""
        places = range(self._count)[place]
        if isinstance(places, range):
            return tuple(self[at] for at in places)
        return self._made.of(places, lambda: self._make(places))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranked | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type, tuple[tuple[Found, ...]]]:
        """Pickle as a tuple of records: the maker refers to the whole search."""
        return tuple, (tuple(self),)


class NearestMiss(Record):
    """The valid layout that needs the least memory, where none fits."""

    nodes: int
    layout: Layout
    memory_bytes: float
    """Bytes needed by a rank of the worst stage."""
    ratio: float
    """Needed over available memory."""


class Tally(Record):
    """Counts of layouts by the step they reached.

    considered = legal + those rejected by a rule of the platform or of division
    legal = feasible + rejected by "memory" + unseen (left over by a cancelled search)
    feasible = priced + outpaced + rejected by "collective" (the stack cannot) or "format" (the chip
    cannot); outpaced are those that a bound of their time shows to be slower than the best
    """

    considered: int
    legal: int
    feasible: int
    priced: int
    unseen: int
    rejected_by_reason: Mapping[str, int]
    outpaced: int = 0

    @classmethod
    def sum(cls, tallies: Sequence[Tally]) -> Tally:
        """Counts of several searches added up, the most frequent reason first."""
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
            outpaced=sum(tally.outpaced for tally in tallies),
            rejected_by_reason=dict(sorted(rejected.items(), key=lambda item: (-item[1], item[0]))),
        )


class ClusterResult(Record):
    """Result on one cluster of `nodes` instances."""

    nodes: int
    tally: Tally
    ranked: Sequence[Found]
    """The best layouts, fastest first."""
    nearest: NearestMiss | None
    """The layout nearest to fitting, where none fits."""
    within_rows: Found | None = None
    """The best layout within the stack's measured rows, where the best of all lies beyond them."""
    simplest: Found | None = None
    """The simplest layout that is nearly as fast as the best; None where nobody asked."""
    usual: Found | None = None
    """The layout that users begin with; None where it does not run or nobody asked."""

    @property
    def best(self) -> Found | None:
        return self.ranked[0] if self.ranked else None

    def paced(self, pace: float) -> ClusterResult:
        """The result at a multiple of all times."""
        within = self.within_rows
        return replace(
            self,
            ranked=tuple(layout.paced(pace) for layout in self.ranked),
            within_rows=within and within.paced(pace),
            simplest=self.simplest and self.simplest.paced(pace),
            usual=self.usual and self.usual.paced(pace),
        )

    @property
    def preferring_simple(self) -> ClusterResult:
        """The result with the simplest layout that is nearly as fast in the first place."""
        first = self.simplest
        if first is None:
            return self
        others = tuple(one for one in self.ranked if one.layout != first.layout)
        return replace(self, ranked=(first, *others))


class SearchResult(Record):
    """Result on all clusters together, and on each."""

    tally: Tally
    ranked: Sequence[Found]
    by_nodes: Mapping[int, ClusterResult]
    nearest: NearestMiss | None
    reasons: tuple[str, ...]
    """Why nothing was found, for the layout that came nearest."""
    complete: bool
    """False where the search was cancelled or left valid layouts unseen."""
    elapsed_s: float
    """Wall time of the search."""
    assumed: tuple[Assumption, ...] = ()
    """What nobody said of the best layout."""

    @property
    def best(self) -> Found | None:
        return self.ranked[0] if self.ranked else None

    def paced(self, paces: Mapping[int, float]) -> SearchResult:
        """The result at a multiple of the times of each number of nodes."""
        ranked = (
            layout.paced(paces[layout.nodes]) for layout in self.ranked if layout.nodes in paces
        )
        clusters = self.by_nodes.items()
        return replace(
            self,
            ranked=tuple(sorted(ranked, key=lambda layout: layout.step_time_s)),
            by_nodes={
                n: cluster.paced(paces[n]) if n in paces else cluster for n, cluster in clusters
            },
        )

    @property
    def preferring_simple(self) -> SearchResult:
        """The result with the simplest layout that is nearly as fast first on each cluster."""
        clusters = {n: one.preferring_simple for n, one in self.by_nodes.items()}
        firsts = [one.best for one in clusters.values() if one.best is not None]
        ranked = tuple(sorted(firsts, key=lambda one: one.step_time_s))
        return replace(self, ranked=ranked, by_nodes=clusters)

    @property
    def legal(self) -> int:
        return self.tally.legal

    @property
    def feasible(self) -> int:
        return self.tally.feasible


def joined(results: Sequence[SearchResult], nodes: Sequence[int]) -> SearchResult:
    """One result from searches of different clusters, which are sorted as in `nodes`."""
    if len(results) == 1:
        return results[0]
    clusters = {n: cluster for result in results for n, cluster in result.by_nodes.items()}
    best = [layout for result in results for layout in result.ranked]
    most = max(len(result.ranked) for result in results)
    ranked = sorted(best, key=lambda layout: -layout.tokens_per_s)[:most]
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
    """The result of one search over all clusters, from searches that shared the clusters."""
    if len(results) == 1:
        return results[0]
    same = ([result.by_nodes[n] for result in results] for n in results[0].by_nodes)
    clusters = [max(each, key=lambda cluster: cluster.tally.considered) for each in same]
    # As in `answer`: of times that agree to 7 digits, the cluster asked for first comes first.
    ranked = sorted(
        (layout for cluster in clusters for layout in cluster.ranked),
        key=lambda layout: np.float32(layout.step_time_s),
    )[:top]
    misses = [cluster.nearest for cluster in clusters if cluster.nearest is not None]
    nearest = None if ranked else min(misses, key=lambda miss: miss.ratio, default=None)
    blamed = [result for result in results if result.nearest is nearest] or [*results]
    return SearchResult(
        tally=Tally.sum([result.tally for result in results]),
        ranked=tuple(ranked),
        by_nodes={cluster.nodes: cluster for cluster in clusters},
        nearest=nearest,
        reasons=() if ranked else blamed[0].reasons,
        complete=all(result.complete for result in results),
        elapsed_s=max(result.elapsed_s for result in results),
    )
