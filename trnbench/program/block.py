"""A block: the operations of one layer (or end) of a model on one rank, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.program.backward import NO_BACKWARD, Backward, derive
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.keeping import NOTHING_KEPT, KeptTensors, keep, passing_bytes
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
from trnbench.program.optimizer import Bucket, StateBytes, buckets, state_bytes, synchronise
from trnbench.program.parameters import Parameter
from trnbench.program.tensor import Tensor, array, element_bytes, total_bytes
from trnbench.program.vocabulary import LOGITS_DIM

ResidentCategory = Literal[
    "weights", "gradients", "optimizer", "cache", "activations", "communication", "scratch"
]
Copies = Literal["gradient_copies", "gathered", "logits"]
"""What only software holds that is wasteful with it: a second set of gradients, in the weights'
format; tensors gathered from other ranks and kept; a further fp32 copy of the logits."""
Lifetime = Literal["step", "until_backward", "until_weight", "backward_to_weight", "slot"]
"""How long a resident stays: the whole step; from a micro-batch's forward pass until its input or
weight gradients are there; between those two; while one slot runs."""


class Resident(Record, eq=False):
    """Bytes that one instance of a block (or, with lifetime `slot`, any of a kind) occupies."""

    category: ResidentCategory
    bytes: FloatArray
    lifetime: Lifetime


class Passes(Record, eq=False):
    """A block's forward pass and its gradients, whatever is repeated and however states are cut.

    `recompute` is what is kept between the two; `passing` the bytes that live while they run.
    """

    forward: tuple[Operation, ...]
    backward: Backward
    recompute: str
    passing: FloatArray
    tied: str | None


class Block(Record, eq=False):
    """One instance of a block on one rank, with all its operations in order.

    `entering` and `leaving` are the tensors it takes from the block before and hands on;
    `entering_gradients`, by the name of what they are of, it hands back. `passes` is what the block
    was made from. `copies` are what some software holds beside the residents, once each.
    """

    kind: str
    ops: tuple[Operation, ...]
    entering: tuple[Tensor, ...]
    leaving: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter]
    gradients: Mapping[str, Tensor]
    entering_gradients: Mapping[str, Tensor]
    kept: KeptTensors
    buckets: tuple[Bucket, ...]
    residents: tuple[Resident, ...]
    copies: Mapping[Copies, Resident]
    passes: Passes

    def phase(self, *phases: Phase) -> tuple[Operation, ...]:
        """Return the operations of these phases, in order."""
        return tuple(op for op in self.ops if op.phase in phases)

    @property
    def collectives(self) -> tuple[CollectiveOp, ...]:
        """Its exchanges."""
        return tuple(op for op in self.ops if isinstance(op, CollectiveOp))

    @property
    def model_flop(self) -> FloatArray:
        """FLOP the model needs of one micro-batch over all ranks of a stage, no recompute."""
        return array(
            sum((op.model_flop for op in self.computing if op.phase != "recompute"), start=0.0)
        )

    def flop(self, *phases: Phase) -> FloatArray:
        """Return FLOP carried out for one micro-batch on one rank; all phases if none is named."""
        computing = (op for op in self.computing if not phases or op.phase in phases)
        return array(sum((op.flop * op.count for op in computing), start=0.0))

    @property
    def computing(self) -> tuple[MatMul | AttentionOp | ScanOp, ...]:
        """Its operations on a tensor unit: those whose FLOP count."""
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
"""Writes a block's forward pass; returns what enters and what leaves it."""


def lower(
    grid: Grid,
    kind: str,
    members: Mapping[str, Parameter],
    emit: Emit,
    *,
    recompute: str = "none",
    tied: str | None = None,
) -> Block:
    """Return a block: its forward pass as emitted, everything else derived from that.

    One of a model beside the trained one has no backward pass, and keeps nothing for it.
    """
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
        recompute=recompute,
        passing=_passing(forward, backward, kept, entering),
        tied=tied,
    )
    return _block(grid, kind, members, entering, leaving, passes, kept)


def varied(grid: Grid, block: Block, *, recompute: str | None = None) -> Block:
    """Return a block in another ZeRO stage, that of `grid`, with the same degrees.

    And in another recompute mode, if one is given.
    """
    passes, kept = block.passes, block.kept
    if recompute is not None and recompute != passes.recompute:
        kept = keep(passes.forward, passes.backward.ops, recompute)
        passing = _passing(passes.forward, passes.backward, kept, block.entering)
        passes = replace(passes, recompute=recompute, passing=passing)
    return _block(grid, block.kind, block.parameters, block.entering, block.leaving, passes, kept)


