"""A block: the operations of one layer (or end) of a model on one rank, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trnbench.program.backward import derive
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.keeping import Kept, keep, passing_bytes
from trnbench.program.ops import (
    Attention,
    CollectiveOp,
    MatMul,
    Operation,
    Phase,
)
from trnbench.program.optimizer import Bucket, StateBytes, buckets, state_bytes, synchronise
from trnbench.program.parameters import Parameter
from trnbench.program.tensor import FloatArray, Tensor, array, total_bytes
from trnbench.workload.layout import Recompute

Category = Literal["weights", "gradients", "optimizer", "activations", "communication", "scratch"]
Lifetime = Literal["step", "until_backward", "until_weight", "backward_to_weight", "slot"]
"""How long a resident stays: the whole step; from a micro-batch's forward pass until its input or
weight gradients are there; between those two; while one slot runs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resident:
    """Bytes that one instance of a block (or, with lifetime `slot`, any of a kind) occupies."""

    category: Category
    bytes: FloatArray
    lifetime: Lifetime


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """One instance of a block on one rank, with all its operations in order.

    `entering` and `leaving` are the tensors it takes from the block before and hands on;
    `entering_gradients`, by the name of what they are of, it hands back.
    """

    kind: str
    ops: tuple[Operation, ...]
    entering: tuple[Tensor, ...]
    leaving: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter]
    gradients: Mapping[str, Tensor]
    entering_gradients: Mapping[str, Tensor]
    kept: Kept
    buckets: tuple[Bucket, ...]
    residents: tuple[Resident, ...]

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
            sum((op.model_flop for op in self._computing if op.phase != "recompute"), start=0.0)
        )

    def flop(self, *phases: Phase) -> FloatArray:
        """Return FLOP carried out for one micro-batch on one rank; all phases if none is named."""
        computing = (op for op in self._computing if not phases or op.phase in phases)
        return array(sum((op.flop * op.count for op in computing), start=0.0))

    @property
    def _computing(self) -> tuple[MatMul | Attention, ...]:
        return tuple(op for op in self.ops if isinstance(op, MatMul | Attention))


Emit = Callable[[BlockBuilder], tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]
"""Writes a block's forward pass; returns what enters and what leaves it."""


def lower(
    grid: Grid,
    kind: str,
    members: Mapping[str, Parameter],
    emit: Emit,
    *,
    recompute: Recompute = "none",
    tied: str | None = None,
) -> Block:
    """Return a block: its forward pass as emitted, everything else derived from that."""
    builder = BlockBuilder(grid, {name: member.weight for name, member in members.items()})
    entering, leaving = emit(builder)
    forward = tuple(builder.ops)
    backward = derive(grid, forward, outputs=leaving, inputs=entering)
    kept = keep(forward, backward.ops, recompute)
    quantised = _quantised(grid, forward)
    of_block = buckets(
        grid, tuple(members.values()), backward.weights, quantised=quantised, tied=tied
    )
    exchanges = tuple(op for bucket in of_block for op in synchronise(grid, bucket))
    ops = (
        *(op for op in exchanges if op.phase == "F"),
        *forward,
        *(op for op in exchanges if op.phase == "B_input"),
        *kept.ops,
        *(op for op in exchanges if op.phase in ("B_weight", "optimizer")),
    )
    lasting = {*kept.tensors, *backward.weights.values()}
    passing = np.maximum(
        passing_bytes(forward, lasting=lasting, entering=entering),
        passing_bytes(kept.ops, lasting=lasting, entering=backward.given),
    )
    return Block(
        kind=kind,
        ops=ops,
        entering=entering,
        leaving=leaving,
        parameters=members,
        gradients=backward.weights,
        entering_gradients=backward.inputs,
        kept=kept,
        buckets=of_block,
        residents=_residents(grid, members, of_block, kept, array(passing)),
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
    of_block: Sequence[Bucket],
    kept: Kept,
    passing: FloatArray,
) -> tuple[Resident, ...]:
    states = [state_bytes(grid, bucket) for bucket in of_block]
    fixed = (m.weight.bytes * m.held for m in members.values() if not m.trained)

    def state(category: Literal["weights", "gradients", "optimizer", "gathered"]) -> FloatArray:
        return array(sum((_part(of, category) for of in states), start=0.0))

    for_weights = set(kept.for_weights)
    until_backward = tuple(tensor for tensor in kept.tensors if tensor not in for_weights)
    weights = array(sum(fixed, start=state("weights")))
    return (
        Resident(category="weights", bytes=weights, lifetime="step"),
        Resident(category="gradients", bytes=state("gradients"), lifetime="step"),
        Resident(category="optimizer", bytes=state("optimizer"), lifetime="step"),
        Resident(
            category="activations", bytes=total_bytes(until_backward), lifetime="until_backward"
        ),
        Resident(
            category="activations", bytes=total_bytes(kept.for_weights), lifetime="until_weight"
        ),
        Resident(
            category="activations",
            bytes=total_bytes(kept.waiting),
            lifetime="backward_to_weight",
        ),
        Resident(category="communication", bytes=state("gathered"), lifetime="slot"),
        Resident(category="scratch", bytes=passing, lifetime="slot"),
    )


def _part(
    of: StateBytes, category: Literal["weights", "gradients", "optimizer", "gathered"]
) -> FloatArray:
    part: FloatArray = getattr(of, category)
    return part
