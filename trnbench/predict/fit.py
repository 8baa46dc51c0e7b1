"""Memory of a layout: bytes needed with their interval, chance to fit, bytes left free.

Model: three numbers are uncertain and independent: the platform's reserve, the allocator's loss of
transient memory, and the memory of the stack's software beside its tensors. Each has a value and
the ends of an 80 % interval. The chance to fit is the share of common draws in which the worst
stage needs no more than the reserve leaves. The interval of its memory is that of the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from trnbench.engines.analytic.step.memory import reserve_bytes, stage_parts
from trnbench.engines.analytic.step.memory_parts import StageParts, stacked
from trnbench.facts.arrays import FloatArray, picked, quantiles
from trnbench.facts.calibration.chip_efficiency import Numbers, numbers_of
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.catalog.provenance import Evidence, join
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record, fields, replace
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import TAIL, Range
from trnbench.program.step import StepProgram

MEMORY = "memory"
FRAGMENTATION = "fragmentation"

CountedMemory = Literal["first", "last", "chip"]
WhoseMemory = Literal["worst"] | CountedMemory
"""worst: a rank of the worst stage. first, last: a rank of this stage, as its framework's log
reports it, without the buffers of communicators. chip: all ranks of the first chip together."""


class MemoryDraws(Record, eq=False):
    """Common draws of the uncertain numbers in the memory of layouts, by platform and stack.

    Rows of the stack's numbers begin with the number itself; of the reserve there are draws alone.
    """

    overheads: MemoryOverheads
    fragmentation_ratio: Numbers
    reserve_bytes: FloatArray

    @classmethod
    def of(cls, platform: Platform, stack: TrainingStack, logical_size: int | None) -> MemoryDraws:
        """Draws of a stack's numbers and of a platform's reserve."""
        rows = {
            key: np.append(bounds.value, _DRAWS.of(key, bounds))
            for key, bounds in memory_ranges(stack).items()
        }
        overheads, lost = _replaced(stack, rows)
        return cls(
            overheads=overheads,
            fragmentation_ratio=lost,
            reserve_bytes=_DRAWS.of("reserve", reserve_range(platform, logical_size)),
        )

    def stage_bytes(self, stage: StageParts) -> FloatArray:
        """Bytes of a class of stages by the numbers themselves, then in every draw."""
        return stage.total_bytes(self.overheads, self.fragmentation_ratio)


class LayoutMemory(Record, eq=False):
    """Memory of one layout of a program on a platform, by a stack's numbers."""

    program: StepProgram
    platform: Platform
    stack: TrainingStack
    logical_size: int | None = None
    index: tuple[int, ...] = ()
    """Place of the layout in the program's grid; empty for a scalar program."""
    parts: tuple[StageParts, ...] | None = None
    """Memory parts of the whole grid, if the caller has them."""
    draws: MemoryDraws | None = None
    """Draws of the platform with the stack, if the caller has them."""
    drawn: tuple[FloatArray, ...] | None = None
    """Bytes of each class of stages by these draws, if the caller has them."""

    def held(self, of: WhoseMemory = "worst") -> Range:
        """Bytes held, with their 80 % interval."""
        rows = self._worst
        if of != "worst":
            rows = np.atleast_1d(self._sum(self._drawn, of, self._draws.overheads))
        value = float(rows[0])
        low, high = quantiles(rows[1:] if len(rows) > 1 else rows, (TAIL, 1 - TAIL))
        # The value need not be between the quantiles of the draws.
        return Range(value=value, low=min(low, value), high=max(high, value))

    def bytes_by(self, numbers: Mapping[str, Numbers], of: WhoseMemory = "worst") -> FloatArray:
        """Bytes held with some of the stack's numbers replaced by key, by single values or rows.

        Keys are `fragmentation` and those of the table `[memory]` with `memory.` in front.
        """
        overheads, lost = _replaced(self.stack, numbers)
        return self._sum(
            [stage.total_bytes(overheads, lost) for stage in self.stages], of, overheads
        )

    @property
    def fit_probability(self) -> float:
        """Chance that a rank of the worst stage fits."""
        capacity = self.platform.memory_per_rank_bytes(self.logical_size)
        needed = self._worst
        drawn = needed[1:] if len(needed) > 1 else needed
        return float(np.mean(drawn <= capacity - self._draws.reserve_bytes))

    @cached_property
    def stages(self) -> tuple[StageParts, ...]:
        """Memory parts of each class of stages of the layout."""
        return tuple(part.at(self.program.shape, self.index) for part in self._of_grid)

    @cached_property
    def _of_grid(self) -> tuple[StageParts, ...]:
        return self.parts or stage_parts(self.program)

    @cached_property
    def _numbers(self) -> list[int]:
        """Number of stages of each class, without the other parts of the layout."""
        return [int(self._here(part.stages)) for part in self._of_grid]

    def _here(self, values: FloatArray) -> FloatArray:
        return picked(values, self.program.shape, self.index)

    @cached_property
    def _worst(self) -> FloatArray:
        """Bytes on a rank of the worst stage, by the numbers themselves, then in every draw."""
        return np.atleast_1d(self._sum(self._drawn, "worst", self._draws.overheads))

    @cached_property
    def _draws(self) -> MemoryDraws:
        return self.draws or MemoryDraws.of(self.platform, self.stack, self.logical_size)

    @cached_property
    def _drawn(self) -> Sequence[FloatArray]:
        return self.drawn or [self._draws.stage_bytes(stage) for stage in self.stages]

    def _sum(
        self, of_stages: Sequence[FloatArray], of: WhoseMemory, overheads: MemoryOverheads
    ) -> FloatArray:
        if of == "worst":
            # Only classes with stages in this layout can have the worst rank.
            there = [size for stages, size in zip(self._numbers, of_stages, strict=True) if stages]
            return np.asarray(np.max(np.broadcast_arrays(*there), axis=0))
        total = sum(
            (count * size for count, size in zip(self.counted(of), of_stages, strict=True)),
            start=np.zeros(()),
        )
        return np.asarray(total - self.unseen_groups(of) * overheads.communicator_bytes)

    def counted(self, of: CountedMemory) -> list[int]:
        """Counted ranks in each class of stages: one rank, or the first chip's ranks."""
        if of == "last":
            last = max(i for i, stages in enumerate(self._numbers) if stages)
            return [int(i == last) for i in range(len(self._numbers))]
        grid, shape = self.program.grid, self.program.shape
        left, on_stage = 1, 1
        if of == "chip":
            world = int(np.broadcast_to(grid.ranks("world"), shape)[self.index])
            left = min(self.platform.chip.ranks(self.logical_size), world)
            on_stage = int(np.broadcast_to(grid.ranks_per_stage, shape)[self.index])
        counted = []
        for stages in self._numbers:
            # Ranks of a chip fill one stage after the other.
            counted.append(min(left, stages * on_stage))
            left -= counted[-1]
        return counted

    def unseen_groups(self, of: CountedMemory) -> float:
        """Groups whose communicator buffers the framework's log of a rank does not include."""
        if of == "chip":
            return 0.0
        return float(self._here(self._of_grid[self.counted(of).index(1)].groups))


