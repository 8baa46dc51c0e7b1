"""What a search found: counts that add up, and the best layouts of every cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trnbench.workload.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A layout on so many nodes, with its time and memory; conventions of `mfu` as elsewhere."""

    nodes: int
    layout: Layout
    step_time_s: float
    sequences_per_s: float
    tokens_per_s: float
    mfu: float
    memory_bytes: float
    memory_capacity_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestMiss:
    """The legal layout that needs least memory where none fits: `ratio` of what may be used."""

    nodes: int
    layout: Layout
    memory_bytes: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterResult:
    """What was found on so many nodes; `ranked` are the best layouts, fastest first."""

    nodes: int
    tally: Tally
    ranked: tuple[Found, ...]
    nearest: NearestMiss | None

    @property
    def best(self) -> Found | None:
        """The fastest layout, if any is feasible."""
        return self.ranked[0] if self.ranked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What was found on all clusters together, and on each.

    `reasons` say in words why nothing was found, for the layout that came nearest. `elapsed_s` is
    the wall time of the search.
    """

    tally: Tally
    ranked: tuple[Found, ...]
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


def _ranked(results: Sequence[SearchResult]) -> list[tuple[Found, ...]]:
    return [result.ranked for result in results]
