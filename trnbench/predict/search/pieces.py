"""Layouts of a search that are looked at together: pieces before memory, batches that fit after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from trnbench.engines.analytic.step.memory import JobMemory
from trnbench.engines.analytic.step.memory_flights import Flights
from trnbench.engines.analytic.step.memory_growth import Pipelines
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.calibration.coverage import DEGREES
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.predict.search.bounds import Floors
from trnbench.predict.search.legality import OUTER, PLACE, Looks
from trnbench.predict.search.rows import Rows
from trnbench.predict.search.runs import Programs, Run, played
from trnbench.predict.search.space import ZERO_AXES
from trnbench.program.points import Points
from trnbench.program.stages import StageRole
from trnbench.program.step import StepProgram

ZeroLooks: TypeAlias = "tuple[Looks | None, ...]"
"""Variants that look at a schedule's layouts in each ZeRO stage; None where none does."""


class LookedLayouts(Record, eq=False):
    """Layouts of a piece that variants look at, with their number on each cluster.

    ZeRO stages are one more axis, in front of those of the space.
    """

    rows: Rows
    count: IntArray
    flights: Flights = field(default_factory=dict)
    """Micro-batches in flight, computed once per schedule and shared by all variants."""

    @cached_property
    def points(self) -> Points:
        return self.rows.points()

    @cached_property
    def pipelines(self) -> Pipelines:
        return Pipelines(pick=self.rows.first.pick)


class Piece(Record, eq=False):
    """Layouts of one schedule, all with one stage or all with several."""

    rows: Rows
    piped: bool
    by_looks: Memo[tuple[int, ...], LookedLayouts] = field(default_factory=Memo)
    by_size: Memo[int, tuple[Piece, ...]] = field(default_factory=Memo)

    def chunks(self, layouts: int) -> tuple[Piece, ...]:
        """These layouts in pieces of at most some, or of a single row."""

        def cut() -> tuple[Piece, ...]:
            return tuple(Piece(rows=rows, piped=self.piped) for rows in self.rows.chunks(layouts))

        # A piece that remembered itself would stay in memory until the next look for cycles.
        return (self,) if self.rows.layouts <= layouts else self.by_size.of(layouts, cut)

    def seen(self, looks: ZeroLooks, count: Callable[[Rows], IntArray]) -> LookedLayouts:
        """The layouts that these variants look at."""

        def found() -> LookedLayouts:
            chosen = [self._looked_at(look) for look in looks]
            zeros = np.repeat(np.arange(len(looks), dtype=PLACE), [*map(len, chosen)])
            rows = self.rows.at(np.concatenate(chosen))
            rows = replace(rows, shape=(len(looks), *rows.shape), index=(zeros, *rows.index))
            return LookedLayouts(rows=rows, count=count(rows))

        return self.by_looks.of(tuple(map(id, looks)), found)

    def _looked_at(self, look: Looks | None) -> IntArray:
        """Numbers of the rows that these variants look at."""
        if look is None:
            return np.zeros(0, dtype=np.int64)
        if look.everywhere:
            return np.arange(len(self.rows))
        return np.flatnonzero(look.at[self.rows.index[:OUTER]])

    def roles(self, program: StepProgram) -> tuple[StageRole, ...]:
        """Stage classes of these layouts, first the class that usually needs the most memory."""
        roles = [stage.role for stage in program.stages if (stage.role != "only") == self.piped]
        # Where all stages have all micro-batches in flight, the last one also keeps their outputs.
        return tuple(roles[::-1] if program.layout.schedule == "gpipe" else roles)


LookedAt: TypeAlias = "tuple[tuple[Piece, ...], ZeroLooks]"
"""Layouts of a schedule, as some of its variants look at them."""


