"""What a block keeps from its forward to its backward pass, what it computes or gathers again.

Recompute `none` keeps all that the backward pass reads. `selective` keeps nothing that grows with
the square of the sequence and runs the attention core again; fused attention has no such tensors,
so nothing is left to repeat. `full` keeps the block's input and runs the whole block again. What
an all-gather or a ring brought from other ranks is never kept: it is fetched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.errors import unhandled
from trnbench.program.ops import CollectiveOp, Operation
from trnbench.program.tensor import Tensor, array
from trnbench.workload.layout import AttentionKernel, Recompute


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptTensors:
    """Tensors that outlive the forward pass, and the whole backward pass in order.

    `for_weights` are those of them that weight gradients read, `waiting` what the input gradients
    leave for the weight gradients.
    """

    tensors: tuple[Tensor, ...]
    for_weights: tuple[Tensor, ...]
    waiting: tuple[Tensor, ...]
    ops: tuple[Operation, ...]


def keep(
    forward: Sequence[Operation], backward: Sequence[Operation], recompute: Recompute
) -> KeptTensors:
    """Return the tensors kept under a recompute mode, and the backward pass with its repeats."""
    again = _again(forward, recompute)
    produced = {tensor for op in again for tensor in op.writes} - _escaping(forward, again)
    repeated = [replace(op, phase="recompute") for op in again]
    needed = _needed([*repeated, *backward], produced)
    ops = _insert(repeated, backward, produced)
    fetched = {
        op.write: op
        for op in forward
        if isinstance(op, CollectiveOp) and (op.op == "all-gather" or op.ring)
    }
    ops, kept = _fetch_again(ops, needed, fetched)
    for_weights = [op for op in ops if op.phase == "B_weight"]
    weight_reads = dict.fromkeys(read for op in for_weights for read in op.reads)
    made_there = {tensor for op in for_weights for tensor in op.writes}
    waiting = (
        read
        for read in weight_reads
        if read.role != "weight" and read not in made_there and read not in kept
    )
    return KeptTensors(
        tensors=kept,
        for_weights=tuple(tensor for tensor in kept if tensor in weight_reads),
        waiting=tuple(waiting),
        ops=tuple(ops),
    )


def recompute_that_runs(recompute: Recompute, attention: AttentionKernel) -> Recompute:
    """Return the plainest recompute mode with the same program."""
    return "none" if recompute == "selective" and attention == "fused" else recompute


def _again(forward: Sequence[Operation], recompute: Recompute) -> list[Operation]:
    match recompute:
        case "none":
            return []
        case "selective":
            return [op for op in forward if op.region == "core"]
        case "full":
            return list(forward)
        case _:
            unhandled(recompute, "operations that it repeats")


def _escaping(forward: Sequence[Operation], again: Sequence[Operation]) -> set[Tensor]:
    """Return the tensors that operations outside the repeated ones read."""
    inside = set(map(id, again))
    return {read for op in forward if id(op) not in inside for read in op.reads}


def _needed(ops: Iterable[Operation], produced: set[Tensor]) -> tuple[Tensor, ...]:
    reads = (read for op in ops for read in op.reads)
    return tuple(
        dict.fromkeys(
            read
            for read in reads
            if read.role in ("activation", "constant") and read not in produced
        )
    )


def _insert(
    repeated: Sequence[Operation], backward: Sequence[Operation], produced: set[Tensor]
) -> list[Operation]:
    """Return the backward pass with the repeated operations before the first that needs them."""
    for i, op in enumerate(backward):
        if any(read in produced for read in op.reads):
            return [*backward[:i], *repeated, *backward[i:]]
    return list(backward)


def _fetch_again(
    ops: Sequence[Operation], needed: Sequence[Tensor], fetched: dict[Tensor, CollectiveOp]
) -> tuple[list[Operation], tuple[Tensor, ...]]:
    """Replace what came from other ranks by what a rank had itself, and fetch it once more."""
    kept = [fetched[tensor].read if tensor in fetched else tensor for tensor in needed]
    there: set[Tensor] = set()
    result: list[Operation] = []
    wanted = set(needed)
    for op in ops:
        for read in op.reads:
            if read in fetched and read in wanted and read not in there:
                there.add(read)
                result.append(replace(fetched[read], phase=op.phase))
        result.append(op)
    return result, tuple(dict.fromkeys(kept))


def passing_bytes(
    ops: Sequence[Operation], *, lasting: Iterable[Tensor], entering: Iterable[Tensor] = ()
) -> FloatArray:
    """Return the most bytes that live at once while the operations run, beside lasting tensors.

    A tensor lives from the operation that writes it to the last that reads it. An exchange that a
    layout does without hands its tensor on and takes no memory for a second one.
    """
    ignored = set(lasting)
    last = {read: i for i, op in enumerate(ops) for read in op.reads}
    dying: dict[int, list[Tensor]] = {}
    for tensor, i in last.items():
        dying.setdefault(i, []).append(tensor)
    alive: dict[Tensor, FloatArray] = {}
    for tensor in entering:
        if tensor not in ignored:
            alive[tensor] = tensor.held_bytes
    total = array(sum(alive.values(), start=np.zeros(())))
    peak = total
    for i, op in enumerate(ops):
        for tensor in op.writes:
            if tensor in alive or tensor in ignored or tensor.role == "weight":
                continue
            alive[tensor] = tensor.held_bytes
            total = array(total + alive[tensor])
        absent = np.zeros(())
        if isinstance(op, CollectiveOp) and op.read in alive:
            absent = alive[op.read] * (op.count == 0)
        peak = np.maximum(peak, total - absent)
        for tensor in (*dying.get(i, ()), *(t for t in op.writes if t not in last)):
            if tensor in alive:
                total = array(total - alive.pop(tensor))
    return peak
