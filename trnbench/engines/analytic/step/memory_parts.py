"""Bytes that a class of pipeline stages may hold on a rank, in parts, each with a weight.

A part counts the bytes of one copy; the numbers of the stack's software are the copies. Memory by
other numbers (a row of samples, a fit) therefore needs no new count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from trnbench.facts.arrays import FloatArray, picked, some
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.records import Record, replace
from trnbench.program.block import Copies
from trnbench.program.points import Pick
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
CategoryBytes: TypeAlias = tuple[MemoryCategory, FloatArray]

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
        return self.of(lambda values: picked(values, shape, index))

    def of(self, pick: Pick) -> StageParts:
        """Parts of the layouts that `pick` takes."""
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
        copies: dict[HeldTimes, Numbers] = {}

        def weighed(parts: Mapping[HeldPart, FloatArray]) -> list[CategoryBytes]:
            for _, weight in parts:
                if weight not in copies:
                    copies[weight] = weight_of(overheads, weight) * overheads.whole
            return [(category, size * copies[weight]) for (category, weight), size in parts.items()]

        def moment(
            lasting: Iterable[CategoryBytes], slots: Iterable[Sequence[CategoryBytes]]
        ) -> dict[MemoryCategory, FloatArray]:
            held = _added(lasting, dict.fromkeys(CATEGORIES, _NONE))
            working = dict.fromkeys(PASSING, _NONE)
            # Blocks run one at a time, so working sets compete for the same bytes.
            for of_block in slots:
                for category, size in _added(of_block, {}).items():
                    working[category] = np.maximum(working[category], size)
            for category in PASSING:
                held[category] = np.asarray(held[category] + working[category])
            passing = sum((held[category] for category in PASSING), start=_NONE)
            held["fragmentation"] = np.asarray(passing * fragmentation_ratio)
            held["runtime"] = runtime_bytes_of(overheads, self.groups)
            return held

        lasting = weighed(self.lasting)
        slots = {kind: weighed(parts) for kind, parts in self.slots.items()}
        if overheads.gradients_made == "before" or not some(self.once):
            return moment(lasting, slots.values())
        # Gradients appear as kept tensors go, so one end of the first backward slot is the peak.
        forward = [
            (category, size * (1 - self.once) if category == "gradients" else size)
            for category, size in lasting
        ]
        freed = [(category, -size * self.once) for category, size in weighed(self.freed)]
        # When the last gradient is made, what lies behind the layers is long gone.
        there = 1 - self.once * self.alone
        backward = (
            [(category, size * there) for category, size in parts] if is_behind(kind) else parts
            for kind, parts in slots.items()
        )
        first, last = moment(forward, slots.values()), moment([*lasting, *freed], backward)
        later = _sum(last) > _sum(first)
        return {name: np.where(later, last[name], first[name]) for name in first}

    def total_bytes(self, overheads: MemoryOverheads, fragmentation_ratio: Numbers) -> FloatArray:
        return np.asarray(_sum(self.held(overheads, fragmentation_ratio)) * (self.stages > 0))


def _added(
    parts: Iterable[CategoryBytes], so_far: dict[MemoryCategory, FloatArray]
) -> dict[MemoryCategory, FloatArray]:
    for category, size in parts:
        before = so_far.get(category, _NONE)
        so_far[category] = size if before is _NONE else before + size
    return so_far


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
