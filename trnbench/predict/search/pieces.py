"""Layouts of a search that are looked at together: pieces before memory, batches that fit after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from trnbench.engines.analytic.step.memory import JobMemory
from trnbench.engines.analytic.step.memory_reader import Flights
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.calibration.coverage import DEGREES
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.predict.search.bounds import Floors
from trnbench.predict.search.legality import OUTER, Looks
from trnbench.predict.search.rising import runs_of
from trnbench.predict.search.runs import Programs, Run, played
from trnbench.predict.search.space import DIMENSIONS
from trnbench.program.points import Points
from trnbench.program.stages import StageRole
from trnbench.program.step import StepProgram


class LookedLayouts(Record, eq=False):
    """Layouts of a piece that some variants look at, with their number on each cluster."""

    mask: BoolArray | None  # None for all of the piece
    points: Points
    count: IntArray

    @cached_property
    def runs(self) -> tuple[IntArray, IntArray]:
        return runs_of(self.points)


class Piece(Record, eq=False):
    """A chunk of layouts of one schedule, all with one stage or all with several."""

    points: Points
    piped: bool
    count: IntArray
    """Layouts of the piece on each cluster."""
    flights: Flights = field(default_factory=dict)
    """Micro-batches in flight, computed once per schedule and shared by all variants."""
    by_look: Memo[int, LookedLayouts] = field(default_factory=Memo)

    def looked_at(self, look: Looks) -> BoolArray | None:
        """Mask of the layouts that these variants look at; None where they look at all of them."""
        if look.everywhere:
            return None
        mask = self.points.pick(look.at.reshape(*look.at.shape, *(1,) * (DIMENSIONS - OUTER)))
        return None if mask.all() else np.broadcast_to(mask, len(self.points))

    def seen(self, look: Looks, count: Callable[[Points], IntArray]) -> LookedLayouts:
        """The layouts that these variants look at."""

        def found() -> LookedLayouts:
            mask = self.looked_at(look)
            if mask is None:
                return LookedLayouts(mask=None, points=self.points, count=self.count)
            points = self.points.some(mask)
            return LookedLayouts(mask=mask, points=points, count=count(points))

        return self.by_look.of(id(look), found)

    def roles(self, program: StepProgram) -> tuple[StageRole, ...]:
        """Stage classes of these layouts, first the class that usually needs the most memory."""
        roles = (stage.role for stage in program.stages)
        return tuple(role for role in roles if (role != "only") == self.piped)


LookedAt: TypeAlias = "tuple[tuple[Piece, ...], Looks]"
"""Layouts of a schedule, as some of its variants look at them."""


class Batch(Record, eq=False):
    """Layouts of a run that fit in memory."""

    number: int
    run: Run
    memory: JobMemory
    points: Points
    memory_bytes: FloatArray | None
    """None where it is worked out of those alone that are priced."""
    family: LookedAt
    """All valid layouts of the run, also those that do not fit."""
    trimmed: tuple[StepProgram, Points] | None = None
    """The run's program and these layouts on a smaller grid, on which they are priced."""

    @property
    def priced(self) -> tuple[StepProgram, Points]:
        """The program that is priced, and the layouts on its grid."""
        return self.trimmed or (self.memory.program, self.points)

    def onto(self, programs: Programs, points: Points) -> Batch:
        """These layouts as `points` of a smaller grid."""
        program = programs.of(self.run.variant)
        return replace(self, trimmed=(played(program, self.run.whole.schedule), points))

    def some(self, mask: BoolArray) -> Batch:
        """Layouts where a mask over them is true."""
        size, onto = self.memory_bytes, self.trimmed
        return replace(
            self,
            points=self.points.some(mask),
            memory_bytes=None if size is None else size[mask],
            trimmed=None if onto is None else (onto[0], onto[1].some(mask)),
        )


class Bounded(Record, eq=False):
    """Layouts that fit, each with a time that its score does not fall short of."""

    batch: Batch
    floor_s: FloatArray
    clusters: IntArray
    sure: BoolArray
    """True of layouts within the stack's rows, of which the best is looked for, too."""

    @classmethod
    def of(cls, batch: Batch, floors: Floors, covered: bool) -> Bounded:
        points, program = batch.points, batch.memory.program
        doubt = floors.question.doubt(
            {name: points.pick(program.grid.arrays[name]) for name in DEGREES}
        )
        floor_s = floors.seconds(program, points, batch.run.variant) * doubt
        return cls(
            batch=batch,
            floor_s=floor_s,
            clusters=batch.run.space.clusters[points.index[0]],
            sure=np.broadcast_to((doubt == 1) & covered, len(points)),
        )

    def __len__(self) -> int:
        return len(self.floor_s)

    def above(self, least: FloatArray) -> float:
        """How far the least bound lies above another one of its cluster, as a multiple of it."""
        return float(np.min(self.floor_s / least[self.clusters]))

    def within(self, most: Sequence[FloatArray]) -> BoolArray:
        """True of layouts with bounds up to the `most` of their cluster, or of those sure."""
        best, sure = (self.floor_s <= one[self.clusters] for one in most)
        return np.asarray(best | self.sure & sure)

    def some(self, mask: BoolArray) -> Bounded:
        return Bounded(
            batch=self.batch.some(mask),
            floor_s=self.floor_s[mask],
            clusters=self.clusters[mask],
            sure=self.sure[mask],
        )
