"""Bytes on a rank of each class of pipeline stages of a program, part by part.

A stage holds the state of its blocks for the whole step, what its blocks keep for as many
micro-batches as its schedule has in flight, the largest working set of any block it runs, and the
messages under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import Literal

import numpy as np

from trnbench.engines.analytic.step.memory_flights import Flights, StageFlights
from trnbench.engines.analytic.step.memory_parts import (
    HeldPart,
    HeldTimes,
    MemoryCategory,
    StageParts,
    weight_of,
)
from trnbench.errors import unhandled
from trnbench.facts.arrays import BoolArray, FloatArray, some
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field
from trnbench.facts.workload.choices import neighbours_of
from trnbench.program.block import Block, Lifetime, Resident
from trnbench.program.points import Pick
from trnbench.program.schedule import InFlight, splits_backward
from trnbench.program.stages import StageClass, is_behind
from trnbench.program.step import StepProgram
from trnbench.program.tensor import ONE

BUFFERS_PER_MESSAGE = 2  # One buffer is filled while the other is read
_STATES: tuple[MemoryCategory, ...] = ("weights", "gradients", "optimizer")


class BlockPart(Record, eq=False):
    """Bytes of one instance of a block with one category, weight and lifetime, one copy."""

    category: MemoryCategory
    weight: HeldTimes
    lifetime: Lifetime
    bytes: FloatArray


class GridSums(Record, eq=False):
    """Sums over a program's whole grid, equal for any choice of its layouts.

    Keys are a block or a class of stages, and True where weight gradients have slots of their own.
    """

    blocks: Memo[tuple[str, bool], tuple[BlockPart, ...]] = field(default_factory=Memo)
    staying: Memo[tuple[str, bool], Mapping[HeldPart, FloatArray]] = field(default_factory=Memo)
    """Bytes of a class of stages for the whole step, by part; `lasting` is their sum."""
    lasting: Memo[tuple[str, bool], FloatArray] = field(default_factory=Memo)
    largest: Memo[tuple[str, bool], tuple[FloatArray, ...] | None] = field(default_factory=Memo)
    """Working sets; None where they differ between layouts that have such a stage."""
    messages: Memo[Hashable, FloatArray] = field(default_factory=Memo)
    """Buffers by what is sent: most stages send the same; `sent` has those of each stage."""
    sent: Memo[StageClass, FloatArray] = field(default_factory=Memo)
    groups: Memo[Literal["rank"], FloatArray] = field(default_factory=Memo)

    @property
    def of_few(self) -> GridSums:
        """The sums that readers of few layouts share, whose others are their own."""
        return GridSums(blocks=self.blocks, largest=self.largest, groups=self.groups)


class StageReader:
    """Sums of a program's residents, stage by stage, over a grid or over some of its layouts.

    With `overheads`, each resident counts as often as the stack holds it; else once.
    """

    def __init__(
        self,
        program: StepProgram,
        overheads: MemoryOverheads | None,
        pick: Pick,
        flights: Flights,
        sums: GridSums,
        *,
        picks_first: bool = False,
    ) -> None:
        # `sums` is shared by all readers of a program, `flights` by all programs on some points:
        # what depends on neither choice is added up once.
        self._program = program
        self._grid = program.grid
        self._picks = pick
        # By the array's identity, with the array, which keeps it: stages share most arrays.
        self._picked: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._overheads = overheads
        self._schedule = program.layout.schedule
        self._flights = StageFlights(program.grid, self._schedule, pick, flights)
        self._sums = sums
        self._picks_first = picks_first
        self.split = splits_backward(self._schedule)

    def _added(self, array: FloatArray) -> FloatArray:
        """Numbers of what is added up, of the whole grid but where layouts are picked first."""
        return self._pick(array) if self._picks_first else array

    def _pick_sum(self, array: FloatArray) -> FloatArray:
        return array if self._picks_first else self._pick(array)

    def _pick(self, array: FloatArray) -> FloatArray:
        found = self._picked.get(id(array))
        if found is None:
            found = self._picked[id(array)] = array, self._picks(array)
        return found[1]

    @property
    def sizes(self) -> FloatArray:
        """Micro-batch sizes of the grid."""
        return self._grid.micro_batch

    @property
    def buffers(self) -> Numbers:
        """Buffers of a message, each as often as the stack holds it."""
        return BUFFERS_PER_MESSAGE * (1.0 if self._overheads is None else self._overheads.whole)

    @property
    def held(self) -> Mapping[str, tuple[BlockPart, ...]]:
        return {kind: self._on_grid(kind) for kind in self._program.blocks}

    def _passing(self, kind: str) -> Iterator[BlockPart]:
        return (one for one in self._on_grid(kind) if one.lifetime not in ("step", "slot"))

    def _on_grid(self, kind: str) -> tuple[BlockPart, ...]:
        block = self._program.blocks[kind]
        return self._sums.blocks.of((kind, self.split), partial(self._counted_alike, block))

    def _counted_alike(self, block: Block) -> tuple[BlockPart, ...]:
        """Residents added up where category, weight and lifetime are equal."""
        sums: dict[tuple[MemoryCategory, HeldTimes, Lifetime], FloatArray] = {}
        weighted: list[tuple[HeldTimes, Resident]] = [
            *((_weight_of(resident), resident) for resident in block.residents),
            *(
                block.copies.items()
                if self._overheads is None or self._overheads.holds_copies
                else ()
            ),
        ]
        for weight, resident in weighted:
            lifetime, size = resident.lifetime, resident.bytes
            if self._overheads is not None:
                times = weight_of(self._overheads, weight) * self._overheads.whole
                if not times:
                    continue
                weight, size = "once", size if times == 1 else size * times
            # Without slots of their own, weight gradients are done with the backward slot.
            if not self.split:
                if lifetime == "backward_to_weight":
                    continue
                lifetime = "until_backward" if lifetime == "until_weight" else lifetime
            key = resident.category, weight, lifetime
            sums[key] = np.asarray(sums[key] + size) if key in sums else size
        return tuple(
            BlockPart(category=category, weight=weight, lifetime=lifetime, bytes=size)
            for (category, weight, lifetime), size in sums.items()
            if some(size)
        )

    @property
    def groups(self) -> FloatArray:
        """Number of groups of ranks that a rank is in: the world, and one for each degree."""
        return self._pick(self._sums.groups.of("rank", self._groups))

    def _groups(self) -> FloatArray:
        axes: tuple[str, ...] = ("tp", "pp", "cp", "ep", "data")
        if self._grid.expert_tp is not None:
            axes = (*axes, "expert_tp")
        if self._grid.shard is not None:
            axes = (*axes, "copies")
        if neighbours_of(self._grid.context_parallel) is not None:
            axes = (*axes, "cp_inside", "cp_outside")
        degrees = (self._grid.ranks(axis) for axis in axes)
        return np.asarray(1.0 + sum((ranks > 1 for ranks in degrees), start=np.zeros(())))

    def parts(self, stage: StageClass) -> StageParts:
        """Parts that a class of stages may hold, one copy each."""
        lasting: dict[HeldPart, FloatArray] = {}
        staying = ((part, self._pick_sum(size)) for part, size in self._stays(stage).items())
        for part, size in (*staying, *self._kept(stage)):
            lasting[part] = np.asarray(lasting[part] + size) if part in lasting else size
        return StageParts(
            role=stage.role,
            stages=self._pick(stage.multiplicity),
            lasting=lasting,
            slots=self._slots(stage),
            groups=self.groups,
            once=self._once(stage),
            alone=np.asarray(1.0 * (self._flights.micro_batches == 1)),
            freed=self._freed(stage),
        )

    def _once(self, stage: StageClass) -> FloatArray:
        """1 where all micro-batches are in flight when the first backward slot begins, else 0."""
        flights = self._flights
        held = flights.of(stage).until_backward >= flights.micro_batches
        # A slot of a chunk lets go of a part only, and others follow it.
        return np.asarray(1.0 * (held & (flights.vpp == 1)))

    def _freed(self, stage: StageClass) -> dict[HeldPart, FloatArray]:
        """Bytes that the backward slot of one micro-batch lets go, but for one block's of each."""
        freed: dict[HeldPart, FloatArray] = {}
        for kind, blocks in stage.blocks.items():
            # The last block whose gradients are made still has what it kept.
            gone = np.maximum(self._pick(blocks) - (0 if is_behind(kind) else 1), 0)
            for held in self._passing(kind):
                if held.lifetime == "until_backward":
                    part = held.category, held.weight
                    size = self._pick(held.bytes) * gone
                    freed[part] = np.asarray(freed[part] + size) if part in freed else size
        return freed

    def kinds_bytes(self, stage: StageClass) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """Sums of lasting and of passing bytes at each moment; 0 where there is no such stage."""
        staying = self._pick_sum(self._lasting(stage))
        kept = _sum(size for _, size in self._kept(stage))
        passing = np.asarray(kept + _sum(self._largest(stage)))
        there = self._pick(stage.multiplicity) > 0
        late = self._overheads is not None and self._overheads.gradients_made == "backward"
        if not late or not some(once := self._once(stage)):
            # Most layouts that are looked at together all have such a stage.
            if there.all():
                return ((staying, passing),)
            return ((np.asarray(staying * there), np.asarray(passing * there)),)
        stays = self._stays(stage).items()
        made = self._pick_sum(
            _sum(size for (category, _), size in stays if category == "gradients")
        )
        freed = _sum(self._freed(stage).values())
        alone = once * (self._flights.micro_batches == 1)
        slots = {kind: parts for kind, parts in self._slots(stage).items() if not is_behind(kind)}
        behind = _sum(self._largest(stage)) - _sum(_largest_of(slots.values()))
        return (
            (np.asarray((staying - made * once) * there), np.asarray(passing * there)),
            (
                np.asarray(staying * there),
                np.asarray((passing - freed * once - behind * alone) * there),
            ),
        )

    def _lasting(self, stage: StageClass) -> FloatArray:
        key = stage.role, self.split
        return self._sums.lasting.of(key, lambda: _sum(self._stays(stage).values()))

    def _largest(self, stage: StageClass) -> Iterable[FloatArray]:
        """Bytes of the largest working set of a class of stages, part by part."""
        # Only where a stage may lack a block does its largest working set depend on the choice of
        # layouts: then it is found among those that were chosen.
        largest = self._alike(stage)
        if largest is None:
            return _largest_of(self._slots(stage).values())
        return map(self._pick, largest)

    def working_sets(
        self, stage: StageClass
    ) -> Iterator[tuple[tuple[FloatArray, FloatArray], ...]]:
        """Yield, for each part of working sets, how many blocks have it and its bytes, by kind.

        One array where the choice of layouts does not decide which block has the largest.
        """
        largest = self._alike(stage)
        if largest is not None:
            yield from (((ONE, size),) for size in largest)
            return
        parts: dict[HeldPart, list[tuple[FloatArray, FloatArray]]] = {}
        for kind, blocks in stage.blocks.items():
            for held in self._on_grid(kind):
                if held.lifetime == "slot":
                    part = held.category, held.weight
                    parts.setdefault(part, []).append((blocks, held.bytes))
        yield from map(tuple, parts.values())

    def _alike(self, stage: StageClass) -> tuple[FloatArray, ...] | None:
        """Largest working sets on the whole grid; None where the choice of layouts decides them."""

        def find() -> tuple[FloatArray, ...] | None:
            slots: list[Mapping[HeldPart, FloatArray]] = []
            for kind, blocks in stage.blocks.items():
                there = _wherever(blocks, stage.multiplicity)
                if there is None:
                    return None
                slots.append(_slot_parts(self._on_grid(kind), there))
            return _largest_of(slots)

        return self._sums.largest.of((stage.role, self.split), find)

    def _stays(self, stage: StageClass) -> Mapping[HeldPart, FloatArray]:
        def add() -> Mapping[HeldPart, FloatArray]:
            sums: dict[HeldPart, FloatArray] = {}
            for kind, count in stage.blocks.items():
                for held in self._on_grid(kind):
                    if held.lifetime == "step":
                        part = held.category, held.weight
                        size = self._added(held.bytes) * self._added(count)
                        known = sums.get(part)
                        sums[part] = size if known is None else known + size
            return sums

        return self._sums.staying.of((stage.role, self.split), add)

    def _kept(self, stage: StageClass) -> Iterator[tuple[HeldPart, FloatArray]]:
        """Yield the bytes kept of micro-batches in flight on a class of stages, and under way."""
        for kind, blocks in stage.blocks.items():
            count = self._pick(blocks)
            for held in self._passing(kind):
                flight = self._flights.of(stage, kind)
                times = count * _times(flight, held.lifetime)
                yield (held.category, held.weight), self._pick(held.bytes) * times
            if self.split:
                weight: HeldTimes = "activations" if self._overheads is None else "once"
                yield ("activations", weight), self._growth(kind, count)
        if stage.messages:
            size = self.messages_bytes(stage)
            whole = 1.0 if self._overheads is None else self._overheads.whole
            yield ("communication", "once"), size if whole == 1 else size * whole

    def _slots(self, stage: StageClass) -> dict[str, dict[HeldPart, FloatArray]]:
        slots: dict[str, dict[HeldPart, FloatArray]] = {}
        for kind, blocks in stage.blocks.items():
            there = np.array(True) if blocks.min() > 0 else self._pick(blocks) > 0
            parts = {
                (part.category, part.weight): _where(self._pick(part.bytes), there)
                for part in self._on_grid(kind)
                if part.lifetime == "slot"
            }
            if parts:
                slots[kind] = parts
        return slots

    def messages_bytes(self, stage: StageClass) -> FloatArray:
        """Bytes of the buffers of a stage's messages; most stages send the same ones."""
        return self._pick_sum(self._sums.sent.of(stage, partial(self._sent, stage)))

    def _sent(self, stage: StageClass) -> FloatArray:
        key = frozenset(
            Counter(
                (message.tensor, message.count.shape, message.count.tobytes())
                for message in stage.messages
            ).items()
        )

        def add() -> FloatArray:
            each = ((message.size_bytes, message.count) for message in stage.messages)
            sizes = (_where(self._added(size), self._added(count) > 0) for size, count in each)
            sizes = (size * BUFFERS_PER_MESSAGE for size in sizes)
            return np.asarray(sum(sizes, start=np.zeros(())))

        return self._sums.messages.of(key, add)

    def _growth(self, kind: str, count: FloatArray) -> FloatArray:
        """Growth of activations while a split backward slot passes `count` blocks, bytes."""
        # Each finished block frees one tensor and keeps another for its weight gradients; that of
        # the last block is in its working set.

        held = self._overheads
        times = 1.0 if held is None else weight_of(held, "activations") * held.whole
        # Copies that only some software keeps make no difference to what weight gradients read.
        own = [one for one in self._program.blocks[kind].residents if one.lifetime != "step"]

        def each(lifetime: Lifetime) -> FloatArray:
            parts = (self._pick(one.bytes) * times for one in own if one.lifetime == lifetime)
            return np.asarray(sum(parts, start=np.zeros(())))

        more = each("backward_to_weight") - each("until_backward")
        return np.asarray(np.maximum(count - 1, 0) * np.maximum(more, 0))


