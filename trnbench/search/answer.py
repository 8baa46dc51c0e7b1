"""The answer of a search, from its counts and from the layouts it kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trnbench.analytic.step.memory import memory
from trnbench.analytic.step.utilization import utilization
from trnbench.program.step import training_step
from trnbench.search.counts import Counts
from trnbench.search.legality import nearest_refusal
from trnbench.search.ranking import Entries, LayoutRanking
from trnbench.search.result import ClusterResult, Found, NearestMiss, SearchResult
from trnbench.search.runs import Run
from trnbench.search.space import Space


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ending:
    """What a search ends with; `refusals`: what chip and stack said of exchanges and formats."""

    space: Space
    counts: Counts
    runs: Sequence[Run]
    ranking: LayoutRanking
    misses: LayoutRanking
    available_bytes: float
    refusals: tuple[str, ...]


def answer(ending: Ending, *, top: int, elapsed_s: float) -> SearchResult:
    """Return the answer of a search that took so long."""
    best, misses = ending.ranking.of_clusters(), ending.misses.of_clusters()
    ideal_rank_s = _ideal_rank_s(ending, next(iter(best.values()))) if best else np.nan
    clusters = []
    for number, nodes in enumerate(ending.space.question.nodes):
        ranked = _found(ending, best[number], ideal_rank_s) if number in best else ()
        missed = misses.get(number) if not ranked else None
        clusters.append(
            ClusterResult(
                nodes=nodes,
                tally=ending.counts.tally(slice(number, number + 1)),
                ranked=ranked,
                nearest=None if missed is None else _nearest(ending, missed),
            )
        )
    tally = ending.counts.tally()
    # A stable sort: of equals, that on the cluster asked for first.
    fastest = sorted(
        (found for cluster in clusters for found in cluster.ranked),
        key=lambda found: np.float32(found.step_time_s),
    )
    near = [cluster.nearest for cluster in clusters if cluster.nearest is not None]
    nearest = None if fastest else min(near, key=lambda miss: miss.ratio, default=None)
    return SearchResult(
        tally=tally,
        ranked=tuple(fastest[:top]),
        by_nodes={cluster.nodes: cluster for cluster in clusters},
        nearest=nearest,
        reasons=() if fastest else _reasons(ending, nearest),
        complete=tally.unseen == 0,
        elapsed_s=elapsed_s,
    )


def _found(ending: Ending, entries: Entries, ideal_rank_s: float) -> tuple[Found, ...]:
    question = ending.space.question
    capacity_bytes = question.platform.memory_per_rank_bytes(question.logical_size)
    found = []
    for number in range(len(entries)):
        run, place = ending.runs[int(entries.run[number])], int(entries.place[number])
        layout, step_time_s = run.layout(place), float(entries.score[number])
        sequences_per_s = float(layout.global_batch) / step_time_s
        found.append(
            Found(
                nodes=run.nodes(place),
                layout=layout,
                step_time_s=step_time_s,
                sequences_per_s=sequences_per_s,
                tokens_per_s=sequences_per_s * float(layout.sequence),
                mfu=ideal_rank_s / (int(layout.ranks) * step_time_s),
                memory_bytes=float(entries.memory_bytes[number]),
                memory_capacity_bytes=capacity_bytes,
            )
        )
    return tuple(found)


def _ideal_rank_s(ending: Ending, entries: Entries) -> float:
    """Return the time of a step on one rank at its peak: the same FLOP in every layout, s."""
    question = ending.space.question
    layout = ending.runs[int(entries.run[0])].layout(int(entries.place[0]))
    alone = training_step(question.model, layout)
    share = utilization(alone, question.platform, np.array(1.0), logical_size=question.logical_size)
    return float(share.mfu) * int(layout.ranks)


def _nearest(ending: Ending, entries: Entries) -> NearestMiss:
    run, place = ending.runs[int(entries.run[0])], int(entries.place[0])
    size = float(entries.memory_bytes[0])
    return NearestMiss(
        nodes=run.nodes(place),
        layout=run.layout(place),
        memory_bytes=size,
        ratio=size / ending.available_bytes,
    )


def _reasons(ending: Ending, nearest: NearestMiss | None) -> tuple[str, ...]:
    """Return in words why there is no best layout."""
    question = ending.space.question
    if not ending.counts.legal:
        return nearest_refusal(ending.space)
    if ending.refusals or nearest is None:
        return ending.refusals
    alone = training_step(question.model, nearest.layout)
    expected, careful = (
        memory(
            alone,
            question.platform,
            fragmentation_ratio=ratio,
            logical_size=question.logical_size,
        )
        for ratio in (question.stack.fragmentation, question.fragmentation_ratio)
    )
    refused = expected.refusal()
    if refused and question.headroom is None:
        left = careful.capacity_bytes - question.available_bytes
        refused = replace(careful, reserve_bytes=left).refusal()
    kept = f"needs {nearest.ratio:.2f}x of what is left by {question.kept_free}"
    return (refused or kept,)
