"""Training steps: micro-batches through the pipeline, gradient sums, clipping, the update.

The program is carried out with real numbers, to prove that it trains the model it says, and that
its counts of FLOP, bytes and memory are those of a run.

    Text ---> whole tensors of a micro-batch
                 |
    pipeline     |   slots in the order of the schedule
                 v
    Stage 0 --messages--> Stage 1 --> ... --> loss
      |                                         |
      |  BlockInstance     weights, kept tensors|  gradients come back the same way
      |    passes          operations in order  |
      |    operations      -> kernels, attention, scans, exchange
      v
    BucketState            gradients summed, clipped, updated, published (ZeRO slices)

All ranks of a stage are computed at once: the first dimension of every array is the rank. A cut
dimension has a rank's own part, and a collective is a sum or a joint along the ranks of a group.

    x[rank, batch, token, hidden]      tp = 2, dp = 2: ranks 0 1 | 2 3
    all-reduce along tp                x.reshape(2, 2, 1, ...).sum(axis=1), given back to both

What must not depend on the layout is drawn for whole weights: first values and the noise of
stochastic rounding (`draws`). So two layouts of one recipe differ by the order of sums alone, and
with `exact` (float64 throughout) they agree to rounding of float64.

A step is: forward and backward slots; sums inside a stage, of tied weights, over replicas; the norm
of all gradients; AdamW; gathering of weights. Every exchange is written into `book`, every byte
held into each stage's `residency`, and both are compared with the program's own counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np
from threadpoolctl import ThreadpoolController

from trnbench.engines.execute.arithmetic import Arithmetic, Numbers
from trnbench.engines.execute.draws import Draws, Text, number_of
from trnbench.engines.execute.exchange import Book, Message
from trnbench.engines.execute.instance import BlockInstance
from trnbench.engines.execute.optimizer import AdamW, BucketState, share_kept
from trnbench.engines.execute.stage import ExecutedPipeline, Stage, parts_of
from trnbench.facts.records import Record
from trnbench.program.ends import TOKEN_TABLE
from trnbench.program.ops import CollectiveOp
from trnbench.program.schedule import slot_order
from trnbench.program.step import StepProgram
from trnbench.program.tensor import element_bytes

Held: TypeAlias = tuple[BlockInstance, BucketState]
WeightName: TypeAlias = tuple[str, int]  # A weight and the number of its layer
WITHIN_STAGE = ("tp", "kv_copies")
MTP_SHARE = 0.1
"""Of the losses of further tokens together, beside the next token's (mtp_loss_scaling_factor of
Megatron-LM)."""
WORLD = -1  # The stage of an exchange of all ranks
KEPT_FREE_BYTES = 31 << 20
"""An array of this size is made and freed before the first step: from then on glibc keeps freed
memory to give it out again, where the system would clear each page of every larger array anew."""


class TrainingRun(Record):
    """Settings of a training: the text, the optimizer, the seed of first weights and rounding.

    `exact`: compute in float64 throughout, whatever the recipe says.
    """

    text: Text
    optimizer: AdamW
    seed: int = 0
    exact: bool = False


class Trainer:
    """A model on emulated ranks, in a program's layout; ask `problems` first."""

    def __init__(self, program: StepProgram, run: TrainingRun) -> None:
        layout = program.layout
        self.program = program
        self.run = run
        self.steps_done = 0
        self.arithmetic = Arithmetic(recipe=program.recipe, exact=run.exact)
        self._threads = ThreadpoolController()
        # Freed at once: see `KEPT_FREE_BYTES`.
        np.empty(KEPT_FREE_BYTES, dtype=np.uint8)
        ranks = int(program.grid.ranks_per_stage)
        self.book = Book(world=ranks * int(layout.pp), ranks_per_stage=ranks)
        transformer = program.model.transformer
        assert transformer is not None
        draws = Draws(seed=run.seed, layers=transformer.layers)
        self.stages = tuple(
            Stage(program, number, parts, self.arithmetic, draws, self.book)
            for number, parts in enumerate(parts_of(program))
        )
        order = slot_order(
            layout.schedule,
            pp=int(layout.pp),
            vpp=int(layout.vpp),
            micro_batches=int(program.micro_batches),
        )
        head = program.blocks["head"]
        flow = head.entering[0]
        self._pipeline = ExecutedPipeline(
            order=order,
            stages=self.stages,
            book=self.book,
            flow=flow.format,
            flow_gradient=head.entering_gradients[flow.name].format,
            seeds=tuple(
                share / self.tokens
                for share in (1.0, *[MTP_SHARE / max(self.depths, 1)] * self.depths)
            ),
        )

    @property
    def depths(self) -> int:
        return self.program.model.mtp_depths

    @property
    def tokens(self) -> int:
        return int(self.program.layout.global_batch * self.program.layout.sequence)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def step(self) -> float:
        """Train one step; return its mean loss a token, before the update: NaN if it diverged."""
        # Products of a few hundred rows take longer when threads share them, and sums would depend
        # on how many there are.
        with self._threads.limit(limits=1, user_api="blas"):
            loss = self._pass()
            share = self._clipped()
            for block, state in self.states():
                noise = partial(block.noise, state, self.steps_done)
                state.update(self.run.optimizer, self.steps_done, share, noise)
                state.publish(block.plan.publication(state.shape.axis, state.shape.shard))
        self.steps_done += 1
        return loss

    def gradients(self) -> tuple[float, Mapping[WeightName, Numbers]]:
        """Mean loss of the next step and every whole weight's gradient; no update."""
        loss = self._pass()
        found = self._by_weight(
            (block, state, state.whole_sums()) for block, state in self.states()
        )
        for _, state in self.states():
            state.clear()
        return loss, found

    def _pass(self) -> float:
        losses = self._pipeline.run(self._texts())
        # The loss needs no gradients; the sums are made here because a step and a look at the
        # gradients both want them.
        self._synchronise()
        # Tensor-parallel ranks hold the same losses.
        tp = int(self.program.layout.tp)
        return sum(float(loss[0][::tp].sum(dtype=np.float64)) for loss in losses) / self.tokens

    def _texts(self) -> list[dict[str, Numbers]]:
        layout = self.program.layout
        length = int(layout.sequence)
        text = self.run.text.batch(self.steps_done, int(layout.global_batch), length + self.depths)
        rows = int(layout.dp * layout.micro_batch)
        whole: Numbers = text.astype(np.int64)
        return [
            {
                f"{name}{f'.{depth}' if depth else ''}": whole[i : i + rows, start : start + length]
                for depth in range(self.depths + 1)
                for name, start in (("tokens", depth), ("targets", depth + 1))
            }
            for i in range(0, len(whole), rows)
        ]

    def states(self) -> Iterator[Held]:
        """Yield every bucket of every block, stage by stage."""
        for stage in self.stages:
            for block in stage.blocks:
                for state in block.states:
                    yield block, state

    def weights(self) -> Mapping[WeightName, Numbers]:
        return self._by_weight(
            (block, state, state.whole()["weights"]) for block, state in self.states()
        )

    def _by_weight(
        self, flats: Iterable[tuple[BlockInstance, BucketState, Numbers]]
    ) -> Mapping[WeightName, Numbers]:
        whole: dict[WeightName, Numbers] = {}
        for block, state, flat in flats:
            start = 0
            for name, span in state.shape.spans.items():
                shape = [int(dim.whole) for dim in span.weight.dims]
                own = flat[start : start + prod(shape)].reshape(shape)
                whole[name, number_of(name, block.layer)] = own
                start += prod(shape)
        return whole

    # The end of a step

    def _synchronise(self) -> None:
        # Ranks of a stage first, then both ends of the pipeline, then replicas: each sum takes what
        # the one before has completed.
        for block, state in self.states():
            for axis in WITHIN_STAGE:
                op = block.plan.exchange("optimizer", state.shape.axis, axis)
                if op is not None:
                    state.sum_within_stage(op)
        self._sum_tied()
        for block, state in self.states():
            axis = state.shape.axis
            state.reduce(block.plan.exchange("optimizer", axis, state.shape.shard))
            state.sum_copies(block.plan.exchange("optimizer", axis, "copies"))

    def _sum_tied(self) -> None:
        """Sum the gradients of a vocabulary that the first and the last stage both hold."""
        both = [
            (op, state)
            for block, state in self.states()
            if (op := block.plan.exchange("optimizer", state.shape.axis, "tied")) is not None
        ]
        if not both:
            return
        first, last = (state.gradients_at(state.shape.tied) for _, state in both)
        total = self.arithmetic.store(first + last, self.program.recipe.reduction)
        for _, state in both:
            state.put_gradients(state.shape.tied, total)
        self._note(both[0][0], total[0])

    def _clipped(self) -> float:
        """Factor of gradients, from the norm of all of them."""
        total = np.float64(0)
        for block, state in self.states():
            # The second copy of a shared vocabulary counts once.
            copy = block.plan.block.kind != "embedding" and TOKEN_TABLE in state.shape.spans
            left_out = state.shape.tied if copy else state.shape.tied[:0]
            total += state.squares(left_out).sum()
        for op in self.program.closing:
            self._note(op, np.asarray(total))
        statistics = self.arithmetic.store(np.array([total]), self.program.recipe.statistics)
        return share_kept(float(statistics[0]), self.run.optimizer)

    def _note(self, op: CollectiveOp, numbers: Numbers) -> None:
        """Write down an exchange between stages of what one rank holds."""
        assert numbers.size == int(op.read.elements), op.name
        self.book.collective(
            Message(
                op=op.op,
                axis=op.axis,
                phase=op.phase,
                stage=WORLD,
                elements=numbers.size,
                element_bytes=element_bytes(op.read.format),
                group=(int(op.ranks), 1),
            )
        )
