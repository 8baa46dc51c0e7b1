"""Device memory of a rank of the worst pipeline stage, by category, and the memory of the platform.

Model: every stage holds the state of its blocks for the whole step, the tensors its blocks keep for
each micro-batch in flight, the largest working set of any block it runs, and the messages under
way. A stack that makes gradients in the backward pass has them only from then on: where all
micro-batches are in flight before, the peak is the larger of both ends of the first backward slot.
Where weight gradients have slots of their own, a backward slot leaves the tensors they read:
finished blocks may hold more than before. `fragmentation_ratio` is an allocator's loss on
everything that comes and goes (activations, working sets, messages); `overheads` are the copies and
buffers of the stack's software; the platform's reserve is taken off its capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Literal

import numpy as np

from trnbench.engines.analytic.step.memory_flights import Flights
from trnbench.engines.analytic.step.memory_growth import (
    LargestMicroBatch,
    Room,
    StageGrowth,
    growths_of,
    largest_micro_batch,
)
from trnbench.engines.analytic.step.memory_parts import MemoryCategory, StageParts, runtime_bytes_of
from trnbench.engines.analytic.step.memory_reader import GridSums, StageReader
from trnbench.facts.arrays import BoolArray, FloatArray, spread
from trnbench.facts.calibration.hosts import PLAIN, MemoryOverheads
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension, show
from trnbench.program.job_phases import phases_of
from trnbench.program.points import Points
from trnbench.program.schedule import splits_backward
from trnbench.program.stages import StageRole
from trnbench.program.step import StepProgram
from trnbench.program.tensor import NOTHING


class StageMemory(Record, eq=False):
    """Bytes on a rank of one class of stages, by category; broadcasts over the layouts."""

    role: str
    stages: FloatArray  # Number of such stages in a layout
    by_category: Mapping[MemoryCategory, FloatArray]

    @property
    def total_bytes(self) -> FloatArray:
        held = sum(self.by_category.values(), start=np.zeros(()))
        return np.asarray(held * (self.stages > 0))


class StepMemory(Record, eq=False):
    """Memory of every stage class, and of the worst of them, for every layout."""

    stages: tuple[StageMemory, ...]
    total_bytes: FloatArray
    capacity_bytes: float
    reserve_bytes: float

    @property
    def available_bytes(self) -> float:
        return self.capacity_bytes - self.reserve_bytes

    @property
    def feasible(self) -> BoolArray:
        return np.asarray(self.total_bytes <= self.available_bytes)

    def worst(self, index: tuple[int, ...] = ()) -> StageMemory:
        return max(self.stages, key=lambda stage: self._at(stage.total_bytes, index))

    def by_category(self, index: tuple[int, ...] = ()) -> Mapping[MemoryCategory, float]:
        held = self.worst(index).by_category
        return {name: self._at(value, index) for name, value in held.items()}

    def refusal(self, index: tuple[int, ...] = ()) -> str | None:
        """Sentence that explains why the layout at an index does not fit; None if it does."""
        if self.feasible[index]:
            return None
        ratio = float(self.total_bytes[index]) / self.available_bytes
        parts = sorted(self.by_category(index).items(), key=lambda part: -part[1])
        listed = ", ".join(f"{name} {show(size, Dimension.BYTES)}" for name, size in parts if size)
        available = show(self.available_bytes, Dimension.BYTES)
        size = show(ratio * self.available_bytes, Dimension.BYTES)
        return f"needs {size} per rank, {ratio:.2f}x the {available} available: {listed}"

    def _at(self, array: FloatArray, index: tuple[int, ...]) -> float:
        return float(np.broadcast_to(array, self.total_bytes.shape)[index])


def memory(
    program: StepProgram,
    platform: Platform,
    *,
    fragmentation_ratio: float,
    overheads: MemoryOverheads = PLAIN,
    logical_size: int | None = None,
) -> StepMemory:
    """Memory of a step on each stage, and the memory of a rank of the platform."""
    stages = tuple(
        StageMemory(
            role=parts.role,
            stages=parts.stages,
            by_category=parts.held(overheads, fragmentation_ratio),
        )
        for parts in stage_parts(program)
    )
    total = np.zeros(program.shape)
    for stage in stages:
        np.maximum(total, stage.total_bytes, out=total)
    return StepMemory(
        stages=stages,
        total_bytes=total,
        capacity_bytes=platform.memory_per_rank_bytes(logical_size),
        reserve_bytes=reserve_bytes(platform, logical_size),
    )


@lru_cache(maxsize=1)
def stage_parts(program: StepProgram) -> tuple[StageParts, ...]:
    # A quote asks twice in a row: for the memory, and for the probability that it fits.
    reader = reader_of(program)
    return tuple(reader.parts(stage) for stage in program.stages)


class NeededMemory(Record, eq=False):
    """Memory of a program's layouts by a stack's numbers, for some of the layouts at a time.

    Faster than `memory`: sums that do not depend on the choice of layouts are added up once.
    """

    program: StepProgram
    overheads: MemoryOverheads = PLAIN
    sums: GridSums = field(default_factory=GridSums)
    grown: Memo[Literal["rank"], Sequence[StageGrowth] | None] = field(default_factory=Memo)

    def played(self, program: StepProgram) -> NeededMemory:
        return replace(self, program=program)

    def bytes(
        self,
        points: Points,
        *,
        fragmentation_ratios: Sequence[float],
        flights: Flights | None = None,
        roles: Collection[StageRole] | None = None,
        few: bool = False,
    ) -> list[FloatArray]:
        """Bytes that a rank of the worst stage needs at each ratio.

        `flights` remembers micro-batches in flight at these points, for programs on the same grid.
        Only stages with one of the `roles` count. `few` layouts need no sums over the whole grid.
        """
        program, overheads = self.program, self.overheads
        known, sums = {} if flights is None else flights, self.sums.of_few if few else self.sums
        reader = StageReader(program, overheads, points.pick, known, sums, picks_first=few)
        stages = [one for one in program.stages if roles is None or one.role in roles]
        moments = [moment for stage in stages for moment in reader.kinds_bytes(stage)]
        groups = reader.groups if overheads.communicator_bytes else NOTHING
        # An allocator loses a share only of memory that comes and goes.
        needed = (
            reduce(np.maximum, [staying + passing * (1 + ratio) for staying, passing in moments])
            for ratio in fragmentation_ratios
        )
        runtime, shape = runtime_bytes_of(overheads, groups), (len(points),)
        return [spread(most + runtime, shape) for most in needed]

    @property
    def growths(self) -> Sequence[StageGrowth] | None:
        """How stages grow with the micro-batch; None where some do not evenly."""
        split = splits_backward(self.program.layout.schedule)
        if self.overheads.gradients_made != "before" or split:
            return None
        return self.grown.of("rank", lambda: growths_of(self._reader, self.program.stages))

    @property
    def _reader(self) -> StageReader:
        return StageReader(self.program, self.overheads, lambda array: array, {}, self.sums)

    def largest_micro_batch(self, room: Room, roles: Collection[StageRole]) -> LargestMicroBatch:
        """Samples up to which micro-batches fit on stages with one of the `roles`.

        The room is what is left by the platform's reserve.
        """
        reader, overheads = self._reader, self.overheads
        groups = room.pipelines.pick(reader.groups) if overheads.communicator_bytes else NOTHING
        left = np.asarray(room.bytes - runtime_bytes_of(overheads, groups))
        mine = [growth for growth in self.growths or () if growth.stage.role in roles]
        return largest_micro_batch(self.program, mine, replace(room, bytes=left))


def reader_of(program: StepProgram) -> StageReader:
    return StageReader(program, None, lambda array: array, {}, GridSums())


def reserve_bytes(platform: Platform, logical_size: int | None) -> float:
    """A rank's reserve; the chip states the reserve for ranks of the default logical size."""
    chip = platform.chip
    return chip.reserve.per_rank_bytes * chip.ranks() / chip.ranks(logical_size)