def _wherever(blocks: FloatArray, stages: FloatArray) -> BoolArray | None:
    """Places where stages have a block, along axes on which the number of stages does not depend.

    None if other axes decide, too, among layouts that have such stages.
    """
    if blocks.size == 1:
        return np.asarray(blocks > 0)
    present, absent = np.broadcast_arrays(blocks > 0, stages == 0)
    first = present.ndim - stages.ndim
    axes = tuple(first + axis for axis, length in enumerate(stages.shape) if length > 1)
    somewhere = np.any(present & ~absent, axis=axes, keepdims=True)
    everywhere = np.all(present | absent, axis=axes, keepdims=True)
    return somewhere if np.array_equal(somewhere, everywhere) else None


def _slot_parts(held: Iterable[BlockPart], there: BoolArray) -> Mapping[HeldPart, FloatArray]:
    return {
        (part.category, part.weight): _where(part.bytes, there)
        for part in held
        if part.lifetime == "slot"
    }


def _where(size: FloatArray, there: BoolArray) -> FloatArray:
    return size if there.all() else size * there


def _largest_of(slots: Iterable[Mapping[HeldPart, FloatArray]]) -> tuple[FloatArray, ...]:
    largest: dict[HeldPart, FloatArray] = {}
    for parts in slots:
        for part, size in parts.items():
            known = largest.get(part)
            largest[part] = size if known is None else np.maximum(known, size)
    return tuple(largest.values())


def _sum(sizes: Iterable[FloatArray]) -> FloatArray:
    listed = [*sizes]
    return reduce(np.add, listed) if listed else np.zeros(())


def _times(flight: InFlight, lifetime: Lifetime) -> FloatArray:
    """Number of micro-batches that hold a resident of this lifetime at once."""
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


def _weight_of(resident: Resident) -> HeldTimes:
    if resident.category in _STATES:
        return "states"
    return "activations" if resident.category == "activations" else "once"
