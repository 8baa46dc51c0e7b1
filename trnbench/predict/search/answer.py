"""Result of a search, from its counts and the layouts it kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from trnbench.engines.analytic.step.memory import memory
from trnbench.engines.analytic.step.utilization import check_peak, mfu
from trnbench.facts.calibration.coverage import DEGREES
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.search.counts import Counts
from trnbench.predict.search.legality import nearest_refusal
from trnbench.predict.search.plain import PlainRanking
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.ranking import Entries, LayoutRanking
from trnbench.predict.search.result import ClusterResult, Found, NearestMiss, Ranked, SearchResult
from trnbench.predict.search.runs import Run
from trnbench.predict.search.space import Space
from trnbench.program.step import training_step


class Ending(Record, eq=False):
    """State at the end of a search."""

    space: Space
    counts: Counts
    runs: Sequence[Run]
    ranking: LayoutRanking
    sure: LayoutRanking
    """The best layouts within the rows of the stack, where others lie beyond them."""
    misses: LayoutRanking
    plain: PlainRanking | None
    """Plainer layouts; None where nobody asked for them."""
    available_bytes: float
    refusals: tuple[str, ...]
    """Refusals of exchanges and formats by chip and stack, and of the host's memory, as text."""
    stopped: bool
    """True where the caller cancelled the search."""


def answer(ending: Ending, *, top: int, elapsed_s: float) -> SearchResult:
    """Result of a search that took `elapsed_s`, with the `top` fastest layouts of all clusters."""
    best, misses = ending.ranking.of_clusters(), ending.misses.of_clusters()
    within = ending.sure.of_clusters()
    ideal: Memo[Literal["rank"], float] = Memo()
    makers = {
        number: _Records(ending=ending, entries=entries, ideal=ideal)
        for number, entries in best.items()
    }
    clusters = []
    for number, nodes in enumerate(ending.space.question.nodes):
        missed = misses.get(number) if number not in best else None
        clusters.append(
            ClusterResult(
                nodes=nodes + ending.space.question.generation_nodes,
                tally=ending.counts.tally(slice(number, number + 1)),
                ranked=_ranked(makers[number]) if number in makers else (),
                within_rows=_within(ending, within.get(number), makers.get(number)),
                **_plainer(ending, number, makers.get(number)),
                nearest=None if missed is None else _nearest(ending, missed),
            )
        )
    tally = ending.counts.tally()
    # Stable sort on 7 digits: of equal times, the cluster asked for first comes first.
    fastest = sorted(
        (
            (np.float32(score), records, place)
            for _, records in sorted(makers.items())
            for place, score in enumerate(records.entries.score.tolist())
        ),
        key=lambda entry: entry[0],
    )
    near = [cluster.nearest for cluster in clusters if cluster.nearest is not None]
    nearest = None if fastest else min(near, key=lambda miss: miss.ratio, default=None)
    ranked = Ranked(min(len(fastest), top), lambda at: fastest[at][1].record(fastest[at][2]))
    # Make the fastest record now: a utilization above the peak is an error of the calibration.
    _ = ranked[:1]
    return SearchResult(
        tally=tally,
        ranked=ranked,
        by_nodes={cluster.nodes: cluster for cluster in clusters},
        nearest=nearest,
        reasons=() if fastest else _reasons(ending, nearest),
        complete=tally.unseen == 0 and not ending.stopped,
        elapsed_s=elapsed_s,
    )


class _Records(Record, eq=False):
    """Maker of records from the layouts kept for a cluster."""

    ending: Ending
    entries: Entries
    ideal: Memo[Literal["rank"], float]
    """Seconds of a step on one rank at its peak, equal in every layout."""

    def record(self, number: int) -> Found:
        """Record of the layout at a rank of the cluster's ranking."""
        entries, question = self.entries, self.ending.space.question
        run, place = self.ending.runs[int(entries.run[number])], int(entries.place[number])
        layout = run.layout(place)
        # Scores hold the doubt of what lies beyond the rows; times do not.
        step_time_s = float(entries.score[number]) / _doubt(question, layout)
        sequences_per_s = float(layout.global_batch) / step_time_s
        ideal_rank_s = self.ideal.of("rank", lambda: _ideal_rank_s(self.ending, entries))
        mfu = ideal_rank_s / (int(layout.ranks) * step_time_s)
        check_peak(mfu, question.stack.provenance.path or question.stack.name)
        return Found(
            nodes=run.nodes(place),
            layout=layout,
            step_time_s=step_time_s,
            sequences_per_s=sequences_per_s,
            tokens_per_s=sequences_per_s * float(layout.sample_tokens),
            mfu=mfu,
            memory_bytes=float(entries.memory_bytes[number]),
            memory_capacity_bytes=question.platform.memory_per_rank_bytes(question.logical_size),
        )


def _doubt(question: SearchQuestion, layout: Layout) -> float:
    return float(question.doubt({name: np.array(getattr(layout, name)) for name in DEGREES}))


def _within(ending: Ending, entries: Entries | None, maker: _Records | None) -> Found | None:
    """The best layout within the rows, where the best of all lies beyond them."""
    if entries is None or maker is None:
        return None
    best = maker.record(0)
    if _doubt(ending.space.question, best.layout) == 1:
        return None
    return _Records(ending=ending, entries=entries, ideal=maker.ideal).record(0)


def _plainer(ending: Ending, number: int, maker: _Records | None) -> dict[str, Found | None]:
    """The simplest layout of a cluster that is nearly as fast, and the usual one."""
    if ending.plain is None or maker is None:
        return {}
    simple, usual = (
        None if found is None else replace(maker, entries=found).record(0)
        for found in ending.plain.of(number, float(maker.entries.score[0]))
    )
    return {"simplest": simple, "usual": usual}


def _ranked(records: _Records) -> Ranked:
    return Ranked(len(records.entries), records.record)


def _ideal_rank_s(ending: Ending, entries: Entries) -> float:
    """Seconds of a step on one rank at its peak: every layout has the same FLOP."""
    question = ending.space.question
    layout = ending.runs[int(entries.run[0])].layout(int(entries.place[0]))
    alone = training_step(question.model, layout, known_legal=True)
    share = mfu(alone, question.platform, np.array(1.0), logical_size=question.logical_size)
    return float(share) * int(layout.ranks)


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
    """Reasons why no layout can run, as text."""
    question = ending.space.question
    if not ending.counts.legal:
        return nearest_refusal(ending.space)
    if ending.refusals or nearest is None:
        return ending.refusals
    alone = training_step(question.model, nearest.layout)
    expected = memory(
        alone,
        question.platform,
        fragmentation_ratio=question.stack.fragmentation,
        overheads=question.stack.memory,
        logical_size=question.logical_size,
    )
    kept = f"needs {nearest.ratio:.2f}x of what is left by {question.kept_free}"
    return (expected.refusal() or kept,)
