"""Every valid layout of a question: memory for all of them, time for those that fit.

Nearly all work is done on arrays over a grid, not layout by layout.

    SearchQuestion            model, platform, calibration, node counts, settled and open knobs
       |
       |  space               axes of the grid, and the variants (choices of the other modes)
       v
    Space                     grid = (nodes, pp) x tp x cp | x ep x vpp x micro_batch
       |                                outer degrees      |     inner degrees
       |  parts.blocks        whole clusters, up to a number of points that fits in memory
       v
    legality.families         1. rules on outer degrees: a mask over few points
       |                      2. rules on inner degrees, only where the outer ones passed
       |                      result: `Rows`, the valid micro-batches of each choice of the others
       |  parts.parts         whole clusters again, few enough for a program's arrays
       v
    _Search.go                one program for each variant, lowered for the whole grid at once
       |                         memory of all valid layouts   -> those that fit
       |                         time of those that fit        -> `LayoutRanking`, `Counts`
       v
    answer.answer             records for the best layouts only -> `SearchResult`

Three facts make this fast, and explain the shape of the code:

- A program's arrays span only the axes on which a number depends. They are broadcast to the
  layouts asked for (`Points.pick`), so a number that depends on tp alone is computed once per tp.
- Schedules share a program, variants share the prices of blocks and of groups of ranks. The keys of
  the shared results are `own_modes`, `block_modes` and `group_modes` in `legality`.
- Layouts that come to the same program are searched once. `Space.once` leaves the others out of all
  counts; `same_order` and `seen_before` count them as rejected, so that the counts add up.

Clusters never influence each other. Blocks, parts and shares of a search between processes are
therefore cut between clusters, and `result.reunited` puts the answers together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from trnbench.engines.analytic.step.memory import JobMemory
from trnbench.engines.analytic.step.memory_growth import Room
from trnbench.errors import InputError
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, keep_freed_memory
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import Schedule
from trnbench.predict.search.answer import Best, answer
from trnbench.predict.search.counts import MEMORY
from trnbench.predict.search.legality import Looks, ScheduleFamily, families
from trnbench.predict.search.parts import blocks, parts
from trnbench.predict.search.pieces import Batch, LookedAt, LookedLayouts, Piece
from trnbench.predict.search.pricing import CHUNK, Pricing
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.result import SearchResult
from trnbench.predict.search.rows import Rows
from trnbench.predict.search.runs import Run, SearchHooks, joined, played
from trnbench.predict.search.space import Space, Variant, space_of
from trnbench.program.points import Points
from trnbench.program.step import host_states_bytes

__all__ = ["SearchHooks", "Share", "search"]

GRID, MANY = 1 << 19, 1 << 21
"""Points of a grid, chunks aside, for which a program's arrays are made at once: where all layouts
are priced, and where only the best are, which look at fewer of the numbers."""
LARGE = 32_768
"""Layouts above which finding how tensors grow costs less than the memory of each layout."""


class Share(Record):
    """Part of a search's blocks: block `number` and each `of`-th block after it."""

    number: int = 0
    of: int = 1


def search(
    question: SearchQuestion,
    *,
    top: int = 20,
    hooks: SearchHooks | None = None,
    share: Share | None = None,
    best: Best | None = None,
) -> SearchResult:
    """Best layouts of every cluster, and counts of the layouts that passed each step.

    `best` prices no layout that a bound of its time shows to be behind the `top` ones: of each
    cluster, which are the same, or of all, where clusters that have none of these list no layout.
    A `share` searches only its own clusters; `result.reunited` joins the answers of all shares.
    """
    if top < 1:
        raise InputError(f"the number of layouts to keep must be at least 1: {top}")
    started = time.perf_counter()
    keep_freed_memory()
    space = space_of(question)
    state = _Search(space, top, hooks or SearchHooks(), best)
    # Every `of`-th block, so that each process gets small and large clusters.
    share = share or Share()
    every = tuple(blocks(space))[share.number :: share.of]
    for number, block in enumerate(every):
        if number and state.stopped():
            break
        valid = families(block)
        state.counts.take(valid)
        # Blocks are of similar size, so blocks still to come are expected to hold as many valid
        # layouts.
        state.expected = state.counts.legal * len(every) // (number + 1)
        if any(len(family.legal) for family in valid):
            # The best of all are mostly on large clusters: what these have leaves out the others.
            most = GRID if best is None else MANY
            for part in [*parts(block, valid, most=most)][:: -1 if best == "of all" else 1]:
                state.go(*part)
    state.keep_forms()
    return answer(state, top=top, elapsed_s=time.perf_counter() - started)


