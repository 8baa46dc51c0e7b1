"""A pipeline stage, its blocks by chunk, and the stages of a model in the order of the schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from trnbench.engines.execute.arithmetic import Arithmetic, Flow, Numbers
from trnbench.engines.execute.draws import Draws
from trnbench.engines.execute.exchange import Book, Exchanger
from trnbench.engines.execute.instance import BlockInstance, BlockPlan
from trnbench.engines.execute.kernels import Workshop
from trnbench.engines.execute.operations import MESSAGE_BUFFERS, Residency
from trnbench.engines.execute.shards import StageRanks
from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import State, field
from trnbench.facts.workload.recompute import repeated_layers
from trnbench.facts.workload.weights import DEPTH
from trnbench.program.blocks import EXCHANGED
from trnbench.program.ops import Phase
from trnbench.program.schedule import SlotKind, SlotOrder, splits_backward
from trnbench.program.stages import AGAIN, StageClass, is_behind
from trnbench.program.step import StepProgram
from trnbench.program.tensor import element_bytes

StagePart: TypeAlias = tuple[tuple[str, int], ...]
"""Blocks in the order data passes them: kind, and number of the layer (0 for an end)."""


def parts_of(program: StepProgram) -> tuple[tuple[StagePart, ...], ...]:
    """[stage][chunk] the blocks; chunk c of stage s is part c * pp + s of the model.

    A stage's layers are dealt out to its chunks as evenly as whole layers allow, more to the first.
    """
    pp, vpp = int(program.layout.pp), int(program.layout.vpp)
    transformer = program.model.transformer
    assert transformer is not None
    # A kind of layer whose experts are spread over ranks has a block of its own.
    kinds = [name if name in program.blocks else name + EXCHANGED for name in transformer.order]
    classes = [_class_of(program, number) for number in range(pp)]
    per_part = [
        [_layers(stage_class, chunk, vpp) for stage_class in classes] for chunk in range(vpp)
    ]
    made: list[list[StagePart]] = [[] for _ in range(pp)]
    again = repeated_layers(program.layout.recompute) or 0
    last = vpp * pp - 1
    layer = 0
    for chunk, row in enumerate(per_part):
        for s, count in enumerate(row):
            part = [
                (kinds[i] + AGAIN if i - layer < again else kinds[i], i)
                for i in range(layer, layer + count)
            ]
            layer += count
            place = chunk * pp + s
            depths = _depths(program, classes[s]) if chunk == vpp - 1 else ()
            first, head = [("embedding", 0)], [("head", 0)]
            made[s].append((*first[: place == 0], *part, *depths, *(head if place == last else ())))
    return tuple(tuple(parts) for parts in made)


def _layers(stage: StageClass, chunk: int, vpp: int) -> int:
    def count(blocks: Mapping[str, FloatArray]) -> int:
        return round(
            sum(
                float(n)
                for kind, n in blocks.items()
                if kind != "embedding" and not is_behind(kind)
            )
        )

    if stage.chunks:
        return count(stage.chunks[chunk])
    whole = count(stage.blocks)
    return whole // vpp + (chunk < whole % vpp)


def _depths(program: StepProgram, stage: StageClass) -> StagePart:
    """Depths of a stage; they are numbered on behind the layers."""
    transformer = program.model.transformer
    assert transformer is not None
    depths = [kind for kind in stage.blocks if kind.startswith(DEPTH) and stage.blocks[kind]]
    return tuple((kind, transformer.layers + i) for i, kind in enumerate(depths))


def _class_of(program: StepProgram, number: int) -> StageClass:
    for stage in program.stages:
        start = int(stage.index)
        if start <= number < start + int(stage.multiplicity):
            return stage
    raise AssertionError(f"no class of stages has number {number}")


class Stage:
    """The ranks of one pipeline stage with everything they hold; `parts` are its chunks."""

    def __init__(
        self,
        program: StepProgram,
        number: int,
        parts: tuple[StagePart, ...],
        arithmetic: Arithmetic,
        draws: Draws,
        book: Book,
    ) -> None:
        assert program.model.transformer is not None
        assert program.model.vocabulary is not None
        self.number = number
        self.residency = Residency()
        self.ranks = StageRanks(program)
        self.exchange = Exchanger(self.ranks, book, number)
        transformer = program.model.transformer
        names = transformer.layer_kinds

        def shop(kind: str) -> Workshop:
            """Arithmetic for the operations of a kind of block."""
            layer = kind.removesuffix(AGAIN).removesuffix(EXCHANGED)
            layer = transformer.order[-1] if layer.startswith(DEPTH) else layer
            own = transformer.of_kind(layer) if layer in names else transformer
            return Workshop(
                ranks=self.ranks,
                transformer=own,
                arithmetic=arithmetic,
                exchange=self.exchange,
                book=book,
            )

        split = splits_backward(program.layout.schedule)
        plans = {
            kind: BlockPlan(shop(kind), program.blocks[kind], split=split)
            for kind in dict.fromkeys(kind for part in parts for kind, _ in part)
        }
        # A stage with both ends of a model has one token table: the second reader borrows it.
        self._chunks: list[list[BlockInstance]] = []
        lender: BlockInstance | None = None
        for part in parts:
            chunk = []
            for kind, layer in part:
                instance = BlockInstance(plans[kind], layer, draws, self.residency, lender)
                lender = lender or (instance if instance.plan.lends else None)
                chunk.append(instance)
            self._chunks.append(chunk)

    @property
    def blocks(self) -> list[BlockInstance]:
        return [block for chunk in self._chunks for block in chunk]

    def forward(
        self, chunk: int, micro_batch: int, entering: Flow, outside: Mapping[str, Numbers]
    ) -> Flow:
        for block in self._chunks[chunk]:
            entering = block.run_forward(micro_batch, entering, outside)
        return entering

    def backward(self, chunk: int, micro_batch: int, gradients: Flow) -> Flow:
        for block in reversed(self._chunks[chunk]):
            gradients = block.run_backward(micro_batch, gradients)
        return gradients

    def weight(self, chunk: int, micro_batch: int) -> None:
        """Compute the weight gradients of a chunk, where they have slots of their own."""
        for block in reversed(self._chunks[chunk]):
            block.run_weight(micro_batch)


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
                if part + 1 == self.order.pp * self.order.vpp:
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
