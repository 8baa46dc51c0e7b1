"""Whether a layout fits: how much memory it takes, how likely it is to fit, what is left free.

Model: the platform's reserve, what the allocator loses of passing memory and what the stack's
software holds beside its tensors are each known by a value and the ends of an 80 % interval, and
are independent. The chance to fit is the share of common draws of all of them in which the worst
stage needs no more than the reserve leaves; the interval of its memory is that of the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from trnbench.engines.analytic.step.memory import reserve_bytes, stage_parts
from trnbench.engines.analytic.step.memory_parts import StageParts, stacked
from trnbench.facts.arrays import FloatArray, quantiles
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.memory_overheads import MemoryOverheads
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

CountedMemory = Literal["first", "chip"]
WhoseMemory = Literal["worst"] | CountedMemory
"""Whose memory: of a rank of the worst stage; of rank 0, on the first stage, as its framework's log
tells it, which does not see the buffers of communicators; of the first chip, all its ranks."""


class MemoryInterval(Record):
    """Bytes of memory by the numbers of a stack, and the ends of their 80 % interval."""

    value_bytes: float
    low_bytes: float
    high_bytes: float


class MemoryDraws(Record, eq=False):
    """Common draws of what moves the memory of every layout on a platform with a stack."""

    overheads: MemoryOverheads
    fragmentation_ratio: Numbers
    reserve_bytes: FloatArray

    @classmethod
    def of(cls, platform: Platform, stack: TrainingStack, logical_size: int | None) -> MemoryDraws:
        """Return the draws of a stack's numbers and of a platform's reserve."""
        rows = {key: _DRAWS.of(key, known) for key, known in memory_ranges(stack).items()}
        overheads, lost = _replaced(stack, rows)
        return cls(
            overheads=overheads,
            fragmentation_ratio=lost,
            reserve_bytes=_DRAWS.of("reserve", reserve_range(platform, logical_size)),
        )


class LayoutMemory(Record, eq=False):
    """The memory of the layout at an index of a program's grid on a platform, by a stack's numbers.

    `parts` are those of the whole grid, `draws` those of the platform with the stack, where they
    are there already.
    """

    program: StepProgram
    platform: Platform
    stack: TrainingStack
    logical_size: int | None = None
    index: tuple[int, ...] = ()
    parts: tuple[StageParts, ...] | None = None
    draws: MemoryDraws | None = None

    def held(self, of: WhoseMemory = "worst") -> MemoryInterval:
        """Return what is held, with its 80 % interval."""
        drawn = self._sum(self._drawn, of, self._draws.overheads)
        low, high = quantiles(drawn, (TAIL, 1 - TAIL))
        value = float(self.bytes_by({}, of))
        return MemoryInterval(
            value_bytes=value, low_bytes=min(low, value), high_bytes=max(high, value)
        )

    def bytes_by(self, numbers: Mapping[str, Numbers], of: WhoseMemory = "worst") -> FloatArray:
        """Return what is held by other numbers than the stack's, or rows of them, by key.

        Keys are `fragmentation` and those of the table `[memory]` behind `memory.`.
        """
        overheads, lost = _replaced(self.stack, numbers)
        return self._sum([one.total_bytes(overheads, lost) for one in self.stages], of, overheads)

    @property
    def fit_probability(self) -> float:
        """How likely it is that a rank of the worst stage fits."""
        capacity = self.platform.memory_per_rank_bytes(self.logical_size)
        needed = self._sum(self._drawn, "worst", self._draws.overheads)
        return float(np.mean(needed <= capacity - self._draws.reserve_bytes))

    @cached_property
    def stages(self) -> tuple[StageParts, ...]:
        """What each class of stages of the layout may hold, part by part."""
        parts = self.parts or stage_parts(self.program)
        return tuple(one.at(self.program.shape, self.index) for one in parts)

    @cached_property
    def _draws(self) -> MemoryDraws:
        return self.draws or MemoryDraws.of(self.platform, self.stack, self.logical_size)

    @cached_property
    def _drawn(self) -> list[FloatArray]:
        """Draws of what each stage holds."""
        by = self._draws
        return [one.total_bytes(by.overheads, by.fragmentation_ratio) for one in self.stages]

    def _sum(
        self, of_stages: Sequence[FloatArray], of: WhoseMemory, overheads: MemoryOverheads
    ) -> FloatArray:
        if of == "worst":
            there = [
                size for one, size in zip(self.stages, of_stages, strict=True) if int(one.stages)
            ]
            return np.asarray(np.max(np.broadcast_arrays(*there), axis=0))
        total = sum(
            (count * size for count, size in zip(self.counted(of), of_stages, strict=True)),
            start=np.zeros(()),
        )
        return np.asarray(total - self.unseen_groups(of) * overheads.communicator_bytes)

    def counted(self, of: CountedMemory) -> list[int]:
        """Return how many ranks of each class of stages are counted.

        Those of the first chip fill one stage after the other.
        """
        grid, shape = self.program.grid, self.program.shape
        left, on_stage = 1, 1
        if of == "chip":
            world = int(np.broadcast_to(grid.ranks("world"), shape)[self.index])
            left = min(self.platform.chip.ranks(self.logical_size), world)
            on_stage = int(np.broadcast_to(grid.ranks_per_stage, shape)[self.index])
        counted = []
        for one in self.stages:
            counted.append(min(left, int(one.stages) * on_stage))
            left -= counted[-1]
        return counted

    def unseen_groups(self, of: WhoseMemory) -> float:
        """Return of how many groups no buffers are counted."""
        return float(self.stages[0].groups) if of == "first" else 0.0


class ManyLayouts(Record, eq=False):
    """The memory of layouts of one stack, of so many ranks of each class of stages, all at once."""

    stack: TrainingStack
    stages: tuple[tuple[FloatArray, StageParts], ...]
    unseen_groups: FloatArray

    @classmethod
    def of(cls, each: Sequence[tuple[LayoutMemory, CountedMemory]]) -> ManyLayouts:
        """Return layouts, each with whose memory is meant."""
        depth = max(len(one.stages) for one, _ in each)
        counted = np.array(
            [(*one.counted(of), *[0] * (depth - len(one.stages))) for one, of in each]
        )
        padded = [(*one.stages, *one.stages[-1:] * (depth - len(one.stages))) for one, _ in each]
        return cls(
            stack=each[0][0].stack,
            stages=tuple(
                (counted[:, i : i + 1], stacked([stages[i] for stages in padded]))
                for i in range(depth)
            ),
            unseen_groups=np.array([one.unseen_groups(of) for one, of in each])[:, np.newaxis],
        )

    def bytes_by(self, numbers: Mapping[str, Numbers]) -> FloatArray:
        """Return what each holds by rows of other numbers than the stack's [layouts, rows]."""
        overheads, lost = _replaced(self.stack, numbers)
        sizes = (counted * stage.total_bytes(overheads, lost) for counted, stage in self.stages)
        total = sum(sizes, start=np.zeros(()))
        return np.asarray(total - self.unseen_groups * overheads.communicator_bytes)


