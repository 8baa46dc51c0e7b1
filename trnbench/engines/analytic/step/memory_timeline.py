"""Bytes on a rank of one pipeline stage, slot by slot, by category and block.

Model: the order of slots is the schedule's own. A forward slot adds what its blocks keep of a
micro-batch; the slot that reads it last lets it go at its end; a stage works on its largest block
in every slot; the optimizer runs when nothing is kept any more. Gradients that the backward pass
makes appear with its first slot, which then has two instants: its begin and its end. It is the
closed form of `analytic.step.memory` written out slot by slot: the largest instant is what that
says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import numpy as np

from trnbench.engines.analytic.step.memory import reader_of
from trnbench.engines.analytic.step.memory_parts import (
    CATEGORIES,
    PASSING,
    MemoryCategory,
    runtime_bytes_of,
    weight_of,
)
from trnbench.engines.analytic.step.memory_reader import BlockPart, StageReader
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.records import Record
from trnbench.program.schedule import SlotKind, SlotOrder, slot_order
from trnbench.program.stages import StageClass, is_behind
from trnbench.program.step import StepProgram

HeldBy: TypeAlias = Mapping[tuple[str, MemoryCategory], float]  # "" for no block

SlotPhase = Literal["forward", "backward", "gradients", "weights", "optimizer"]
"""`gradients`: the end of the first backward slot, where gradients appear as kept tensors go."""
_PHASES: Mapping[int, SlotPhase] = {
    SlotKind.FORWARD: "forward",
    SlotKind.BACKWARD: "backward",
    SlotKind.WEIGHT: "weights",
}


class MemoryInstant(Record):
    """Bytes held while one slot runs, or the optimizer, which has no micro-batch and no chunk."""

    slot: int
    phase: SlotPhase
    in_flight: float  # Micro-batches with kept tensors, in whole stages
    held: HeldBy
    micro_batch: int | None = None
    chunk: int | None = None

    @property
    def total_bytes(self) -> float:
        return sum(self.held.values())

    @property
    def by_category(self) -> dict[MemoryCategory, float]:
        """Bytes by category, all blocks together."""
        sums: dict[MemoryCategory, float] = dict.fromkeys(CATEGORIES, 0.0)
        for (_, category), size in self.held.items():
            sums[category] += size
        return sums


class MemoryTimeline(Record):
    """The instants of one rank of a stage (counted from 0) in order."""

    role: str
    stage: int
    instants: tuple[MemoryInstant, ...]

    @property
    def peak(self) -> MemoryInstant:
        return max(self.instants, key=lambda instant: instant.total_bytes)


def memory_timeline(
    program: StepProgram, overheads: MemoryOverheads, fragmentation_ratio: float
) -> MemoryTimeline:
    """Memory of a rank of the worst stage of a scalar program, slot by slot."""
    reader = reader_of(program)
    parts = [reader.parts(stage) for stage in program.stages]
    totals = [float(one.total_bytes(overheads, fragmentation_ratio)) for one in parts]
    stage = program.stages[int(np.argmax(totals))]
    grid = program.grid
    pp, micro_batches = int(grid.pp), int(program.micro_batches)
    order = slot_order(
        program.layout.schedule, pp=pp, vpp=int(grid.vpp), micro_batches=micro_batches
    )
    held = _Stage(reader, stage, overheads, fragmentation_ratio)
    return MemoryTimeline(
        role=stage.role,
        stage=int(stage.index),
        instants=tuple(held.instants(order, int(stage.index))),
    )


class _Stage:
    """Bytes on a rank of a stage, given the micro-batches in flight."""

    def __init__(
        self,
        reader: StageReader,
        stage: StageClass,
        overheads: MemoryOverheads,
        fragmentation_ratio: float,
    ) -> None:
        self._overheads = overheads
        self._lost = fragmentation_ratio
        self._late = overheads.gradients_made == "backward" and bool(reader.parts(stage).once)
        self._split = reader.split
        parts = reader.held
        self._blocks = {
            kind: (int(count), parts[kind]) for kind, count in stage.blocks.items() if int(count)
        }
        whole = float(overheads.whole)
        self._messages = float(reader.messages_bytes(stage)) * whole if stage.messages else 0.0
        self._runtime = float(runtime_bytes_of(overheads, reader.groups))

    def instants(self, order: SlotOrder, stage: int) -> Iterator[MemoryInstant]:
        """Yield the bytes of each slot of a stage, and at last of the optimizer."""
        kept, unread = np.zeros(order.vpp), np.zeros(order.vpp)
        made, micro_batches = not self._late, len(set(order.micro_batch[stage].tolist()))
        slots = zip(
            order.kind[stage].tolist(),
            order.micro_batch[stage].tolist(),
            order.chunk[stage].tolist(),
            strict=True,
        )
        for number, (kind, micro_batch, chunk) in enumerate(slots):
            # A slot's tensors exist while it runs: added before the instant, freed after it.
            if kind == SlotKind.FORWARD:
                kept[chunk] += 1
                unread[chunk] += 1
            yield MemoryInstant(
                slot=number,
                phase=_PHASES[kind],
                micro_batch=micro_batch,
                chunk=chunk,
                in_flight=float(unread.sum()) / order.vpp,
                held=self._held(kept, unread, kind, made=made),
            )
            if kind == SlotKind.BACKWARD and not made:
                made = True
                yield MemoryInstant(
                    slot=number,
                    phase="gradients",
                    micro_batch=micro_batch,
                    chunk=chunk,
                    in_flight=float(unread.sum()) / order.vpp,
                    held=self._at_end(self._held(kept, unread, kind), alone=micro_batches == 1),
                )
            if kind == SlotKind.BACKWARD:
                kept[chunk] -= 1
            if kind == order.weight_kind:
                unread[chunk] -= 1
        yield MemoryInstant(
            slot=order.slots_per_stage,
            phase="optimizer",
            in_flight=0.0,
            held=self._held(kept, unread, None),
        )

    def _at_end(self, held: HeldBy, *, alone: bool) -> HeldBy:
        """Bytes by block when the first backward slot has made its last gradient."""
        found = dict(held)
        for name, (count, parts) in self._blocks.items():
            gone = count if is_behind(name) else count - 1
            for part in parts:
                if part.lifetime == "until_backward":
                    found[name, part.category] -= self._bytes(part) * gone
        if alone:
            for category in PASSING:
                if (name := self._largest(category)[0]) and is_behind(name):
                    found[name, category] -= self._largest(category)[1]
                    other, size = self._largest(category, behind=False)
                    found[other, category] = found.get((other, category), 0.0) + size
        passing = sum(size for (of, category), size in found.items() if category in PASSING)
        found["", "fragmentation"] = passing * self._lost
        return {part: size for part, size in found.items() if size}

    def _held(
        self, kept: np.ndarray, unread: np.ndarray, kind: int | None, *, made: bool = True
    ) -> HeldBy:
        """Bytes by block, given kept chunks and chunks whose weight gradients are still to come."""
        found: dict[tuple[str, MemoryCategory], float] = {}

        def add(block: str, category: MemoryCategory, size: float) -> None:
            if size:
                found[block, category] = found.get((block, category), 0.0) + size

        for name, (count, parts) in self._blocks.items():
            # Blocks behind the layers are in the last chunk, the others are spread over all chunks.
            at = slice(-1, None) if is_behind(name) else slice(None)
            chunks = 1 if is_behind(name) else len(kept)
            times = {
                "step": 1.0,
                "until_backward": float(kept[at].sum()) / chunks,
                "until_weight": float(unread[at].sum()) / chunks,
                "backward_to_weight": float((unread - kept)[at].sum()) / chunks,
            }
            for part in parts:
                if part.lifetime != "slot" and (made or part.category != "gradients"):
                    add(name, part.category, self._bytes(part) * count * times[part.lifetime])
            if self._split and kind == SlotKind.BACKWARD:
                add(name, "activations", self._growth(count, parts))
        if kind is not None:
            for category in PASSING:
                name, size = self._largest(category)
                add(name, category, size)
        add("", "communication", self._messages)
        passing = sum(size for (_, category), size in found.items() if category in PASSING)
        add("", "fragmentation", passing * self._lost)
        add("", "runtime", self._runtime)
        return found

    def _bytes(self, part: BlockPart) -> float:
        times = float(weight_of(self._overheads, part.weight)) * float(self._overheads.whole)
        return float(part.bytes) * times

    def _largest(self, category: MemoryCategory, *, behind: bool = True) -> tuple[str, float]:
        """The kind of block with the largest working set of a category, and its bytes.

        `behind`: also among blocks behind the layers.
        """
        sizes = {
            name: sum(
                self._bytes(part)
                for part in parts
                if part.lifetime == "slot" and part.category == category
            )
            for name, (_, parts) in self._blocks.items()
            if behind or not is_behind(name)
        }
        return max(sizes.items(), key=lambda one: one[1], default=("", 0.0))

    def _growth(self, count: int, parts: tuple[BlockPart, ...]) -> float:
        """Growth of finished blocks while a split backward slot runs, bytes."""

        def each(lifetime: str) -> float:
            return sum(self._bytes(part) for part in parts if part.lifetime == lifetime)

        return max(count - 1, 0) * max(each("backward_to_weight") - each("until_backward"), 0.0)