class JobMemory(Record, eq=False):
    """The memory of a program's layouts, phase by phase."""

    program: StepProgram
    phases: tuple[NeededMemory, ...]

    @classmethod
    def of(cls, program: StepProgram, overheads: MemoryOverheads) -> JobMemory:
        """The memory of a program by a stack's numbers."""
        return cls(
            program=program,
            phases=tuple(
                NeededMemory(program=one.program, overheads=overheads) for one in phases_of(program)
            ),
        )

    def played(self, program: StepProgram) -> JobMemory:
        # A schedule changes micro-batches in flight, no bytes of blocks: their sums stay.
        pairs = zip(self.phases, phases_of(program), strict=True)
        phases = tuple(held.played(phase.program) for held, phase in pairs)
        return replace(self, program=program, phases=phases)

    def bytes(
        self,
        points: Points,
        *,
        fragmentation_ratios: Sequence[float],
        flights: Flights | None = None,
        roles: Collection[StageRole] | None = None,
        few: bool = False,
    ) -> list[FloatArray]:
        """Bytes that a rank of the worst stage needs in the worst phase, at each ratio."""
        each = [
            one.bytes(
                points,
                fragmentation_ratios=fragmentation_ratios,
                flights=flights,
                roles=roles,
                few=few,
            )
            for one in self.phases
        ]
        return [reduce(np.maximum, of_ratio) for of_ratio in zip(*each, strict=True)]

    @property
    def grows_evenly(self) -> bool:
        """True where `largest_micro_batch` tells what fits."""
        return all(one.growths is not None for one in self.phases)

    def largest_micro_batch(self, room: Room, roles: Collection[StageRole]) -> LargestMicroBatch:
        """Samples up to which micro-batches fit in every phase."""
        each = [one.largest_micro_batch(room, roles) for one in self.phases]
        return LargestMicroBatch(
            samples=reduce(np.minimum, (one.samples for one in each)),
            in_doubt=reduce(np.logical_or, (one.in_doubt for one in each)),
        )
