"""What a block keeps from its forward to its backward pass, what it computes or gathers again.

Recompute `none` keeps all that the backward pass reads. `selective` keeps nothing that grows with
the square of the sequence and runs the attention core again; fused attention has no such tensors,
so nothing is left to repeat. Of the other modules nothing that they put out is kept: each operation
runs again right before what reads it. `full` keeps the block's input and runs the whole block
again. What an all-gather or a ring brought from other ranks is never kept: it is fetched again.
What no kernel keeps of a scan, the states before its chunks above all, is made again in every mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import AttentionKernel
from trnbench.facts.workload.recompute import CORE, modules_of, without
from trnbench.program.ops import CollectiveOp, Elementwise, MatMul, Operation
from trnbench.program.tensor import Tensor, array


class KeptTensors(Record, eq=False):
    """Tensors that outlive the forward pass, and the whole backward pass in order.

    `for_weights` are those of them that weight gradients read, `waiting` what the input gradients
    leave for the weight gradients. `fetched` are the all-gathers that the backward pass does again:
    who keeps their tensors instead holds so much more.
    """

    tensors: tuple[Tensor, ...]
    for_weights: tuple[Tensor, ...]
    waiting: tuple[Tensor, ...]
    fetched: tuple[CollectiveOp, ...]
    ops: tuple[Operation, ...]


NOTHING_KEPT = KeptTensors(tensors=(), for_weights=(), waiting=(), fetched=(), ops=())


def keep(
    forward: Sequence[Operation], backward: Sequence[Operation], recompute: str
) -> KeptTensors:
    """Return the tensors kept under a recompute mode, and the backward pass with its repeats."""
    together, alone = _again(forward, recompute)
    again = [*together, *alone]
    made_again = {tensor for op in again for tensor in op.writes}
    # What the core hands on is kept; of a scan and of modules all that is made again is dropped,
    # whoever reads it.
    states = (op for op in together if op.region == "states")
    dropped = {tensor for op in (*states, *alone) for tensor in op.writes}
    produced = made_again - (_escaping(forward, again) - dropped)
    made = {tensor for op in backward for tensor in op.writes}
    fetched = {
        op.write: op
        for op in forward
        if isinstance(op, CollectiveOp) and (op.op == "all-gather" or op.ring)
    }
    ops = _insert([together, *([op] for op in alone)], backward, produced, fetched)
    repeated = [op for op in ops if op.phase == "recompute"]
    needed = _needed([*repeated, *backward], produced | made)
    ops, kept = _fetch_again(ops, needed, fetched)
    kept = tuple(tensor for tensor in kept if tensor not in produced)
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
        fetched=tuple(
            op
            for tensor, op in fetched.items()
            if tensor in needed and op.op == "all-gather" and op.read not in produced
        ),
        ops=tuple(ops),
    )


def recompute_that_runs(recompute: str, attention: AttentionKernel) -> str:
    """Return the plainest recompute mode with the same program."""
    return without(recompute, CORE) if attention == "fused" else recompute


def _again(forward: Sequence[Operation], recompute: str) -> tuple[list[Operation], list[Operation]]:
    """Return what runs again together, and what runs again each alone.

    Alone are the operations of modules whose output is dropped, and casts of that.
    """
    if recompute == "full":
        return list(forward), []
    modules = modules_of(recompute)
    regions = ("core", "states") if CORE in modules else ("states",)
    alone: list[Operation] = []
    dropped: set[Tensor] = set()
    for op in forward:
        of_module = isinstance(op, (MatMul, Elementwise)) and op.module in modules
        cast = isinstance(op, Elementwise) and op.function == "cast" and op.reads[0] in dropped
        if of_module or cast:
            alone.append(op)
            dropped.update(op.writes)
    return [op for op in forward if op.region in regions], alone


def _escaping(forward: Sequence[Operation], again: Sequence[Operation]) -> set[Tensor]:
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
    groups: Sequence[Sequence[Operation]],
    backward: Sequence[Operation],
    produced: set[Tensor],
    fetched: Mapping[Tensor, CollectiveOp],
) -> list[Operation]:
    """Return the backward pass with each group of repeats before the first that needs it.

    What was gathered from others is gathered from what is made again.
    """
    maker = {
        tensor: number
        for number, group in enumerate(groups)
        for op in group
        for tensor in op.writes
        if tensor in produced
    }
    begun: set[int] = set()
    result: list[Operation] = []

    def emit(op: Operation) -> None:
        for read in op.reads:
            gathered = read in fetched and read not in produced
            number = maker.get(fetched[read].read if gathered else read)
            if number is not None and number not in begun:
                begun.add(number)
                for again in groups[number]:
                    emit(replace(again, phase="recompute"))
        result.append(op)

    for op in backward:
        emit(op)
    return result


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
    ops: Sequence[Operation],
    *,
    lasting: Iterable[Tensor],
    entering: Iterable[Tensor] = (),
    leaving: Iterable[Tensor] = (),
) -> FloatArray:
    """Return the most bytes that live at once while the operations run, beside lasting tensors.

    A tensor lives from the operation that writes it to the last that reads it. An exchange that a
    layout does without hands its tensor on and takes no memory for a second one. What is `leaving`
    lives to the end.
    """
    ignored, stays = set(lasting), set(leaving)
    last = {read: i for i, op in enumerate(ops) for read in op.reads}
    dying: dict[int, list[Tensor]] = {}
    for tensor, i in last.items():
        dying.setdefault(i, []).append(tensor)
    alive: dict[Tensor, FloatArray] = {}
    for tensor in entering:
        if tensor not in ignored:
            alive[tensor] = tensor.held_bytes
    total = sum(alive.values(), start=np.zeros(()))
    peak, grown = total, False
    for i, op in enumerate(ops):
        for tensor in op.writes:
            if tensor in alive or tensor in ignored or tensor.role == "weight":
                continue
            size = tensor.held_bytes
            if isinstance(op, CollectiveOp) and op.read in ignored:
                size = array(size * (op.count > 0))
            alive[tensor] = size
            total, grown = total + size, True
        if isinstance(op, CollectiveOp) and op.read in alive:
            peak = np.maximum(peak, total - alive[op.read] * (op.count == 0))
            grown = True
        elif grown:
            peak, grown = np.maximum(peak, total), False
        for tensor in (*dying.get(i, ()), *(t for t in op.writes if t not in last)):
            if tensor in alive and tensor not in stays:
                total = total - alive.pop(tensor)
    return array(peak)