class Batch(Record, eq=False):
    """Layouts of a schedule and of variants in all ZeRO stages that fit in memory."""

    run: Run
    """The run that stands for those of all ZeRO stages."""
    runs: tuple[tuple[int, Run] | None, ...]
    """The run of each ZeRO stage, and its number."""
    memory: JobMemory
    layouts: Points | Rows
    memory_bytes: FloatArray | None
    """None where it is worked out of those alone that are priced, as of rows."""
    family: LookedAt
    """All valid layouts of the run, also those that do not fit."""
    trimmed: tuple[StepProgram, Points] | None = None
    """The run's program and these layouts on a smaller grid, on which they are priced."""

    @cached_property
    def points(self) -> Points:
        return self.layouts.points() if isinstance(self.layouts, Rows) else self.layouts

    @property
    def listed(self) -> Batch:
        """These layouts one by one."""
        return replace(self, layouts=self.points)

    @property
    def firsts(self) -> Points:
        """On the grid that is priced, these layouts, or the first one of each row of them."""
        return self.layouts.first if isinstance(self.layouts, Rows) else self.priced[1]

    @property
    def priced(self) -> tuple[StepProgram, Points]:
        """The program that is priced, and the layouts on its grid."""
        return self.trimmed or (self.memory.program, self.points)

    @property
    def clusters(self) -> IntArray:
        """Cluster of each of these layouts, or of each row of them."""
        return self.run.space.clusters_of(self.layouts)

    def by_zero(self, points: Points) -> Iterator[tuple[int, Run, Points, IntArray]]:
        """Yield the run and the layouts of each ZeRO stage, and their numbers among all."""
        zeros, index = points.index[0], points.index[ZERO_AXES:]
        for zero, known in enumerate(self.runs):
            if known is not None and len(mine := np.flatnonzero(zeros == zero)):
                places = tuple(axis.take(mine) for axis in index)
                yield *known, Points(shape=points.shape[ZERO_AXES:], index=places), mine

    def bytes_at(self, fragmentation_ratio: float) -> FloatArray:
        """Bytes that each of these layouts needs on a rank, listed one by one."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        ratios = [fragmentation_ratio]
        return self.memory.bytes(self.points, fragmentation_ratios=ratios, few=True)[0]

    def chunks(self, layouts: int) -> Iterator[Batch]:
        """Yield at most some layouts at a time, listed one by one."""
        every, start = self.listed, 0
        _, on_grid = self.priced
        for points, at in zip(every.points.chunks(layouts), on_grid.chunks(layouts), strict=True):
            size, end = self.memory_bytes, start + len(points)
            yield replace(
                every,
                layouts=points,
                memory_bytes=None if size is None else size[start:end],
                trimmed=None if self.trimmed is None else (self.trimmed[0], at),
            )
            start = end

    def onto(self, programs: Programs, points: Points) -> Batch:
        """These layouts as `points` of a smaller grid."""
        program = programs.of(self.run.variant)
        return replace(self, trimmed=(played(program, self.run.schedule), points))

    def some(self, mask: BoolArray) -> Batch:
        """Layouts, or rows of them, where a mask over them is true."""
        size, onto = self.memory_bytes, self.trimmed
        return replace(
            self,
            layouts=self.layouts.some(mask),
            memory_bytes=None if size is None else size[mask],
            trimmed=None if onto is None else (onto[0], onto[1].some(mask)),
        )


class Bounded(Record, eq=False):
    """Layouts that fit, or rows of them, each with a time that no score of it falls short of."""

    batch: Batch
    floor_s: FloatArray
    clusters: IntArray
    sure: BoolArray
    """True of layouts within the stack's rows, of which the best is looked for, too."""
    asked: BoolArray | None = None
    """True of layouts that are priced at any rate; None where none is."""

    @classmethod
    def of(cls, batch: Batch, floors: Floors, covered: bool) -> Bounded:
        layouts, program = batch.layouts, batch.memory.program
        if isinstance(layouts, Rows):
            points = layouts.first
            floor_s = floors.of_rows(program, layouts, batch.run.variant)
        else:
            points = layouts
            floor_s = floors.seconds(program, layouts, batch.run.variant)
        # No degree that may be beyond the rows differs along a row.
        arrays = program.grid.arrays
        doubt = floors.question.doubt({name: points.pick(arrays[name]) for name in DEGREES})
        return cls(
            batch=batch,
            floor_s=floor_s * doubt,
            clusters=batch.clusters,
            sure=np.broadcast_to((doubt == 1) & covered, len(layouts)),
        )

    def __len__(self) -> int:
        return len(self.floor_s)

    @property
    def held(self) -> IntArray | None:
        """Layouts of each row; None where there are no rows."""
        layouts = self.batch.layouts
        return layouts.count if isinstance(layouts, Rows) else None

    def above(self, least: FloatArray) -> float:
        """How far the least bound lies above another one of its cluster, as a multiple of it."""
        return float(np.min(self.floor_s / least[self.clusters]))

    def within(self, most: Sequence[FloatArray]) -> BoolArray:
        """True of layouts with bounds up to the `most` of their cluster, or of those sure."""
        best, sure = (self.floor_s <= one[self.clusters] for one in most)
        mask = best | self.sure & sure
        return mask if self.asked is None else mask | self.asked

    def some(self, mask: BoolArray) -> Bounded:
        return Bounded(
            batch=self.batch.some(mask),
            floor_s=self.floor_s[mask],
            clusters=self.clusters[mask],
            sure=self.sure[mask],
            asked=None if self.asked is None else self.asked[mask],
        )
