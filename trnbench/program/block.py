"""A block: the operations of one layer (or end) of a model on one rank, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.program.backward import NO_BACKWARD, Backward, derive
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.keeping import (
    NOTHING_KEPT,
    KeptTensors,
    keep,
    passing_bytes,
    unfused_bytes,
)
from trnbench.program.ops import (
    AttentionOp,
    CollectiveOp,
    Elementwise,
    Gather,
    MatMul,
    Operation,
    Phase,
    ScanOp,
)
from trnbench.program.optimizer import Bucket, StateBytes, WeightBuckets, buckets
from trnbench.program.parameters import A, Parameter
from trnbench.program.stages import is_behind
from trnbench.program.tensor import (
    LOGITS_DIM,
    NOTHING,
    Tensor,
    array,
    element_bytes,
    total,
    total_bytes,
)

ResidentCategory = Literal[
    "weights", "gradients", "optimizer", "cache", "activations", "communication", "scratch"
]
Copies = Literal["gradient_copies", "gathered", "logits", "unfused", "adapter_inputs"]
"""Memory that only wasteful software holds: a second set of gradients in the weights' format;
gathered tensors that are kept; one more fp32 copy of the logits; what single kernels keep beside
the program's tensors; inputs of adapters in fp32."""
LOSS_CHUNKS = 8
"""Parts in which a chunked loss casts logits to fp32 (torchtune, CEWithChunkedOutputLoss)."""
KEPT = "activations"
_UNDER_WAY = 2  # one layer's tensors are sent or read while the next one's come or go
_UNTIL_BACKWARD = ("until_backward", "until_weight")
Lifetime = Literal["step", "until_backward", "until_weight", "backward_to_weight", "slot"]
"""Time a resident stays in memory: the whole step; from a micro-batch's forward pass until its
input or weight gradients are done; between those two; while one slot runs."""


class Resident(Record, eq=False, kw_only=False):
    """Bytes of one instance of a block on a rank; with lifetime `slot`, of all of its kind."""

    category: ResidentCategory
    bytes: FloatArray  # on one rank
    lifetime: Lifetime


class Passes(Record, eq=False):
    """Forward pass of a block and its gradients, equal in all ZeRO stages."""

    forward: tuple[Operation, ...]
    backward: Backward
    kept: KeptTensors
    entering: tuple[Tensor, ...]  # tensors from the block before
    recompute: str  # mode that decides what is kept between the passes
    tied: str | None  # weight that another block holds too

    @property
    def ops(self) -> tuple[Operation, ...]:
        return (*self.forward, *self.kept.ops)

    @cached_property
    def peak_bytes(self) -> FloatArray:
        """Peak bytes of tensors that live within one pass, forward or backward."""
        backward, kept = self.backward, self.kept
        lasting = {*kept.tensors, *backward.weights.values()}
        return array(
            np.maximum(
                passing_bytes(self.forward, lasting=lasting, entering=self.entering),
                passing_bytes(
                    kept.ops,
                    lasting=lasting,
                    entering=backward.given,
                    leaving=backward.inputs.values(),
                ),
            )
        )


NO_PASSES = Passes(
    forward=(), backward=NO_BACKWARD, kept=NOTHING_KEPT, entering=(), recompute="none", tied=None
)


class BlockMemory(Record, eq=False):
    """Memory of one instance of a block."""

    residents: tuple[Resident, ...]
    copies: Mapping[Copies, Resident]
    offloaded: Mapping[str, FloatArray]