def _passing(
    forward: Sequence[Operation], backward: Backward, kept: KeptTensors, entering: Sequence[Tensor]
) -> FloatArray:
    """Return the most bytes that live at once in a pass, beside those that last."""
    lasting = {*kept.tensors, *backward.weights.values()}
    return array(
        np.maximum(
            passing_bytes(forward, lasting=lasting, entering=entering),
            passing_bytes(
                kept.ops,
                lasting=lasting,
                entering=backward.given,
                leaving=backward.inputs.values(),
            ),
        )
    )


def _block(
    grid: Grid,
    kind: str,
    members: Mapping[str, Parameter],
    entering: tuple[Tensor, ...],
    leaving: tuple[Tensor, ...],
    passes: Passes,
    kept: KeptTensors,
) -> Block:
    """Return a block from its passes, with the exchanges and the states of its ZeRO stage."""
    forward, backward = passes.forward, passes.backward
    of_block = buckets(
        grid,
        tuple(members.values()),
        backward.weights,
        quantised=_quantised(grid, forward),
        tied=passes.tied,
    )
    states = [state_bytes(grid, bucket) for bucket in of_block]
    exchanges = tuple(op for bucket in of_block for op in synchronise(grid, bucket))
    return Block(
        kind=kind,
        ops=(
            *(op for op in exchanges if op.phase == "F"),
            *forward,
            # A block through which nothing flows back does not gather its weights for that.
            *(op for op in exchanges if op.phase == "B_input" and kept.ops),
            *kept.ops,
            *(op for op in exchanges if op.phase in ("B_weight", "optimizer")),
        ),
        entering=entering,
        leaving=leaving,
        parameters=members,
        gradients=backward.weights,
        entering_gradients=backward.inputs,
        kept=kept,
        buckets=of_block,
        residents=_residents(grid, members, states, kept, passes.passing),
        copies=_copies(grid, states, kept, forward),
        passes=passes,
    )


def _quantised(grid: Grid, forward: Sequence[Operation]) -> frozenset[str]:
    """Return the names of the weights that linear layers read in their smaller format."""
    if not grid.recipe.quantised:
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
    states: Sequence[StateBytes],
    kept: KeptTensors,
    passing: FloatArray,
) -> tuple[Resident, ...]:
    fixed = (m.weight.bytes * m.held for m in members.values() if m.use == "fixed")

    for_weights = set(kept.for_weights)
    until_backward = tuple(tensor for tensor in kept.tensors if tensor not in for_weights)
    weights = sum((of.weights for of in states), start=0.0)
    gradients = sum((of.gradients for of in states), start=0.0)
    away = grid.optimizer_offload == "host"
    optimizer = 0.0 if away else sum((of.optimizer for of in states), start=0.0)
    gathered = sum((of.gathered for of in states), start=0.0)
    return (
        Resident(category="weights", bytes=array(sum(fixed, start=weights)), lifetime="step"),
        Resident(category="gradients", bytes=array(gradients), lifetime="step"),
        Resident(category="optimizer", bytes=array(optimizer), lifetime="step"),
        Resident(
            category="activations", bytes=total_bytes(until_backward), lifetime="until_backward"
        ),
        Resident(
            category="activations", bytes=total_bytes(kept.for_weights), lifetime="until_weight"
        ),
        Resident(
            category="activations", bytes=total_bytes(kept.waiting), lifetime="backward_to_weight"
        ),
        Resident(category="communication", bytes=array(gathered), lifetime="slot"),
        Resident(category="scratch", bytes=passing, lifetime="slot"),
    )


def _copies(
    grid: Grid, states: Sequence[StateBytes], kept: KeptTensors, forward: Sequence[Operation]
) -> Mapping[Copies, Resident]:
    recipe = grid.recipe
    smaller = element_bytes(recipe.weights) / element_bytes(recipe.gradients)
    gradients = sum((of.gradients for of in states), start=0.0)
    fetched = ((op.write.held_bytes - op.read.held_bytes) * (op.count > 0) for op in kept.fetched)
    logits = (
        tensor.elements * element_bytes(recipe.statistics)
        for op in forward
        if isinstance(op, MatMul)
        for tensor in op.writes
        if tensor.dims[-1].name == LOGITS_DIM
    )
    return {
        "gradient_copies": Resident(
            category="gradients", bytes=array(gradients * smaller), lifetime="step"
        ),
        "gathered": Resident(
            category="activations", bytes=array(sum(fetched, start=0.0)), lifetime="until_weight"
        ),
        "logits": Resident(
            category="scratch", bytes=array(sum(logits, start=0.0)), lifetime="slot"
        ),
    }
