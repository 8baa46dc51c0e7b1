"""A pipeline stage: its blocks by chunk, and the slots it runs."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.execute.arithmetic import Arithmetic, Flow, Numbers
from trnbench.engines.execute.block_plan import BlockPlan
from trnbench.engines.execute.draws import Draws
from trnbench.engines.execute.exchange import Exchanger
from trnbench.engines.execute.instance import BlockInstance
from trnbench.engines.execute.kernels import KernelSetting
from trnbench.engines.execute.operations import Workshop
from trnbench.engines.execute.parts import StagePart
from trnbench.engines.execute.passes import Residency
from trnbench.engines.execute.ranks import StageRanks
from trnbench.engines.execute.traffic import Book
from trnbench.facts.workload.weights import DEPTH
from trnbench.program.blocks import EXCHANGED
from trnbench.program.schedule import splits_backward
from trnbench.program.stages import AGAIN
from trnbench.program.step import StepProgram


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
            setting = KernelSetting(ranks=self.ranks, transformer=own, arithmetic=arithmetic)
            return Workshop(setting=setting, exchange=self.exchange, book=book)

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
        """All blocks of the stage, in the order of the model within each chunk."""
        return [block for chunk in self._chunks for block in chunk]

    def forward(
        self, chunk: int, micro_batch: int, entering: Flow, outside: Mapping[str, Numbers]
    ) -> Flow:
        """Activations that a chunk hands on."""
        for block in self._chunks[chunk]:
            entering = block.run_forward(micro_batch, entering, outside)
        return entering

    def backward(self, chunk: int, micro_batch: int, gradients: Flow) -> Flow:
        """Gradients of a chunk's inputs; none where the input was text."""
        for block in reversed(self._chunks[chunk]):
            gradients = block.run_backward(micro_batch, gradients)
        return gradients

    def weight(self, chunk: int, micro_batch: int) -> None:
        """Compute the weight gradients of a chunk, where they have slots of their own."""
        for block in reversed(self._chunks[chunk]):
            block.run_weight(micro_batch)