class _Search(Pricing):
    """A running search."""

    def go(self, space: Space, valid: tuple[ScheduleFamily, ...]) -> None:
        """Search every variant: memory of all layouts first, then time of those that fit."""
        # Families share valid layouts among variants; the walk below goes variant by variant,
        # because each lowers a program.
        of_variant: dict[Variant, list[tuple[Schedule, LookedAt]]] = {}
        for sorted_out in valid:
            pieces = self._pieces(space, sorted_out)
            for look in sorted_out.looks if pieces else ():
                for variant in look.variants if look.at.any() else ():
                    family_of_look = sorted_out.schedule, (pieces, look)
                    of_variant.setdefault(variant, []).append(family_of_look)
        # Memory comes first for all variants, as exchanges are priced only where some variant fits.
        programs = self.hooks.lowered.of(space)
        batches: list[Batch] = []
        for variant in space.variants:
            mine = of_variant.get(variant)
            if not mine or self.stopped():
                continue
            program = programs.of(variant)
            memory = JobMemory.of(program, self.question.stack.memory)
            # Schedules of a variant share its program: they differ in micro-batches in flight.
            for schedule, family in mine:
                memory = memory.played(played(program, schedule))
                run = Run(space=space, variant=variant, whole=memory.program.layout)
                batches.append(self._fitting(run, memory, family))
        fitting = [batch for batch in batches if len(batch.layouts)]
        if fitting and not self.stopped():
            self.price_some(space, fitting)
        for batch in batches:
            self._miss(batch)

    def _fitting(self, run: Run, memory: JobMemory, family: LookedAt) -> Batch:
        """Layouts of a run that fit in chip and host memory; the others are counted as rejected."""
        number = len(self.runs)
        self.runs.append(run)
        kept: list[Points | Rows] = []
        sizes: list[FloatArray | None] = []
        platform = self.question.platform
        on_host = host_states_bytes(memory.program, platform.ranks(self.question.logical_size))
        held = platform.instance.host.memory_bytes or np.inf
        pieces, look = family
        for count, layouts, size in self._that_fit(run, memory, pieces, look):
            if not (on_host <= held).all():
                layouts, size = self._hosted(layouts, size, on_host <= held, on_host)
            kept.append(layouts)
            sizes.append(size)
            self.counts.reject(MEMORY, count - self._by_cluster(run.space, layouts))
            self.tell()
        known = [size for size in sizes if size is not None]
        return Batch(
            number=number,
            run=run,
            memory=memory,
            layouts=joined(run.space.shape, kept),
            memory_bytes=np.concatenate([np.zeros(0), *known])
            if len(known) == len(sizes)
            else None,
            family=family,
        )

    def _hosted(
        self, layouts: Points | Rows, size: FloatArray | None, fits: BoolArray, needed: FloatArray
    ) -> tuple[Points, FloatArray | None]:
        """Layouts whose `needed` bytes fit in their host's memory, and their chips' bytes."""
        points = layouts.points() if isinstance(layouts, Rows) else layouts
        hosted = np.broadcast_to(points.pick(fits), len(points))
        if not hosted.all():
            hosts = np.broadcast_to(points.pick(needed), len(points))
            self.least_on_host = min(self.least_on_host, float(np.min(hosts[~hosted])))
        return points.some(hosted), None if size is None else size[hosted]

    def _that_fit(
        self, run: Run, memory: JobMemory, pieces: Sequence[Piece], look: Looks
    ) -> Iterator[tuple[IntArray, Points | Rows, FloatArray | None]]:
        """Yield the number of layouts on each cluster, those that fit in a chip, and their bytes.

        Bytes are left out where a formula tells which of many layouts fit.
        """
        by_cluster = partial(self._by_cluster, run.space)
        large = sum(piece.rows.layouts for piece in pieces) > LARGE
        in_rows = large and memory.grows_evenly
        for piece in pieces:
            if in_rows:
                seen = piece.seen(look, by_cluster)
                yield seen.count, self._rows_that_fit(memory, piece, seen), None
                continue
            for part in piece.chunks(CHUNK, by_cluster):
                if self.stopped():
                    return
                seen = part.seen(look, by_cluster)
                yield seen.count, *self._points_that_fit(memory, part, seen.mask)

    def _points_that_fit(
        self, memory: JobMemory, piece: Piece, of_rows: BoolArray | None
    ) -> tuple[Points, FloatArray]:
        """Layouts of a piece that fit in a chip's memory, and the bytes that they need."""
        points, roles, flights = piece.points, piece.roles(memory.program), piece.flights
        mine = None if of_rows is None else np.repeat(of_rows, piece.rows.count)
        known: list[FloatArray] = []
        if piece.piped:
            # Cheap filter: of most layouts that do not fit, the first stage already does not fit.
            known = memory.bytes(
                points, fragmentation_ratios=self.lost, flights=flights, roles=roles[:1]
            )
            fits, roles = known[0] <= self.available_bytes, roles[1:]
            mine = fits if mine is None else fits & mine
        if mine is not None:
            points, flights = points.some(mine), {}
            known = [of_first[mine] for of_first in known]
        needed, *expected = memory.bytes(
            points, fragmentation_ratios=self.lost, flights=flights, roles=roles
        )
        if known:
            needed, *expected = map(np.maximum, known, (needed, *expected))
        fits = needed <= self.available_bytes
        # Layouts are filtered by the careful loss to fragmentation and reported by the expected
        # one.
        return points.some(fits), (expected[0] if expected else needed)[fits]

    def _rows_that_fit(self, memory: JobMemory, piece: Piece, seen: LookedLayouts) -> Rows:
        """Layouts of some rows of a piece that fit in a chip's memory: of each the first ones."""
        rows, roles = seen.rows, piece.roles(memory.program)
        if not len(rows):
            return rows
        available = np.asarray(self.available_bytes)
        room = Room(pipelines=seen.pipelines, bytes=available, lost=1 + self.lost[0])
        largest = memory.largest_micro_batch(room, roles)
        sizes = memory.program.grid.micro_batch.ravel()
        count = rows.before(np.searchsorted(sizes, largest.samples, "right"))
        in_doubt = np.broadcast_to(largest.in_doubt, len(rows))
        if (doubtful := np.flatnonzero(in_doubt)).size:
            points = (some := rows.at(doubtful)).points()
            ratios = self.lost[:1]
            (needed,) = memory.bytes(points, fragmentation_ratios=ratios, roles=roles, few=True)
            row = np.repeat(np.arange(len(some)), some.count)
            count[doubtful] = np.bincount(row[needed <= self.available_bytes], minlength=len(some))
        return rows.upto(count)

    def _miss(self, batch: Batch) -> None:
        """Keep the layouts nearest to fitting, on clusters where no layout has a price yet."""
        found = self.counts.priced + self.counts.outpaced
        without = found[batch.run.space.clusters] == 0
        if not without.any():
            return
        pieces, look = batch.family
        by_cluster = partial(self._by_cluster, batch.run.space)
        for piece in (part for whole in pieces for part in whole.chunks(CHUNK, by_cluster)):
            if self.stopped():
                break
            wanted, mine = without[piece.rows.index[0]], piece.looked_at(look)
            points = piece.rows.some(wanted if mine is None else wanted & mine).points()
            (needed,) = batch.memory.bytes(
                points,
                fragmentation_ratios=self.lost[:1],
                roles=piece.roles(batch.memory.program),
            )
            # Only layouts that do not fit are near misses: others were priced or refused.
            over = needed > self.available_bytes
            missed, too_much = points.some(over), needed[over]
            clusters = batch.run.space.clusters[missed.index[0]]
            self.misses.add(batch.number, missed, clusters, too_much, too_much)

    def _pieces(self, space: Space, family: ScheduleFamily) -> tuple[Piece, ...]:
        """Valid layouts of a family, those without a pipeline first."""
        piped = (space.axes["pp"] > 1)[family.legal.index[0]]
        kept = (family.legal.some(piped == several) for several in (False, True))
        both = zip((False, True), kept, strict=True)
        return tuple(
            Piece(rows=rows, piped=several, count=self._by_cluster(space, rows))
            for several, rows in both
            if len(rows)
        )

    def _by_cluster(self, space: Space, layouts: Points | Rows) -> IntArray:
        held = layouts.count if isinstance(layouts, Rows) else None
        return self.counts.by_cluster(space.clusters[layouts.index[0]], held)
