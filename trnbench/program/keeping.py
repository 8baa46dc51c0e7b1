"""Tensors a block keeps from forward to backward pass, and those made or gathered again.

Recompute `none` keeps everything that the backward pass reads. `selective` keeps no tensor that
grows with the square of the sequence and repeats the attention core; fused attention has no such
tensors, so `selective` repeats nothing there. Module modes keep no output of their modules: each
operation runs again right before its reader. `full` keeps the block's input and repeats the whole
block. Tensors that an all-gather or a ring brought from other ranks are never kept, but fetched
again. Scan tensors that no kernel keeps, the states before chunks above all, are made again in
every mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import AttentionKernel
from trnbench.facts.workload.recompute import CORE, modules_of, without
from trnbench.program.ops import CollectiveOp, Elementwise, MatMul, Operation
from trnbench.program.precision import PrecisionRecipe
from trnbench.program.tensor import NOTHING, Tensor, array, element_bytes


class KeptTensors(Record, eq=False):
    """Tensors that outlive the forward pass, and the whole backward pass in order."""

    tensors: tuple[Tensor, ...]
    for_weights: tuple[Tensor, ...]  # those of `tensors` that weight gradients read
    waiting: tuple[Tensor, ...]  # left by input gradients for the weight gradients
    fetched: tuple[CollectiveOp, ...]  # all-gathers done again; some software keeps them instead
    ops: tuple[Operation, ...]  # backward pass, repeats included


NOTHING_KEPT = KeptTensors(tensors=(), for_weights=(), waiting=(), fetched=(), ops=())


def keep(
    forward: Sequence[Operation], backward: Sequence[Operation], recompute: str
) -> KeptTensors:
    """Tensors kept under a recompute mode, and the backward pass with its repeats."""
    # Order: what is made again, then what else the backward pass reads, then which of that came
    # from other ranks and is fetched again rather than kept.
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
    """Plainest recompute mode with the same program."""
    return without(recompute, CORE) if attention == "fused" else recompute


def _again(forward: Sequence[Operation], recompute: str) -> tuple[list[Operation], list[Operation]]:
    """Operations that are repeated as one group, and those repeated one by one.

    One by one: operations of modules whose output is dropped, and casts of that output.
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
    """Backward pass with each group of repeats before the first operation that needs it.

    Tensors gathered from other ranks are gathered from the repeated ones.
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

    # Recursive, as a repeated operation may read what another group makes again.
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
    """Backward pass that fetches remote tensors once more, and the local ones kept for that."""
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


def unfused_bytes(op: Operation, recipe: PrecisionRecipe) -> FloatArray:
    """Bytes kept beside the program's tensors where every function is a kernel of its own.

    A norm written out keeps an fp32 copy and the normalised tensor, a gate its activation, a
    softmax its result in fp32; every product of a cast input has a cast of its own.
    """
    narrow, wide = element_bytes(recipe.activations), element_bytes(recipe.statistics)
    match op:
        case Elementwise(function="norm") if len(op.reads) == 2:
            given, out = (element_bytes(one.format) for one in (op.reads[0], op.writes[0]))
            # What is normalised is kept for the gradient of the scale alone.
            scaled = 0.0 if op.reads[1].frozen else out
            return array(op.writes[0].elements * (wide + scaled - given))
        case Elementwise() if op.function.endswith("_gate") and not op.function.startswith("sig"):
            return array(op.writes[0].elements * narrow)
        case Elementwise(function="softmax"):
            return array(op.writes[0].elements * wide)
        case MatMul() if recipe.cached and op.format == recipe.linear:
            return array(op.terms[0].left.bytes * (len(op.terms) - 1))
    return NOTHING


def passing_bytes(
    ops: Sequence[Operation],
    *,
    lasting: Iterable[Tensor],
    entering: Iterable[Tensor] = (),
    leaving: Iterable[Tensor] = (),
) -> FloatArray:
    """Peak bytes that live while the operations run, lasting tensors left out.

    A tensor lives from the operation that writes it to the last that reads it; `leaving` tensors
    live to the end. An exchange that a layout does without hands its tensor on and takes no memory
    for a second one.
    """
    # A walk over the operations: add what each writes, take the peak, drop what it read last.
    ignored, stays = set(lasting), set(leaving)
    last = {read: i for i, op in enumerate(ops) for read in op.reads}
    dying: dict[int, list[Tensor]] = {}
    for tensor, i in last.items():
        dying.setdefault(i, []).append(tensor)
    for i, op in enumerate(ops):
        for tensor in op.writes:
            if tensor not in last:
                dying.setdefault(i, []).append(tensor)
    alive: dict[Tensor, FloatArray] = {}
    for tensor in entering:
        if tensor not in ignored:
            alive[tensor] = tensor.held_bytes
    total = sum(alive.values(), start=NOTHING)
    # `grown` saves array operations: without a new tensor the peak cannot rise.
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
        for tensor in dying.get(i, ()):
            if tensor in alive and tensor not in stays:
                total = total - alive.pop(tensor)
    return array(peak)