class Block(Record, eq=False):
    """One instance of a block on one rank.

    Its operations and its memory are made at their first use: searches lower grids of which they
    need the one or the other.
    """

    kind: str
    grid: Grid
    leaving: tuple[Tensor, ...]  # tensors for the block after
    parameters: Mapping[str, Parameter]
    gradients: Mapping[str, Tensor]  # by the name of the weight
    entering_gradients: Mapping[str, Tensor]  # by the name of the tensor, for the block before
    passes: Passes
    held: WeightBuckets
    own: BlockMemory | None = None  # its memory, where that does not follow from the passes

    @cached_property
    def ops(self) -> tuple[Operation, ...]:
        """All operations in order: both passes, exchanges and updates of the weights."""
        kept = self.kept
        exchanges = self.held.synchronised
        return (
            *(op for op in exchanges if op.phase == "F"),
            *self.passes.forward,
            # A block through which nothing flows back does not gather its weights for that.
            *(op for op in exchanges if op.phase == "B_input" and kept.ops),
            *kept.ops,
            *(op for op in exchanges if op.phase in ("B_weight", "optimizer")),
        )

    @property
    def entering(self) -> tuple[Tensor, ...]:
        """Tensors from the block before."""
        return self.passes.entering

    @property
    def kept(self) -> KeptTensors:
        return self.passes.kept

    @cached_property
    def residents(self) -> tuple[Resident, ...]:
        if self.own is not None:
            return self.own.residents
        return tuple(map(_on_host, self._made)) if self._offloads else self._made

    @cached_property
    def copies(self) -> Mapping[Copies, Resident]:
        """Extra memory of some software, once each."""
        if self.own is not None:
            return self.own.copies
        if not self._offloads:
            return self._copied
        return {name: _on_host(one) for name, one in self._copied.items()}

    @cached_property
    def offloaded(self) -> Mapping[str, FloatArray]:
        """Bytes kept on the host, of residents and of copies."""
        if self.own is not None or not self._offloads:
            return {} if self.own is None else self.own.offloaded
        return {
            KEPT: total(one.bytes for one in self._made if _stays_kept(one)),
            **{name: one.bytes for name, one in self._copied.items() if _stays_kept(one)},
        }

    @property
    def _offloads(self) -> bool:
        # What the output block keeps is read again at once.
        return self.grid.activation_offload == "host" and not is_behind(self.kind)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return self.held.buckets

    @property
    def _states(self) -> StateBytes:
        return self.held.states(cached=self.passes.recompute != "full")

    @cached_property
    def _made(self) -> tuple[Resident, ...]:
        return _residents(self.grid, self.parameters, self._states, self.passes)

    @cached_property
    def _copied(self) -> Mapping[Copies, Resident]:
        return _copies(self.grid, self._states, self.passes)

    @property
    def without_updates(self) -> Block:
        """The block without the exchanges and updates of its weights."""
        return replace(self, held=WeightBuckets(grid=self.grid))

    def phase(self, *phases: Phase) -> tuple[Operation, ...]:
        return tuple(op for op in self.ops if op.phase in phases)

    @cached_property
    def collectives(self) -> tuple[CollectiveOp, ...]:
        return tuple(op for op in self.ops if isinstance(op, CollectiveOp))

    @property
    def model_flop(self) -> FloatArray:
        """FLOP a micro-batch needs over all ranks of a stage, without recompute."""
        return total(op.model_flop for op in self.computing if op.phase != "recompute")

    def flop(self, *phases: Phase) -> FloatArray:
        """FLOP one rank carries out for a micro-batch; in all phases if none is named."""
        computing = (op for op in self.computing if not phases or op.phase in phases)
        return total(op.flop * op.count for op in computing)

    @property
    def computing(self) -> tuple[MatMul | AttentionOp | ScanOp, ...]:
        """Operations on a tensor unit, whose FLOP count."""
        found: list[MatMul | AttentionOp | ScanOp] = []
        for op in self.ops:
            match op:
                case MatMul() | AttentionOp() | ScanOp():
                    found.append(op)
                case Elementwise() | Gather() | CollectiveOp():
                    pass
                case _:
                    unhandled(op, "count of its FLOP")
        return tuple(found)


Emit = Callable[[BlockBuilder], tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]
"""Writes a block's forward pass; returns the tensors that enter and those that leave."""


def lower(
    grid: Grid,
    kind: str,
    members: Mapping[str, Parameter],
    emit: Emit,
    *,
    recompute: str = "none",
    tied: str | None = None,
) -> Block:
    """Block with its forward pass as emitted, and everything else derived from that.

    A block of a model that is only passed forward has no backward pass and keeps no tensors.
    """
    # Only the forward pass is written by hand; gradients, recompute, exchanges of the optimizer and
    # memory follow from it by rule, so they cannot contradict it.
    builder = BlockBuilder(grid, {name: member.weight for name, member in members.items()})
    entering, leaving = emit(builder)
    members = {**members, **builder.adapters}
    forward = tuple(builder.ops)
    if grid.beside:
        backward, kept = NO_BACKWARD, NOTHING_KEPT
    else:
        backward = derive(grid, forward, outputs=leaving, inputs=entering)
        kept = keep(forward, backward.ops, recompute)
    passes = Passes(
        forward=forward,
        backward=backward,
        kept=kept,
        entering=entering,
        recompute=recompute,
        tied=tied,
    )
    return Block(
        kind=kind,
        grid=grid,
        leaving=leaving,
        parameters=members,
        gradients=backward.weights,
        entering_gradients=backward.inputs,
        passes=passes,
        held=_held(grid, members, passes),
    )