_DRAWS = CommonDraws()


def memory_ranges(stack: TrainingStack) -> dict[str, Range]:
    """Return the range of every number of a stack that moves its memory and has one, by key."""
    found = {FRAGMENTATION: fragmentation_range(stack)}
    known = stack.provenance.evidence
    for field in fields(MemoryOverheads):
        path = join(MEMORY, keys_of(MemoryOverheads)[field.name])
        most = field.metadata.get("most", math.inf)
        found[path] = _range(getattr(stack.memory, field.name), known.get(path), most)
    return {key: one for key, one in found.items() if one.low < one.high}


def fragmentation_range(stack: TrainingStack) -> Range:
    """Return which share of passing memory an allocator loses."""
    return _range(stack.fragmentation, stack.provenance.evidence.get(FRAGMENTATION))


def reserve_range(platform: Platform, logical_size: int | None = None) -> Range:
    """Return the bytes of its memory that a rank cannot use."""
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
    """Return the overheads and the share lost to fragmentation, with other numbers by key."""
    paths = {name: join(MEMORY, key) for name, key in keys_of(MemoryOverheads).items()}
    new = {name: numbers[path] for name, path in paths.items() if path in numbers}
    overheads = replace(stack.memory, **new) if new else stack.memory
    return overheads, numbers.get(FRAGMENTATION, stack.fragmentation)


def _range(value: float, evidence: Evidence | None, most: float = math.inf) -> Range:
    low = value if evidence is None or evidence.low is None else evidence.low
    high = value if evidence is None or evidence.high is None else evidence.high
    return Range(value=value, low=low, high=high, linear=low <= 0, most=most)
