"""Every legal layout of a question: memory for all of them, time for those that fit.

One program is lowered and priced for each variant of the space; its arrays span few axes of the
grid and are broadcast to the layouts asked for, so what differs only in degrees costs a few sums.
Schedules share a program, and groups of ranks are placed once for all programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from trnbench.analytic.step.collectives import Engines
from trnbench.analytic.step.compute import Products, compute_time
from trnbench.analytic.step.exchanges import Exchanges, exchanges_of
from trnbench.analytic.step.memory import Flights, needed_bytes
from trnbench.analytic.step.time import StepPrices, step_prices
from trnbench.arrays import BoolArray, FloatArray
from trnbench.errors import InputError
from trnbench.program.points import Points
from trnbench.program.schedule import splits_backward
from trnbench.program.step import StepProgram, training_step
from trnbench.search.answer import Ending, answer
from trnbench.search.counts import COLLECTIVE, FORMAT, MEMORY, Counts
from trnbench.search.legality import ScheduleFamily, families, own_modes, parts, some
from trnbench.search.question import Question
from trnbench.search.ranking import LayoutRanking
from trnbench.search.result import SearchResult
from trnbench.search.runs import Run, Seen
from trnbench.search.space import ALONG, Space, Variant, space_of
from trnbench.workload.layout import Schedule

CHUNK = 32_768
"""Layouts at a time: their arrays fit a processor's cache."""

GRID = 1 << 19
"""Points of a grid, chunks aside, for which a program's arrays are made at once."""
KEPT_BYTES = 30 << 20
"""Below what glibc still learns from: 32 MiB."""
CHUNKS = ALONG["vpp"]
"""No exchange depends on how many chunks a stage has."""


