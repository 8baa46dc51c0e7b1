"""Slots in the order of the schedule: each stage runs its next one once its message is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from trnbench.engines.execute.arithmetic import Flow, Numbers
from trnbench.engines.execute.passes import MESSAGE_BUFFERS
from trnbench.engines.execute.stage import Stage
from trnbench.engines.execute.traffic import Book
from trnbench.errors import unhandled
from trnbench.facts.records import State, field
from trnbench.program.ops import Phase
from trnbench.program.schedule import SlotKind, SlotOrder
from trnbench.program.tensor import element_bytes

BatchInputs: TypeAlias = Sequence[Mapping[str, Numbers]]
"""Whole tensors from outside, by name, for each micro-batch."""


class ExecutedPipeline(State, eq=False):
    """The stages of a model and the messages between them.

    Chunk c of stage s is part c * pp + s. `flow` is the format of tensors between parts; `seeds`
    are the gradients of every token's loss, and of those of further tokens.
    """

    order: SlotOrder
    stages: tuple[Stage, ...]
    book: Book
    flow: str
    flow_gradient: str
    seeds: tuple[float, ...]
    _forward: dict[tuple[int, int], Flow] = field(default_factory=dict)
    _backward: dict[tuple[int, int], Flow] = field(default_factory=dict)
    _buffers: set[tuple[int, Phase, bool, int]] = field(default_factory=set)

    def run(self, outside: BatchInputs) -> list[Flow]:
        """Run all slots of a step; return every token's losses, by micro-batch."""
        losses: list[Flow] = [()] * self.order.micro_batches
        done = [0] * self.order.pp
        total = self.order.slots_per_stage
        while any(count < total for count in done):
            before = sum(done)
            for stage in range(self.order.pp):
                while done[stage] < total and self._slot(stage, done[stage], outside, losses):
                    done[stage] += 1
            assert sum(done) > before, "the schedule waits for a message that nobody sends"
        return losses

    @property
    def _parts(self) -> int:
        return self.order.pp * self.order.vpp

    def _slot(self, number: int, slot: int, outside: BatchInputs, losses: list[Flow]) -> bool:
        """Run a slot if its message has arrived; return True if the slot ran."""
        at = number, slot
        micro_batch, chunk = int(self.order.micro_batch[at]), int(self.order.chunk[at])
        part, stage = chunk * self.order.pp + number, self.stages[number]
        key = part, micro_batch
        match SlotKind(int(self.order.kind[at])):
            case SlotKind.FORWARD:
                if part and key not in self._forward:
                    return False
                entering = self._forward.pop(key, ())
                made = stage.forward(chunk, micro_batch, entering, outside[micro_batch])
                if part + 1 == self._parts:
                    losses[micro_batch] = made
                    self._backward[key] = tuple(
                        np.full(loss.shape, seed, dtype=loss.dtype)
                        for loss, seed in zip(made, self.seeds, strict=True)
                    )
                else:
                    self._send("F", part, part + 1, made)
                    self._forward[part + 1, micro_batch] = made
            case SlotKind.BACKWARD:
                if key not in self._backward:
                    return False
                back = stage.backward(chunk, micro_batch, self._backward.pop(key))
                if part:
                    assert back
                    self._send("B_input", part, part - 1, back)
                    self._backward[part - 1, micro_batch] = back
            case SlotKind.WEIGHT:
                stage.weight(chunk, micro_batch)
            case unknown:
                unhandled(unknown, "pass of a stage to run")
        return True

    def _send(self, phase: Phase, source: int, target: int, flow: Flow) -> None:
        """Note messages; parts on the same stage hand on without one."""
        from_stage, to_stage = source % self.order.pp, target % self.order.pp
        if from_stage == to_stage:
            return
        size = element_bytes(self.flow if phase == "F" else self.flow_gradient)
        for number, numbers in enumerate(flow):
            elements = int(numbers[0].size)
            self.book.send(from_stage, to_stage, phase, elements, size)
            for stage, sends in ((from_stage, True), (to_stage, False)):
                if (stage, phase, sends, number) not in self._buffers:
                    self._buffers.add((stage, phase, sends, number))
                    room = MESSAGE_BUFFERS * elements * size
                    self.stages[stage].residency.hold("communication", room)
