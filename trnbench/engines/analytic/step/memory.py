"""Device memory of a rank of the worst pipeline stage, by category, against what a platform has.

Model: every stage holds the state of its blocks for the whole step, what its blocks keep for as
many micro-batches as its schedule has in flight, the largest working set of any block it runs, and
the messages under way. Where weight gradients have slots of their own, a backward slot leaves what
they read: blocks that are done may hold more than before. `fragmentation_ratio` is what an
allocator loses of everything that comes and goes (activations, working sets, messages);
`overheads` are the copies and buffers of the stack's software; the platform's reserve is taken off
its capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trnbench.engines.analytic.step.memory_parts import MemoryCategory, StageParts, runtime_bytes_of
from trnbench.engines.analytic.step.memory_reader import BlockPart, Flights, GridSums, StageReader
from trnbench.facts.arrays import BoolArray, FloatArray
from trnbench.facts.calibration.memory_overheads import PLAIN, MemoryOverheads
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension, show
from trnbench.program.points import Points
from trnbench.program.stages import StageClass, StageRole
from trnbench.program.step import StepProgram


class StageMemory(Record, eq=False):
    """What one class of stages holds on a rank, bytes by category; broadcasts over the layouts.

    `stages` is how many such stages a layout has.
    """

    role: str
    stages: FloatArray
    by_category: Mapping[MemoryCategory, FloatArray]

    @property
    def total_bytes(self) -> FloatArray:
        """Everything together; nothing where a layout has no such stage."""
        held = sum(self.by_category.values(), start=np.zeros(()))
        return np.asarray(held * (self.stages > 0))


class StepMemory(Record, eq=False):
    """Memory of every stage class, and of the worst of them, for every layout asked for."""

    stages: tuple[StageMemory, ...]
    total_bytes: FloatArray
    capacity_bytes: float
    reserve_bytes: float

    @property
    def available_bytes(self) -> float:
        """What the program may use of a rank's memory."""
        return self.capacity_bytes - self.reserve_bytes

    @property
    def feasible(self) -> BoolArray:
        """Where a layout fits."""
        return np.asarray(self.total_bytes <= self.available_bytes)

    def worst(self, index: tuple[int, ...] = ()) -> StageMemory:
        """Stage class that needs most in the layout at an index."""
        return max(self.stages, key=lambda stage: self._at(stage.total_bytes, index))

    def by_category(self, index: tuple[int, ...] = ()) -> Mapping[MemoryCategory, float]:
        """Worst stage's bytes by category, of the layout at an index."""
        held = self.worst(index).by_category
        return {name: self._at(value, index) for name, value in held.items()}

    def refusal(self, index: tuple[int, ...] = ()) -> str | None:
        """Return in words why the layout at an index does not fit, or None if it does."""
        if self.feasible[index]:
            return None
        ratio = float(self.total_bytes[index]) / self.available_bytes
        parts = sorted(self.by_category(index).items(), key=lambda part: -part[1])
        listed = ", ".join(f"{name} {show(size, Dimension.BYTES)}" for name, size in parts if size)
        available = show(self.available_bytes, Dimension.BYTES)
        size = show(ratio * self.available_bytes, Dimension.BYTES)
        return f"needs {ratio:.2f}x of a rank's memory, {size} of {available}: {listed}"

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
    """Memory a step needs on each stage, and what a rank of the platform has."""
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


def stage_parts(program: StepProgram) -> tuple[StageParts, ...]:
    """Return what each class of stages may hold, part by part."""
    reader = _reader(program)
    return tuple(reader.parts(stage) for stage in program.stages)


def block_parts(program: StepProgram) -> Mapping[str, tuple[BlockPart, ...]]:
    """Return what an instance of each kind of block of a scalar program may hold, by kind."""
    return _reader(program).held


def message_bytes(program: StepProgram, stage: StageClass) -> FloatArray:
    """Bytes of the buffers of a stage's messages to its neighbours."""
    return _reader(program).messages_bytes(stage)


class NeededMemory(Record, eq=False):
    """What a program's layouts need by a stack's numbers, for some of them at a time.

    Faster than `memory`: what does not depend on the layouts asked for is added up once.
    """

    program: StepProgram
    overheads: MemoryOverheads = PLAIN
    sums: GridSums = field(default_factory=GridSums)

    def played(self, program: StepProgram) -> NeededMemory:
        """That of the same program in another schedule."""
        return replace(self, program=program)

    def bytes(
        self,
        points: Points,
        *,
        fragmentation_ratios: Sequence[float],
        flights: Flights | None = None,
        roles: Collection[StageRole] | None = None,
    ) -> list[FloatArray]:
        """Bytes that a rank of the worst stage needs at each ratio.

        `flights` remembers what is in flight at these points, for programs on the same grid. Only
        stages with one of the `roles` are looked at.
        """
        program, overheads = self.program, self.overheads
        known = {} if flights is None else flights
        reader = StageReader(program, overheads, points.pick, known, self.sums)
        needed = [np.zeros(len(points)) for _ in fragmentation_ratios]
        for stage in program.stages:
            if roles is not None and stage.role not in roles:
                continue
            staying, passing = reader.kinds_bytes(stage)
            for most, ratio in zip(needed, fragmentation_ratios, strict=True):
                np.maximum(most, staying + passing * (1 + ratio), out=most)
        if not overheads.communicator_bytes:
            return [most + overheads.runtime_bytes for most in needed]
        runtime = runtime_bytes_of(overheads, reader.groups)
        return [most + runtime for most in needed]


def _reader(program: StepProgram) -> StageReader:
    return StageReader(program, None, lambda array: array, {}, GridSums())


def reserve_bytes(platform: Platform, logical_size: int | None) -> float:
    """A rank's reserve; it is stated for ranks of the default logical size."""
    chip = platform.chip
    return chip.reserve.per_rank_bytes * chip.ranks() / chip.ranks(logical_size)
