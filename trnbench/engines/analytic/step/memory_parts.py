"""Bytes that a class of pipeline stages may hold on a rank, in parts, each with a weight.

A part counts the bytes of one copy; the numbers of the stack's software are the copies. Memory by
other numbers (a row of samples, a fit) therefore needs no new count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from trnbench.facts.arrays import FloatArray, picked, some
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, replace
from trnbench.program.block import Copies
from trnbench.program.stages import is_behind

MemoryCategory = Literal[
    "weights",
    "gradients",
    "optimizer",
    "cache",
    "activations",
    "communication",
    "scratch",
    "fragmentation",
    "runtime",
]
CATEGORIES: tuple[MemoryCategory, ...] = get_args(MemoryCategory)
PASSING: tuple[MemoryCategory, ...] = ("activations", "communication", "scratch")

HeldTimes = Literal["once", "states", "activations"] | Copies
"""Copies of a part in a stack: one, or the stack's number of this name."""
HeldPart: TypeAlias = tuple[MemoryCategory, HeldTimes]

_NONE = np.zeros(())


class StageParts(Record, eq=False):
    """Bytes of each part on a rank of one class of stages, one copy each."""

    role: str
    stages: FloatArray
    lasting: Mapping[HeldPart, FloatArray]  # Parts that add up
    slots: Mapping[str, Mapping[HeldPart, FloatArray]]  # working sets by kind; one at a time
    groups: FloatArray  # Groups of ranks that a rank is a member of
    once: FloatArray  # 1 where no forward slot follows the first backward slot's end, else 0
    alone: FloatArray  # 1 where a step has one micro-batch, else 0
    freed: Mapping[HeldPart, FloatArray]  # What the backward of one micro-batch lets go

    def at(self, shape: tuple[int, ...], index: tuple[int, ...]) -> StageParts:
        """Parts of the layout at an index of a grid of some shape."""

        def pick(values: FloatArray) -> FloatArray:
            return picked(values, shape, index)

        return replace(
            self,
            stages=pick(self.stages),
            lasting={part: pick(size) for part, size in self.lasting.items()},
            slots={
                kind: {part: pick(size) for part, size in parts.items()}
                for kind, parts in self.slots.items()
            },
            groups=pick(self.groups),
            once=pick(self.once),
            alone=pick(self.alone),
            freed={part: pick(size) for part, size in self.freed.items()},
        )

    def held(
        self, overheads: MemoryOverheads, fragmentation_ratio: Numbers
    ) -> dict[MemoryCategory, FloatArray]:
        """Bytes by category at the largest moment of a step; numbers may be rows of samples."""
        if overheads.gradients_made == "before" or not some(self.once):
            return self._moment(overheads, fragmentation_ratio)
        first = self._moment(overheads, fragmentation_ratio, "forward")
        last = self._moment(overheads, fragmentation_ratio, "backward")
        # Gradients appear as kept tensors go, so one end of the first backward slot is the peak.
        later = _sum(last) > _sum(first)
        return {name: np.where(later, last[name], first[name]) for name in first}

    def _moment(
        self,
        overheads: MemoryOverheads,
        fragmentation_ratio: Numbers,
        end: Literal["forward", "backward"] | None = None,
    ) -> dict[MemoryCategory, FloatArray]:
        """Bytes by category: of all at once, or at an end of the first backward slot."""
        held: dict[MemoryCategory, FloatArray] = dict.fromkeys(CATEGORIES, _NONE)
        times: Memo[HeldTimes, Numbers] = Memo()

        def add(so_far: FloatArray, weight: HeldTimes, size: FloatArray) -> FloatArray:
            found = times.of(weight, lambda: weight_of(overheads, weight) * overheads.whole)
            more = np.asarray(size * found)
            return more if so_far is _NONE else so_far + more

        for (category, weight), size in self.lasting.items():
            if end == "forward" and category == "gradients":
                size = size * (1 - self.once)
            held[category] = add(held[category], weight, size)
        if end == "backward":
            for (category, weight), size in self.freed.items():
                held[category] = add(held[category], weight, -size * self.once)
        for category in PASSING:
            # Blocks run one at a time, so working sets compete for the same bytes.
            working = _NONE
            for kind, parts in self.slots.items():
                of_block = _NONE
                for (of, weight), size in parts.items():
                    if of == category:
                        # When the last gradient is made, what lies behind the layers is long gone.
                        if end == "backward" and is_behind(kind):
                            size = size * (1 - self.once * self.alone)
                        of_block = add(of_block, weight, size)
                if of_block is not _NONE:
                    working = np.maximum(working, of_block)
            held[category] = np.asarray(held[category] + working)
        passing = sum((held[category] for category in PASSING), start=_NONE)
        held["fragmentation"] = np.asarray(passing * fragmentation_ratio)
        held["runtime"] = runtime_bytes_of(overheads, self.groups)
        return held

    def total_bytes(self, overheads: MemoryOverheads, fragmentation_ratio: Numbers) -> FloatArray:
        return np.asarray(_sum(self.held(overheads, fragmentation_ratio)) * (self.stages > 0))


def _sum(held: Mapping[MemoryCategory, FloatArray]) -> FloatArray:
    return sum((size for size in held.values() if size is not _NONE), start=_NONE)


def stacked(each: Sequence[StageParts]) -> StageParts:
    """Parts of single layouts joined into arrays [layouts, 1]; numbers may be rows of samples."""

    def column(values: Sequence[FloatArray]) -> FloatArray:
        return np.array(values, dtype=np.float64)[:, np.newaxis]

    def columns(parts: Sequence[Mapping[HeldPart, FloatArray]]) -> dict[HeldPart, FloatArray]:
        names = dict.fromkeys(name for one in parts for name in one)
        return {name: column([one.get(name, _NONE) for one in parts]) for name in names}

    kinds = dict.fromkeys(kind for one in each for kind in one.slots)
    return StageParts(
        role=each[0].role,
        stages=column([one.stages for one in each]),
        lasting=columns([one.lasting for one in each]),
        slots={kind: columns([one.slots.get(kind, {}) for one in each]) for kind in kinds},
        groups=column([one.groups for one in each]),
        once=column([one.once for one in each]),
        alone=column([one.alone for one in each]),
        freed=columns([one.freed for one in each]),
    )


def weight_of(overheads: MemoryOverheads, weight: HeldTimes) -> Numbers:
    return 1.0 if weight == "once" else getattr(overheads, weight)


def runtime_bytes_of(overheads: MemoryOverheads, groups: FloatArray) -> FloatArray:
    return np.asarray(overheads.runtime_bytes + groups * overheads.communicator_bytes)
