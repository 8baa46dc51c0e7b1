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
- Schedules and ZeRO stages share a program, in which ZeRO stages are one more axis. Variants share
  the prices of blocks and of groups of ranks. The keys of the shared results are `own_modes`,
  `block_modes` and `group_modes` in `legality`.
- Layouts that come to the same program are searched once. `Space.once` leaves the others out of all
  counts; `same_order` and `seen_before` count them as rejected, so that the counts add up.

Clusters never influence each other. Blocks, parts and shares of a search between processes are
therefore cut between clusters, and `result.reunited` puts the answers together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np

from trnbench.engines.analytic.step.memory import JobMemory
from trnbench.engines.analytic.step.memory_growth import Room
from trnbench.errors import InputError
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, keep_freed_memory
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Schedule, ZeroStage
from trnbench.predict.search.answer import Best, answer
from trnbench.predict.search.counts import MEMORY
from trnbench.predict.search.legality import ScheduleFamily, families
from trnbench.predict.search.parts import blocks, parts
from trnbench.predict.search.pieces import Batch, LookedAt, LookedLayouts, Piece
from trnbench.predict.search.pricing import CHUNK, Pricing
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.result import SearchResult
from trnbench.predict.search.rows import Rows
from trnbench.predict.search.runs import Run, SearchHooks, joined, played
from trnbench.predict.search.space import Space, Variant, space_of
from trnbench.program.points import Points
from trnbench.program.stages import StageRole
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
        of_variant = self._of_variants(space, valid)
        # Memory comes first for all variants, as exchanges are priced only where some variant fits.
        programs, runs = self.hooks.lowered.of(space), self._numbered(space, of_variant)
        batches: list[Batch] = []
        for variant in dict.fromkeys(map(space.of_any_zero, space.variants)):
            if variant not in of_variant or self.stopped():
                continue
            program = programs.of(variant)
            memory = JobMemory.of(program, self.question.stack.memory)
            # Schedules of a variant share its program: they differ in micro-batches in flight.
            for schedule, family in of_variant[variant].items():
                memory = memory.played(played(program, schedule))
                each = (variant.changed(zero=zero) for zero in space.zeros)
                batch = Batch(
                    run=Run(space=space, variant=variant, schedule=schedule),
                    runs=tuple(runs.get((one, schedule)) for one in each),
                    memory=memory,
                    layouts=joined((len(space.zeros), *space.shape), []),
                    memory_bytes=None,
                    family=family,
                )
                batches.append(self._fitting(batch))
        fitting = [batch for batch in batches if len(batch.layouts)]
        if fitting and not self.stopped():
            self.price_some(space, fitting)
        for batch in batches:
            self._miss(batch)

    def _of_variants(
        self, space: Space, valid: Sequence[ScheduleFamily]
    ) -> Mapping[Variant, Mapping[Schedule, LookedAt]]:
        """Layouts that each variant looks at in all ZeRO stages, by schedule."""
        # Families share valid layouts among variants, but each variant lowers a program.
        found: dict[Variant, dict[Schedule, LookedAt]] = {}
        for family in valid:
            pieces = self._pieces(space, family)
            for look in family.looks if pieces else ():
                for variant in look.variants if look.at.any() else ():
                    mine = found.setdefault(space.of_any_zero(variant), {})
                    _, looks = mine.get(family.schedule, (pieces, (None,) * len(space.zeros)))
                    here = (zero == variant["zero"] for zero in space.zeros)
                    looks = tuple(look if at else was for at, was in zip(here, looks, strict=True))
                    mine[family.schedule] = pieces, looks
        return found

    def _numbered(
        self, space: Space, of_variant: Mapping[Variant, Mapping[Schedule, LookedAt]]
    ) -> Mapping[tuple[Variant, Schedule], tuple[int, Run]]:
        """The run of each variant that looks at layouts, numbered in the order of variants."""
        found: dict[tuple[Variant, Schedule], tuple[int, Run]] = {}
        for variant in space.variants:
            zero = space.zeros.index(cast("ZeroStage", variant["zero"]))
            looked_at = of_variant.get(space.of_any_zero(variant), {})
            for schedule, (_, looks) in looked_at.items():
                if looks[zero] is not None:
                    run = Run(space=space, variant=variant, schedule=schedule)
                    found[variant, schedule] = len(self.runs), run
                    self.runs.append(run)
        return found

    def _fitting(self, batch: Batch) -> Batch:
        """A batch with its layouts that fit in chip and host memory; others count as rejected."""
        memory, space = batch.memory, batch.run.space
        kept: list[Points | Rows] = []
        sizes: list[FloatArray | None] = []
        platform = self.question.platform
        on_host = host_states_bytes(memory.program, platform.ranks(self.question.logical_size))
        held = platform.instance.host.memory_bytes or np.inf
        for count, layouts, size in self._that_fit(batch):
            if not (on_host <= held).all():
                layouts, size = self._hosted(layouts, size, on_host <= held, on_host)
            kept.append(layouts)
            sizes.append(size)
            self.counts.reject(MEMORY, count - self._by_cluster(space, layouts))
            self.tell()
        known = [size for size in sizes if size is not None]
        whole = np.concatenate([np.zeros(0), *known]) if len(known) == len(sizes) else None
        return replace(batch, layouts=joined(batch.layouts.shape, kept), memory_bytes=whole)

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
        self, batch: Batch
    ) -> Iterator[tuple[IntArray, Points | Rows, FloatArray | None]]:
        """Yield the number of layouts on each cluster, those that fit in a chip, and their bytes.

        Bytes are left out where a formula tells which of many layouts fit.
        """
        memory, (pieces, looks) = batch.memory, batch.family
        by_cluster = partial(self._by_cluster, batch.run.space)
        large = len(looks) * sum(piece.rows.layouts for piece in pieces) > LARGE
        in_rows = large and memory.grows_evenly
        for piece in pieces:
            roles = piece.roles(memory.program)
            if in_rows:
                seen = piece.seen(looks, by_cluster)
                yield seen.count, self._rows_that_fit(memory, seen, roles), None
                continue
            for part in piece.chunks(CHUNK // len(looks)):
                if self.stopped():
                    return
                seen = part.seen(looks, by_cluster)
                yield seen.count, *self._points_that_fit(memory, seen, roles)

    def _points_that_fit(
        self, memory: JobMemory, seen: LookedLayouts, roles: Sequence[StageRole]
    ) -> tuple[Points, FloatArray]:
        """Layouts of a piece that fit in a chip's memory, and the bytes that they need."""
        points, flights = seen.points, seen.flights
        known: list[FloatArray] = []
        if len(roles) > 1:
            # Cheap filter: of most layouts that do not fit, the first stage already does not fit.
            known = memory.bytes(
                points, fragmentation_ratios=self.lost, flights=flights, roles=roles[:1]
            )
            fits, roles = known[0] <= self.available_bytes, roles[1:]
            points, flights = points.some(fits), {}
            known = [of_first[fits] for of_first in known]
        needed, *expected = memory.bytes(
            points, fragmentation_ratios=self.lost, flights=flights, roles=roles
        )
        if known:
            needed, *expected = map(np.maximum, known, (needed, *expected))
        fits = needed <= self.available_bytes
        # Layouts are filtered by the careful loss to fragmentation and reported by the expected
        # one.
        return points.some(fits), (expected[0] if expected else needed)[fits]

    def _rows_that_fit(
        self, memory: JobMemory, seen: LookedLayouts, roles: Sequence[StageRole]
    ) -> Rows:
        """Layouts of some rows of a piece that fit in a chip's memory: of each the first ones."""
        rows = seen.rows
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
        space, (pieces, looks) = batch.run.space, batch.family
        if found[space.clusters].all():
            return
        by_cluster = partial(self._by_cluster, space)
        for piece in (part for whole in pieces for part in whole.chunks(CHUNK // len(looks))):
            if self.stopped():
                break
            rows = piece.seen(looks, by_cluster).rows
            points = rows.some(found[space.clusters_of(rows)] == 0).points()
            (needed,) = batch.memory.bytes(
                points,
                fragmentation_ratios=self.lost[:1],
                roles=piece.roles(batch.memory.program),
            )
            # Only layouts that do not fit are near misses: others were priced or refused.
            over = needed > self.available_bytes
            missed, too_much = points.some(over), needed[over]
            for number, _, some, mine in batch.by_zero(missed):
                much = too_much[mine]
                self.misses.add(number, some, space.clusters_of(some), much, much)

    def _pieces(self, space: Space, family: ScheduleFamily) -> tuple[Piece, ...]:
        """Valid layouts of a family, those without a pipeline first."""
        piped = (space.axes["pp"] > 1)[family.legal.index[0]]
        kept = (family.legal.some(piped == several) for several in (False, True))
        both = zip((False, True), kept, strict=True)
        return tuple(Piece(rows=rows, piped=several) for several, rows in both if len(rows))

    def _by_cluster(self, space: Space, layouts: Points | Rows) -> IntArray:
        held = layouts.count if isinstance(layouts, Rows) else None
        return self.counts.by_cluster(space.clusters_of(layouts), held)
