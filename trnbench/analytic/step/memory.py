"""Device memory of a rank of the worst pipeline stage, by category, against what a platform has.

Model: every stage holds the state of its blocks for the whole step, what its blocks keep for as
many micro-batches as its schedule has in flight, the largest working set of any block it runs, and
the messages under way. Where weight gradients have slots of their own, a backward slot leaves what
they read: blocks that are done may hold more than before. `fragmentation_ratio` is what an
allocator loses of everything that comes and goes (activations, working sets, messages); the
platform's reserve is taken off its capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from trnbench.arrays import BoolArray, FloatArray
from trnbench.errors import unhandled
from trnbench.hardware.instance import Platform
from trnbench.program.block import Lifetime, Resident
from trnbench.program.points import Pick, Points
from trnbench.program.schedule import InFlight, in_flight, splits_backward
from trnbench.program.stages import StageClass
from trnbench.program.step import StepProgram
from trnbench.units import Dimension, show
from trnbench.workload.layout import Schedule

MemoryCategory = Literal[
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "communication",
    "scratch",
    "fragmentation",
]
CATEGORIES: tuple[MemoryCategory, ...] = get_args(MemoryCategory)
_PASSING: tuple[MemoryCategory, ...] = ("activations", "communication", "scratch")

Flights: TypeAlias = dict[tuple[Schedule, str], InFlight]
"""What schedules keep in flight on each class of stages, for some layouts."""

BUFFERS_PER_MESSAGE = 2
"""One is filled while the other is read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageMemory:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepMemory:
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
        """Return the stage class that needs most in the layout at an index."""
        return max(self.stages, key=lambda stage: self._at(stage.total_bytes, index))

    def by_category(self, index: tuple[int, ...] = ()) -> Mapping[MemoryCategory, float]:
        """Return the worst stage's bytes by category, of the layout at an index."""
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
        return f"needs {ratio:.2f}x of a rank's memory: {listed} of {available}"

    def _at(self, array: FloatArray, index: tuple[int, ...]) -> float:
        return float(np.broadcast_to(array, self.total_bytes.shape)[index])


def memory(
    program: StepProgram,
    platform: Platform,
    *,
    fragmentation_ratio: float,
    logical_size: int | None = None,
    points: Points | None = None,
) -> StepMemory:
    """Return the memory a step needs on each stage, and what a rank of the platform has.

    With `points`, for those layouts of the program's grid only, one after the other.
    """
    stages = _stages(program, fragmentation_ratio, points)
    return StepMemory(
        stages=stages,
        total_bytes=_worst(program, stages, points),
        capacity_bytes=platform.memory_per_rank_bytes(logical_size),
        reserve_bytes=reserve_bytes(platform, logical_size),
    )


def needed_bytes(
    program: StepProgram,
    *,
    fragmentation_ratios: Sequence[float],
    points: Points | None = None,
    flights: Flights | None = None,
) -> list[FloatArray]:
    """Return the bytes that a rank of the worst stage needs at each ratio, faster than `memory`.

    `flights` remembers what is in flight at these points, for programs on the same grid.
    """
    reader = _reader(program, points, flights)
    shape = program.shape if points is None else len(points)
    needed = [np.zeros(shape) for _ in fragmentation_ratios]
    for stage in program.stages:
        staying, passing = reader.kinds_bytes(stage)
        for most, ratio in zip(needed, fragmentation_ratios, strict=True):
            np.maximum(most, staying + passing * (1 + ratio), out=most)
    return needed


def _stages(
    program: StepProgram, fragmentation_ratio: float, points: Points | None
) -> tuple[StageMemory, ...]:
    reader = _reader(program, points)
    return tuple(reader.stage(stage, fragmentation_ratio) for stage in program.stages)


def _reader(program: StepProgram, points: Points | None, flights: Flights | None = None) -> _Reader:
    pick = (lambda array: array) if points is None else points.pick
    return _Reader(program, pick, {} if flights is None else flights)


def _worst(
    program: StepProgram, stages: tuple[StageMemory, ...], points: Points | None
) -> FloatArray:
    total = np.zeros(program.shape if points is None else len(points))
    for stage in stages:
        np.maximum(total, stage.total_bytes, out=total)
    return total


