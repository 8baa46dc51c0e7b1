"""Compute of a rank in each block of a step, operation by operation, as played."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from trnbench.engines.emulate.step.attention import attention_s
from trnbench.engines.emulate.step.rank import NO_RUN, BusyRun, Rank, Runs, in_turn
from trnbench.engines.emulate.step.streams import elementwise_run, gather_run, touched_run
from trnbench.engines.emulate.tensor_engine.matrix import MatrixRun, run_matrix
from trnbench.errors import GapError, InputError, unhandled
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import MEMORY, TENSOR, VECTOR
from trnbench.program.block import Block
from trnbench.program.grid import Grid
from trnbench.program.matrix import MatrixProduct
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
from trnbench.program.optimizer import is_on_host
from trnbench.program.slots import PASSES, ComputeCategory, has_experts, is_whole
from trnbench.program.step import StepProgram
from trnbench.program.tensor import Dim, element_bytes

BlockParts: TypeAlias = Mapping[tuple[Phase, ComputeCategory], BusyRun]
"""Compute of one instance of a block on a rank, by phase and category."""


class RankUse(Record):
    """Use of chips by ranks: cores of a rank (None: the usual number), ranks in use on a chip."""

    logical_size: int | None = None
    node_ranks: int | None = None


def rank_of(
    chip: Chip, efficiency: TrainingEfficiency, grid: Grid, use: RankUse, runs: Runs
) -> Rank | None:
    """Rank that plays a scalar program; None on chips that have no such cores."""
    if not isinstance(chip.unit, NeuronCores):
        return None
    gain = 1.0
    if use.node_ranks is not None:
        gain = chip.bandwidth_gain(use.node_ranks, use.logical_size)
    load = 1.0
    experts = efficiency.stack.experts
    if experts is not None:
        uneven = int(grid.ep) > 1 and grid.capacity_factor is None
        load = float(experts.compute) * (1 + float(experts.imbalance) * uneven)
    return Rank(
        chip=chip,
        unit=chip.unit,
        cores=chip.unit.cores_per_rank(use.logical_size),
        efficiency=efficiency.compute,
        memory_share=float(efficiency.chip.memory_share) * gain,
        expert_load=load,
        runs=runs,
    )


def computed(rank: Rank, program: StepProgram) -> Mapping[str, BlockParts]:
    """Played compute of a rank in each kind of block of a scalar program."""
    return {kind: _block(rank, block) for kind, block in program.blocks.items()}


def _block(rank: Rank, block: Block) -> BlockParts:
    scores = _score_shapes(block.ops)
    parts: dict[tuple[Phase, ComputeCategory], list[BusyRun]] = {}
    for op in block.ops:
        count = float(op.count)
        if isinstance(op, CollectiveOp) or is_on_host(op) or count == 0:
            continue
        if op.region == "experts":
            count *= rank.expert_load
        found = _played(rank, op, scores)
        if found is not None:
            category, run = found
            parts.setdefault((op.phase, category), []).append(run.times(count))
    computing = {phase for phase, _ in parts}
    # The fixed cost belongs to a pass through a whole block, not to an operation: recompute of
    # single modules has none.
    for phase in PASSES:
        if phase in computing and is_whole(block, phase):
            fixed_s = float(rank.efficiency.kernels.block_pass_s)
            if rank.efficiency.experts and has_experts(block, phase):
                fixed_s += float(rank.efficiency.experts.block_pass_s)
            parts[phase, "fixed"] = [BusyRun(time_s=fixed_s)]
    return {key: in_turn(runs) for key, runs in parts.items()}


def _played(
    rank: Rank, op: Operation, scores: frozenset[tuple[Dim, ...]]
) -> tuple[ComputeCategory, BusyRun] | None:
    """An operation's run and its category; None for an operation that is part of another's run."""
    kernels = rank.efficiency.kernels
    match op:
        case MatMul():
            run = _product_run(rank, op.product)
            if op.terms[0].out.dims in scores:
                run = in_turn((run, _touches(rank, op)))
            return ("attention" if op.region == "core" else "matrix"), run
        case AttentionOp():
            return "attention", attention_s(rank, op)
        case ScanOp():
            return "attention", in_turn([_product_run(rank, one) for one in op.products])
        case Elementwise():
            # Passes over the scores of unfused attention are part of the product that makes them.
            if any(tensor.dims in scores for tensor in (*op.reads, *op.writes)):
                return None
            update = op.phase == "optimizer"
            traffic = kernels.optimizer_traffic if update else kernels.elementwise_traffic
            return "element-wise", elementwise_run(rank, op, float(traffic))
        case Gather():
            return "gather", gather_run(rank, op)
        case CollectiveOp():
            raise GapError(op.op, "compute of a rank")
        case _:
            unhandled(op, "play of an operation")


def _product_run(rank: Rank, wanted: MatrixProduct) -> BusyRun:
    """A product's kernel on the cores of a rank."""
    product = rank.own(wanted)
    sizes = tuple(float(size) for size in (product.m, product.k, product.n, product.batch))
    formats = (product.format_a, product.format_b, product.format_out)

    def played() -> BusyRun:
        return _busy(run_matrix(product, rank.reached(product), cores=rank.cores))

    return rank.runs.of((sizes, formats, rank.cores, rank.memory_share), played)


def _busy(run: MatrixRun) -> BusyRun:
    if run.reasons:
        raise InputError("; ".join(run.reasons))
    share = run.utilization
    return BusyRun(
        time_s=run.time_s,
        busy={
            TENSOR: share["tensor"] * run.time_s,
            VECTOR: max(share["vector"], share["scalar"]) * run.time_s,
            MEMORY: share["dma 0"] * run.time_s,
        },
    )


def _touches(rank: Rank, op: MatMul) -> BusyRun:
    """All passes of unfused attention over the scores that a product makes."""
    kernels = rank.efficiency.kernels
    backward = op.phase in ("B_input", "B_weight")
    touches = kernels.score_touches_backward if backward else kernels.score_touches_forward
    scores = op.terms[0].out
    size = float(scores.bytes)
    return touched_run(rank, size / element_bytes(scores.format), size, float(touches))


def _score_shapes(ops: Iterable[Operation]) -> frozenset[tuple[Dim, ...]]:
    return frozenset(
        op.writes[0].dims for op in ops if isinstance(op, Elementwise) and op.region == "core"
    )


def as_runs(parts: Mapping[tuple[Phase, ComputeCategory], float]) -> BlockParts:
    """Compute that was not played, of which only the seconds are known."""
    return {key: BusyRun(time_s=seconds) if seconds else NO_RUN for key, seconds in parts.items()}