Pieces: TypeAlias = Sequence[tuple[Points, Flights]]
"""Layouts of a schedule in chunks, each with what is known of its schedule for all variants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHooks:
    """What the asker hears and says on the way, between one chunk of layouts and the next.

    `progress` hears of (layouts done, legal layouts, what they are), `watch` gets every layout
    priced, and `cancel` ends the search once it is true: what was found until then stays.
    """

    progress: Callable[[int, int, str], None] = lambda done, total, what: None
    cancel: Callable[[], bool] = lambda: False
    watch: Callable[[Seen], None] = lambda seen: None


def search(question: Question, *, top: int = 20, hooks: SearchHooks | None = None) -> SearchResult:
    """Return the best layouts of every cluster, and how many layouts came how far."""
    if top < 1:
        raise InputError(f"the number of layouts to keep must be at least 1: {top}")
    started = time.perf_counter()
    _keep_pages()
    space = space_of(question)
    found = families(space)
    counts = Counts(len(question.nodes), found)
    state = _Search(question, counts, top, hooks or SearchHooks())
    if counts.legal:
        for part in parts(space, found, most=GRID):
            state.go(*part)
    ending = Ending(
        space=space,
        counts=counts,
        runs=state.runs,
        ranking=state.ranking,
        misses=state.misses,
        available_bytes=state.available_bytes,
        refusals=tuple(state.refusals),
    )
    return answer(ending, top=top, elapsed_s=time.perf_counter() - started)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Batch:
    """The layouts of a run that fit in memory."""

    number: int
    run: Run
    program: StepProgram
    points: Points
    memory_bytes: FloatArray


class _Search:
    """A search under way: what it has seen so far."""

    def __init__(self, question: Question, counts: Counts, top: int, hooks: SearchHooks) -> None:
        self.question = question
        self.counts = counts
        self.hooks = hooks
        self.ranking = LayoutRanking(clusters=len(question.nodes), top=top)
        self.misses = LayoutRanking(clusters=len(question.nodes), top=1)
        self.runs: list[Run] = []
        self.available_bytes = question.available_bytes
        self.refusals: dict[str, None] = {}
        self._engines: Engines = {}

    def go(self, space: Space, found: tuple[ScheduleFamily, ...]) -> None:
        """Look at every variant of a space: first which layouts fit, then how long they take."""
        pieces = {
            id(family): [(chunk, Flights()) for chunk in family.legal.chunks(CHUNK)]
            for family in found
        }
        lowered: dict[Variant, StepProgram] = {}
        batches: list[_Batch] = []
        for variant in space.variants:
            mine = [family for family in found if variant in family.variants and len(family.legal)]
            if not mine or self.hooks.cancel():
                continue
            layout = space.layout(space.schedules[0], variant)
            own = own_modes(variant)
            program = training_step(self.question.model, layout, like=lowered.get(own))
            lowered[own] = program
            for family in mine:
                played = _played(program, family.schedule)
                run = Run(space=space, variant=variant, whole=played.layout)
                batches.append(self._fitting(run, played, pieces[id(family)]))
        fitting = [batch for batch in batches if len(batch.points)]
        if fitting and not self.hooks.cancel():
            self._price(space, fitting)

    def _price(self, space: Space, fitting: list[_Batch]) -> None:
        """Time all layouts of a space that fit."""
        wanted = np.zeros((*space.shape[:CHUNKS], 1, *space.shape[CHUNKS + 1 :]), dtype=np.bool_)
        for batch in fitting:
            at = batch.points.index
            wanted[(*at[:CHUNKS], np.zeros_like(at[CHUNKS]), *at[CHUNKS + 1 :])] = True
        exchanges = self._exchanges(fitting[0].program, wanted)
        products = Products()
        prices: dict[tuple[Variant, bool], StepPrices] = {}
        for batch in fitting:
            # A schedule changes when things happen; what they cost, only if it splits slots.
            key = batch.run.variant, splits_backward(batch.run.whole.schedule)
            if key not in prices:
                prices[key] = self._prices(batch.program, exchanges, products)
            self._time(batch, replace(prices[key], program=batch.program))

    def _exchanges(self, program: StepProgram, wanted: BoolArray) -> Exchanges:
        """Return the prices of exchanges that all programs of a space share."""
        question = self.question
        return exchanges_of(
            program,
            question.platform,
            question.efficiency,
            question.collectives,
            logical_size=question.logical_size,
            wanted=wanted,
            engines=self._engines,
        )

    def _prices(self, program: StepProgram, exchanges: Exchanges, products: Products) -> StepPrices:
        question = self.question
        compute = compute_time(
            program,
            question.platform.chip,
            question.efficiency.compute,
            logical_size=question.logical_size,
            known=products,
        )
        prices = step_prices(
            program,
            question.platform,
            question.efficiency,
            question.collectives,
            logical_size=question.logical_size,
            exchanges=exchanges,
            compute=compute,
        )
        self.refusals.update(dict.fromkeys(prices.reasons))
        self.refusals.update(dict.fromkeys(reason.words({}) for reason in prices.refused))
        return prices

    def _fitting(self, run: Run, program: StepProgram, pieces: Pieces) -> _Batch:
        """Return the layouts that fit, and count those that do not."""
        number = len(self.runs)
        self.runs.append(run)
        question = self.question
        careful = question.fragmentation_ratio != question.stack.fragmentation
        lost = (question.fragmentation_ratio, *([question.stack.fragmentation] if careful else ()))
        kept: list[Points] = []
        sizes: list[FloatArray] = []
        for chunk, flights in pieces:
            if self.hooks.cancel():
                break
            needed, *expected = needed_bytes(
                program, fragmentation_ratios=lost, points=chunk, flights=flights
            )
            fits = needed <= self.available_bytes
            kept.append(some(chunk, fits))
            sizes.append((expected[0] if expected else needed)[fits])
            over, too_much = some(chunk, ~fits), needed[~fits]
            clusters = run.space.clusters[over.index[0]]
            self.counts.reject(MEMORY, clusters)
            self.misses.add(number, over, clusters, too_much, too_much)
            self._tell()
        return _Batch(
            number=number,
            run=run,
            program=program,
            points=_joined(run.space.shape, kept),
            memory_bytes=np.concatenate([np.zeros(0), *sizes]),
        )

    def _time(self, batch: _Batch, prices: StepPrices) -> None:
        """Time the layouts that fit, and keep the best."""
        start = 0
        for chunk in self._chunks(batch.points):
            size = batch.memory_bytes[start : start + len(chunk)]
            start += len(chunk)
            step_time_s = prices.time_s(chunk)
            clusters = batch.run.space.clusters[chunk.index[0]]
            priced = np.isfinite(step_time_s)
            if not priced.all():
                rule = FORMAT if prices.reasons else COLLECTIVE
                self.counts.reject(rule, clusters[~priced])
                chunk, clusters = some(chunk, priced), clusters[priced]
                step_time_s, size = step_time_s[priced], size[priced]
            self.counts.price(clusters)
            self.ranking.add(batch.number, chunk, clusters, step_time_s, size)
            self.hooks.watch(
                Seen(run=batch.run, points=chunk, step_time_s=step_time_s, memory_bytes=size)
            )
            self._tell()

    def _chunks(self, points: Points) -> Iterator[Points]:
        for chunk in points.chunks(CHUNK):
            if self.hooks.cancel():
                return
            yield chunk

    def _tell(self) -> None:
        self.hooks.progress(self.counts.done, self.counts.legal, "layouts")


def _keep_pages() -> None:
    """Let the C library keep the memory of arrays that come and go.

    It returns what is freed at the end of the heap at once, and asks for it back zeroed, page by
    page, for the next array. Once a large one was freed it keeps as much; none of it was touched.
    """
    large = np.empty(KEPT_BYTES, dtype=np.uint8)
    del large


def _played(program: StepProgram, schedule: Schedule) -> StepProgram:
    """Return a program in another schedule: the same operations in another order."""
    layout = replace(program.layout, schedule=schedule)
    grid = replace(program.grid, layout=layout, schedule=schedule)
    return replace(program, layout=layout, grid=grid)


def _joined(shape: tuple[int, ...], parts: list[Points]) -> Points:
    columns = zip(*(part.index for part in parts), strict=True)
    empty = (np.zeros(0, dtype=np.int64),) * len(shape)
    return Points(shape=shape, index=tuple(map(np.concatenate, columns)) or empty)