def reserve_bytes(platform: Platform, logical_size: int | None) -> float:
    """Return a rank's reserve; it is stated for ranks of the default logical size."""
    chip = platform.chip
    return chip.reserve.per_rank_bytes * chip.ranks() / chip.ranks(logical_size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Held:
    """Bytes of one instance of a block that are counted alike."""

    category: MemoryCategory
    lifetime: Lifetime
    bytes: FloatArray


class _Reader:
    """Adds up a program's residents, stage by stage, over a grid or over some of its layouts."""

    def __init__(self, program: StepProgram, pick: Pick, flights: Flights) -> None:
        grid = program.grid
        self._pick = pick
        self._schedule = program.layout.schedule
        self._pp = pick(grid.pp)
        self._vpp = pick(grid.vpp)
        self._micro_batches = np.ceil(
            pick(grid.global_batch) / (pick(grid.dp) * pick(grid.micro_batch))
        )
        self._flights = flights
        self._buffers: dict[Hashable, FloatArray] = {}
        self._held = {
            kind: self._counted_alike(block.residents) for kind, block in program.blocks.items()
        }

    def _counted_alike(self, residents: Sequence[Resident]) -> tuple[_Held, ...]:
        """Return residents added up where category and lifetime make no difference."""
        sums: dict[tuple[MemoryCategory, Lifetime], FloatArray] = {}
        for resident in residents:
            lifetime = resident.lifetime
            if not splits_backward(self._schedule):
                if lifetime == "backward_to_weight":
                    continue
                lifetime = "until_backward" if lifetime == "until_weight" else lifetime
            key = resident.category, lifetime
            sums[key] = np.asarray(sums[key] + resident.bytes) if key in sums else resident.bytes
        return tuple(
            # What stays spans few axes: it is counted before it is picked.
            _Held(
                category=category,
                lifetime=lifetime,
                bytes=size if lifetime == "step" else self._pick(size),
            )
            for (category, lifetime), size in sums.items()
            if np.any(size)
        )

    def stage(self, stage: StageClass, fragmentation_ratio: float) -> StageMemory:
        """Return the bytes that a class of stages holds, by category."""
        held: dict[MemoryCategory, FloatArray] = {category: np.zeros(()) for category in CATEGORIES}
        for category, size in (*self._staying(stage), *self._passing(stage)):
            held[category] = np.asarray(held[category] + size)
        passing = sum((held[category] for category in _PASSING), start=np.zeros(()))
        held["fragmentation"] = np.asarray(passing * fragmentation_ratio)
        return StageMemory(role=stage.role, stages=self._pick(stage.multiplicity), by_category=held)

    def kinds_bytes(self, stage: StageClass) -> tuple[FloatArray, FloatArray]:
        """Return lasting and passing bytes added up; 0 where there is no such stage."""
        staying = sum((size for _, size in self._staying(stage)), start=np.zeros(()))
        passing = sum((size for _, size in self._passing(stage)), start=np.zeros(()))
        there = self._pick(stage.multiplicity) > 0
        return np.asarray(staying * there), np.asarray(passing * there)

    def _staying(self, stage: StageClass) -> Iterator[tuple[MemoryCategory, FloatArray]]:
        """Yield the bytes that a class of stages holds for the whole step."""
        sums: dict[MemoryCategory, FloatArray] = {}
        for kind, count in stage.blocks.items():
            for part in self._held[kind]:
                if part.lifetime == "step":
                    size = part.bytes * count
                    known = sums.get(part.category)
                    sums[part.category] = size if known is None else known + size
        for category, size in sums.items():
            yield category, self._pick(size)

    def _passing(self, stage: StageClass) -> Iterator[tuple[MemoryCategory, FloatArray]]:
        """Yield the passing bytes of a class of stages: kept, worked on, under way."""
        slots: dict[MemoryCategory, FloatArray] = {}
        for kind, blocks in stage.blocks.items():
            count = self._pick(blocks)
            for part in self._held[kind]:
                if part.lifetime == "slot":
                    size = part.bytes if blocks.min() > 0 else part.bytes * (count > 0)
                    known = slots.get(part.category)
                    slots[part.category] = size if known is None else np.maximum(known, size)
                elif part.lifetime != "step":
                    flight = self._output_in_flight() if kind == "head" else self._in_flight(stage)
                    yield part.category, part.bytes * (count * _times(flight, part.lifetime))
            if splits_backward(self._schedule):
                yield "activations", self._growth(kind, count)
        yield from slots.items()
        if stage.messages:
            yield "communication", self._messages(stage)

    def _messages(self, stage: StageClass) -> FloatArray:
        """Return the buffers of a stage's messages; most stages send the same ones."""
        key = frozenset(
            Counter(
                (message.tensor, message.count.shape, message.count.tobytes())
                for message in stage.messages
            ).items()
        )
        if key not in self._buffers:
            sizes = (
                message.size_bytes * (message.count > 0) * BUFFERS_PER_MESSAGE
                for message in stage.messages
            )
            self._buffers[key] = self._pick(np.asarray(sum(sizes, start=np.zeros(()))))
        return self._buffers[key]

    def _growth(self, kind: str, count: FloatArray) -> FloatArray:
        """Return by how much activations grow while a split backward slot passes `count` blocks.

        Each block that is done lets go of one thing and keeps another for its weight gradients;
        that of the last block is in its working set.
        """

        def each(lifetime: Lifetime) -> FloatArray:
            parts = (part.bytes for part in self._held[kind] if part.lifetime == lifetime)
            return np.asarray(sum(parts, start=np.zeros(())))

        more = each("backward_to_weight") - each("until_backward")
        return np.asarray(np.maximum(count - 1, 0) * np.maximum(more, 0))

    def _in_flight(self, stage: StageClass) -> InFlight:
        key = self._schedule, stage.role
        if key not in self._flights:
            self._flights[key] = self._flight(self._pick(stage.index))
        return self._flights[key]

    def _flight(self, index: FloatArray) -> InFlight:
        return in_flight(
            self._schedule,
            pp=self._pp.astype(np.int64),
            vpp=self._vpp.astype(np.int64),
            micro_batches=self._micro_batches.astype(np.int64),
            stage=index.astype(np.int64),
        )

    def _output_in_flight(self) -> InFlight:
        """Return the number of micro-batches that the output block keeps: it is in the last chunk.

        There a backward slot follows each forward slot, unless all forward slots come first.
        """
        key = self._schedule, "output"
        if key not in self._flights:
            if self._schedule != "interleaved":
                self._flights[key] = self._flight(np.asarray(self._pp - 1))
            else:
                all_first = self._micro_batches == self._pp
                held = np.where(all_first, self._micro_batches, 1.0)
                self._flights[key] = InFlight(until_backward=held, until_weight=held)
        return self._flights[key]


def _times(flight: InFlight, lifetime: Lifetime) -> FloatArray:
    """Return the number of micro-batches that hold a resident of this lifetime at once."""
    match lifetime:
        case "step" | "slot":
            return np.ones(())
        case "until_backward":
            return flight.until_backward
        case "until_weight":
            return flight.until_weight
        case "backward_to_weight":
            return np.asarray(flight.until_weight - flight.until_backward)
        case _:
            unhandled(lifetime, "number of micro-batches that keep it")