def varied(grid: Grid, block: Block, *, recompute: str | None = None) -> Block:
    """The same block in the ZeRO stages of `grid` and, if given, another recompute mode."""
    # ZeRO changes exchanges and states, recompute what is kept: the passes themselves stay.
    passes, held = block.passes, block.held
    if not np.array_equal(grid.zero, block.grid.zero):
        held = _held(grid, block.parameters, passes)
    if recompute is not None and recompute != passes.recompute:
        kept = keep(passes.forward, passes.backward.ops, recompute)
        passes = replace(passes, kept=kept, recompute=recompute)
    elif held is block.held:
        return block
    return replace(block, grid=grid, passes=passes, held=held, own=None)


def _held(grid: Grid, members: Mapping[str, Parameter], passes: Passes) -> WeightBuckets:
    own = tuple(members.values())
    quantised = _quantised(grid, passes.forward)
    found = buckets(grid, own, passes.backward.weights, quantised=quantised, tied=passes.tied)
    return WeightBuckets(grid=grid, buckets=found)


def _stays_kept(resident: Resident) -> bool:
    return resident.category == "activations" and resident.lifetime in _UNTIL_BACKWARD


def _on_host(resident: Resident) -> Resident:
    """A resident of a layer whose tensors are kept on the host: two layers' are under way."""
    if not _stays_kept(resident):
        return resident
    return replace(resident, lifetime="slot", bytes=array(_UNDER_WAY * resident.bytes))


def _quantised(grid: Grid, forward: Sequence[Operation]) -> frozenset[str]:
    """Names of the weights that linear layers read in the smaller format of the recipe."""
    if not (grid.recipe.quantised or grid.recipe.cached):
        return frozenset()
    return frozenset(
        term.right.name
        for op in forward
        if isinstance(op, MatMul) and op.format == grid.recipe.linear
        for term in op.terms
    )


def _residents(
    grid: Grid,
    members: Mapping[str, Parameter],
    states: StateBytes,
    passes: Passes,
) -> tuple[Resident, ...]:
    # Weights that are never trained are in no bucket of the optimizer.
    kept = passes.kept
    fixed = (m.weight.bytes * m.held for m in members.values() if m.use == "fixed")
    for_weights = set(kept.for_weights)
    until_backward = [tensor for tensor in kept.tensors if tensor not in for_weights]
    away = grid.optimizer_offload == "host"
    return (
        Resident("weights", array(sum(fixed, start=states.weights)), "step"),
        Resident("gradients", states.gradients, "step"),
        Resident("optimizer", NOTHING if away else states.optimizer, "step"),
        Resident("activations", total_bytes(until_backward), "until_backward"),
        Resident("activations", total_bytes(kept.for_weights), "until_weight"),
        Resident("activations", total_bytes(kept.waiting), "backward_to_weight"),
        Resident("communication", states.gathered, "slot"),
        Resident("scratch", passes.peak_bytes, "slot"),
    )


def _copies(grid: Grid, states: StateBytes, passes: Passes) -> Mapping[Copies, Resident]:
    recipe, kept = grid.recipe, passes.kept
    smaller = element_bytes(recipe.weights) / element_bytes(recipe.gradients)
    fetched = ((op.write.held_bytes - op.read.held_bytes) * (op.count > 0) for op in kept.fetched)
    # Logits of all tokens at once, of an eighth, or none.
    whole = {"full": 1.0, "chunked": 1 / LOSS_CHUNKS, "fused": 0.0}[grid.loss]
    logits = (
        tensor.elements * element_bytes(recipe.statistics) * whole
        for op in passes.forward
        if isinstance(op, MatMul)
        for tensor in op.writes
        if tensor.dims[-1].name == LOGITS_DIM
    )
    inputs = [
        op.terms[0].left
        for op in passes.forward
        if isinstance(op, MatMul) and op.terms[0].right.name.endswith(A)
    ]
    # In place of inputs that frozen layers share and attention does not keep.
    core = {out for op in passes.forward if isinstance(op, AttentionOp) for out in op.writes}
    adapted = total(one.elements * element_bytes(recipe.statistics) for one in inputs) - total(
        one.bytes for one in {*inputs} - core
    )
    # What is made again with its layer is there while that layer is gone through.
    again = passes.recompute == "full"
    category: ResidentCategory = "scratch" if again else "activations"
    until: Lifetime = "slot" if again else "until_backward"
    unfused = total(unfused_bytes(op, recipe) for op in passes.forward)
    return {
        "gradient_copies": Resident("gradients", array(states.gradients * smaller), "step"),
        "gathered": Resident("activations", total(fetched), "until_weight"),
        "logits": Resident("scratch", total(logits), "slot"),
        "unfused": Resident(category, unfused * bool(kept.ops), until),
        "adapter_inputs": Resident(category, np.maximum(adapted, 0.0), until),
    }