class ManyLayouts(Record, eq=False):
    """Memory of many layouts of one stack at once."""

    stack: TrainingStack
    stages: tuple[tuple[FloatArray, StageParts], ...]
    """Class of stages: counted ranks and memory parts, each by layout."""
    unseen_groups: FloatArray
    """Groups without counted buffers, by layout."""

    @classmethod
    def of(cls, each: Sequence[tuple[LayoutMemory, CountedMemory]]) -> ManyLayouts:
        """Layouts stacked, each with the ranks that are counted."""
        depth = max(len(held.stages) for held, _ in each)
        counted = np.array(
            [(*held.counted(of), *[0] * (depth - len(held.stages))) for held, of in each]
        )
        # Layouts with fewer classes repeat their last one, counted for 0 ranks.
        padded = [
            (*held.stages, *held.stages[-1:] * (depth - len(held.stages))) for held, _ in each
        ]
        return cls(
            stack=each[0][0].stack,
            stages=tuple(
                (counted[:, i : i + 1], stacked([stages[i] for stages in padded]))
                for i in range(depth)
            ),
            unseen_groups=np.array([held.unseen_groups(of) for held, of in each])[:, np.newaxis],
        )

    def bytes_by(self, numbers: Mapping[str, Numbers]) -> FloatArray:
        """Bytes [layout, row] with some of the stack's numbers replaced by rows, by key."""
        overheads, lost = _replaced(self.stack, numbers)
        sizes = (counted * stage.total_bytes(overheads, lost) for counted, stage in self.stages)
        total = sum(sizes, start=np.zeros(()))
        return np.asarray(total - self.unseen_groups * overheads.communicator_bytes)


_DRAWS = CommonDraws()


def memory_ranges(stack: TrainingStack) -> dict[str, Range]:
    """Range of each number of a stack that affects memory and is uncertain, by key."""
    ranges = {FRAGMENTATION: fragmentation_range(stack)}
    evidence = stack.provenance.evidence
    numbers = numbers_of(stack.memory)
    for field in (each for each in fields(MemoryOverheads) if each.name in numbers):
        path = join(MEMORY, keys_of(MemoryOverheads)[field.name])
        most = field.metadata.get("most", math.inf)
        ranges[path] = _range(getattr(stack.memory, field.name), evidence.get(path), most)
    return {key: bounds for key, bounds in ranges.items() if bounds.low < bounds.high}


def fragmentation_range(stack: TrainingStack) -> Range:
    return _range(stack.fragmentation, stack.provenance.evidence.get(FRAGMENTATION))


def reserve_range(platform: Platform, logical_size: int | None = None) -> Range:
    """Bytes of its memory that a rank cannot use."""
    chip = platform.chip
    stated = _range(chip.reserve.per_rank_bytes, chip.provenance.evidence.get("reserve.per_rank"))
    share = reserve_bytes(platform, logical_size) / (stated.value or 1.0)
    return Range(
        value=stated.value * share,
        low=stated.low * share,
        high=stated.high * share,
        linear=stated.linear,
    )


def _replaced(
    stack: TrainingStack, numbers: Mapping[str, Numbers]
) -> tuple[MemoryOverheads, Numbers]:
    """Overheads and share lost to fragmentation, with some numbers replaced by key."""
    paths = {name: join(MEMORY, key) for name, key in keys_of(MemoryOverheads).items()}
    new = {name: numbers[path] for name, path in paths.items() if path in numbers}
    overheads = replace(stack.memory, **new) if new else stack.memory
    return overheads, numbers.get(FRAGMENTATION, stack.fragmentation)


def _range(value: float, evidence: Evidence | None, most: float = math.inf) -> Range:
    low = value if evidence is None or evidence.low is None else evidence.low
    high = value if evidence is None or evidence.high is None else evidence.high
    return Range(value=value, low=low, high=high, linear=low <= 0, most=most)
