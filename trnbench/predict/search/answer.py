"""Result of a search, from its counts and the layouts it kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from trnbench.engines.analytic.step.memory import memory
from trnbench.engines.analytic.step.utilization import check_peak, mfu
from trnbench.facts.calibration.coverage import DEGREES
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import KNOBS, RANK_DEGREES, Layout
from trnbench.facts.workload.model import Model
from trnbench.predict.job_rates import host_states_refusal
from trnbench.predict.search.counts import Counts
from trnbench.predict.search.legality import nearest_refusal
from trnbench.predict.search.plain import PlainRanking
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.ranking import Entries, LayoutRanking
from trnbench.predict.search.result import ClusterResult, Found, NearestMiss, Ranked, SearchResult
from trnbench.predict.search.runs import Run
from trnbench.predict.search.space import Space
from trnbench.program.step import StepProgram, training_step

Best: TypeAlias = Literal["of each", "of all"]
"""Clusters among which the best layouts are looked for: each for itself, or all together."""


class SearchState:
    """State of a search: counts of its layouts, and the best of them up to now."""

    def __init__(self, space: Space, top: int, best: Best | None = None) -> None:
        self.space, self.question = space, space.question
        clusters = len(space.question.nodes)
        self.counts = Counts(clusters)
        self.runs: list[Run] = []
        # Only the best are looked for, of each cluster or of all; None prices every layout. Plainer
        # ones are those of a cluster.
        self.best = None if self.question.plainer and best == "of all" else best
        self.ranking = LayoutRanking(clusters=clusters, top=top, together=self.best == "of all")
        # The best layouts within the rows of the stack, where others lie beyond them.
        self.sure = LayoutRanking(clusters=clusters, top=1)
        self.misses = LayoutRanking(clusters=clusters, top=1)
        # Plainer layouts; None where nobody asked for them.
        self.plain = PlainRanking(clusters) if self.question.plainer else None
        self.available_bytes = space.question.available_bytes
        self.refused: dict[str, None] = {}
        self.least_on_host = np.inf
        self.has_stopped = False

    @property
    def refusals(self) -> tuple[str, ...]:
        """Refusals by chip and stack of layouts that fit in chip memory, as text."""
        least, instance = self.least_on_host, self.question.platform.instance
        if not np.isfinite(least):
            return tuple(self.refused)
        away = self.question.layout["activation_offload"] is not None
        host = host_states_refusal(instance, least, activations=away)
        return (*self.refused, *((host,) if host else ()))


def answer(state: SearchState, *, top: int, elapsed_s: float) -> SearchResult:
    """Result of a search that took `elapsed_s`, with the `top` fastest layouts of all clusters."""
    best, misses = state.ranking.of_clusters(), state.misses.of_clusters()
    within = state.sure.of_clusters()
    ideal: Memo[Literal["rank"], float] = Memo()
    makers = {
        number: _Records(state=state, entries=entries, ideal=ideal)
        for number, entries in best.items()
    }
    clusters = []
    for number, (nodes, tally) in enumerate(
        zip(state.question.nodes, state.counts.tallies(), strict=True)
    ):
        missed = misses.get(number) if number not in best else None
        clusters.append(
            ClusterResult(
                nodes=nodes + state.question.generation_nodes,
                tally=tally,
                ranked=_ranked(makers[number]) if number in makers else (),
                within_rows=_within(state, within.get(number), makers.get(number)),
                **_plainer(state, number, makers.get(number)),
                nearest=None if missed is None else _nearest(state, missed),
            )
        )
    tally = state.counts.tally()
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
        reasons=() if fastest else _reasons(state, nearest),
        complete=tally.unseen == 0 and not state.has_stopped,
        elapsed_s=elapsed_s,
    )


class _Records(Record, eq=False):
    """Maker of records from the layouts kept for a cluster."""

    state: SearchState
    entries: Entries
    ideal: Memo[Literal["rank"], float]
    """Seconds of a step on one rank at its peak, equal in every layout."""

    def record(self, number: int) -> Found:
        """Record of the layout at a rank of the cluster's ranking."""
        entries, question = self.entries, self.state.question
        run, place = self.state.runs[int(entries.run[number])], int(entries.place[number])
        layout = run.layout(place)
        # Scores hold the doubt of what lies beyond the rows; times do not.
        doubt = _doubt(question, layout)
        step_time_s = float(entries.score[number]) / doubt
        sequences_per_s = float(layout.global_batch) / step_time_s
        ideal_rank_s = self.ideal.of("rank", lambda: _ideal_rank_s(question))
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
            doubt=doubt,
        )


def _doubt(question: SearchQuestion, layout: Layout) -> float:
    return float(question.doubt({name: np.array(getattr(layout, name)) for name in DEGREES}))


def _within(state: SearchState, entries: Entries | None, maker: _Records | None) -> Found | None:
    """The best layout within the rows, where the best of all lies beyond them."""
    if entries is None or maker is None:
        return None
    best = maker.record(0)
    if _doubt(state.question, best.layout) == 1:
        return None
    return _Records(state=state, entries=entries, ideal=maker.ideal).record(0)


def _plainer(state: SearchState, number: int, maker: _Records | None) -> dict[str, Found | None]:
    """The simplest layout of a cluster that is nearly as fast, and the usual one."""
    if state.plain is None or maker is None:
        return {}
    simple, usual = (
        None if found is None else replace(maker, entries=found).record(0)
        for found in state.plain.of(number, float(maker.entries.score[0]))
    )
    return {"simplest": simple, "usual": usual}


def _ranked(records: _Records) -> Ranked:
    return Ranked(len(records.entries), records.record)


def _ideal_rank_s(question: SearchQuestion) -> float:
    """Seconds of a step on one rank at its peak: every layout has the same FLOP."""
    plain = {name: knob.default for name, knob in KNOBS.items() if knob.on_request}
    alone = {**plain, **dict.fromkeys((*RANK_DEGREES, "dp", "micro_batch"), 1)}
    program = _program(question.model, replace(question.completed, **alone))
    size, ideal = question.logical_size, np.array(1.0)
    return float(mfu(program, question.platform, ideal, logical_size=size))


@lru_cache(maxsize=16)
def _program(model: Model, layout: Layout) -> StepProgram:
    # Searches on several instance types ask for the same program.
    return training_step(model, layout, known_legal=True)


def _nearest(state: SearchState, entries: Entries) -> NearestMiss:
    run, place = state.runs[int(entries.run[0])], int(entries.place[0])
    size = float(entries.memory_bytes[0])
    return NearestMiss(
        nodes=run.nodes(place),
        layout=run.layout(place),
        memory_bytes=size,
        ratio=size / state.available_bytes,
    )


def _reasons(state: SearchState, nearest: NearestMiss | None) -> tuple[str, ...]:
    """Reasons why no layout can run, as text."""
    question = state.question
    if not state.counts.legal:
        return nearest_refusal(state.space)
    if state.refusals or nearest is None:
        return state.refusals
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
