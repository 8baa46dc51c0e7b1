"""Compute of a rank in each block of a step, operation by operation, as played.

Fused attention. The stream says how time varies with sequence, heads, their sizes, the mask and the
cores of a rank. Which part of the peak a stack's kernel reaches over long sequences, and what a
call and a head cost besides, is software: the calibration's numbers, as for the closed form. So the
stream takes as many times longer as the published kernel is faster than the stack's over one long
sequence.

Passes over memory. A core's part of a pass is cut into tiles of all partitions. Two tiles have
room: while one is worked on, DMA engines load the next and store the one before, in the order in
which transfers become ready. A pass of one tensor runs on the scalar engine, one of several on the
vector engine, an instruction for each further tensor. Once tiles follow each other at an even pace,
the rest of them is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from trnbench.engines.emulate.attention.run import AttentionRun, run_attention
from trnbench.engines.emulate.step.rank import NO_RUN, BusyRun, Rank, Runs, in_turn
from trnbench.engines.emulate.tensor_engine.matrix import MatrixRun, run_matrix
from trnbench.errors import GapError, InputError, unhandled
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.records import Record
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.machine.costs import single_kernels
from trnbench.machine.costs.instructions import MEMORY, TENSOR, VECTOR, TransferCost
from trnbench.machine.tiling.attention import AttentionCall
from trnbench.program import ops
from trnbench.program.block import Block
from trnbench.program.grid import Grid
from trnbench.program.matrix import MatrixProduct
from trnbench.program.optimizer import is_on_host
from trnbench.program.slots import PASSES, ComputeCategory, has_experts, is_whole
from trnbench.program.step import StepProgram
from trnbench.program.tensor import Dim, element_bytes

TILES_IN_TURN = 2  # One tile fills while the other is read, as in the kernels of products
_EVEN = 1e-9
_SETTLED = 4  # Tiles at an even pace before the rest is taken to follow at it, too


class StreamPass(Record):
    """A core's part of a pass: elements of its widest tensor, bytes moved, instructions a tile."""

    elements: float
    loaded_bytes: float
    stored_bytes: float
    loads: int
    stores: int
    instructions: int


def elementwise_run(rank: Rank, op: ops.Elementwise, traffic: float) -> BusyRun:
    """A pass of a rank; `traffic` of its bytes move, as passes are joined."""
    if op.view or not float(op.bytes):
        return BusyRun()
    tensors = (*op.reads, *op.writes)
    widest = max(tensors, key=lambda tensor: float(tensor.bytes) / element_bytes(tensor.format))
    loaded = sum(float(tensor.bytes) for tensor in op.reads) * traffic
    stored = sum(float(tensor.bytes) for tensor in op.writes) * traffic
    return stream(
        rank,
        StreamPass(
            elements=float(widest.bytes) / element_bytes(widest.format) / rank.cores,
            loaded_bytes=loaded / rank.cores,
            stored_bytes=stored / rank.cores,
            loads=len(op.reads),
            stores=len(op.writes),
            instructions=max(len(op.reads) - 1, len(op.writes), 1),
        ),
    )


def touched_run(rank: Rank, elements: float, size_bytes: float, touches: float) -> BusyRun:
    """Run of repeated touches of a tensor of a rank, each of them a read or a write."""
    if touches <= 0:
        return BusyRun()
    passes = touches / 2
    one = StreamPass(
        elements=elements / rank.cores,
        loaded_bytes=size_bytes / rank.cores,
        stored_bytes=size_bytes / rank.cores,
        loads=1,
        stores=1,
        instructions=1,
    )
    return stream(rank, one).times(passes)


def gather_run(rank: Rank, op: ops.Gather) -> BusyRun:
    """Rows taken from or added to a tensor, a descriptor each."""
    size = float(op.bytes) / rank.cores
    rows_of = op.reads[0] if op.function == "scatter_add" else op.writes[0]
    row = float(rows_of.shape[-1]) * element_bytes(rows_of.format)
    if size <= 0:
        return BusyRun()
    partitions = rank.unit.sbuf.partitions
    busy = float(rank.transfer.occupancy_s(partitions, row, size / (row * partitions)))
    return BusyRun(time_s=busy + rank.unit.dma.start_latency_s, busy={MEMORY: busy})


def stream(rank: Rank, one: StreamPass) -> BusyRun:
    key = ("stream", one, rank.memory_share)
    return rank.runs.of(key, lambda: _stream(rank.unit, rank.transfer, one))


def _stream(unit: NeuronCores, transfer: TransferCost, one: StreamPass) -> BusyRun:
    partitions = unit.sbuf.partitions
    moved = one.loaded_bytes + one.stored_bytes
    # A tile's rows of all tensors share the buffers of one turn.
    row_bytes = unit.sbuf.partition_bytes / (2 * TILES_IN_TURN)
    tiles = max(math.ceil(moved / (partitions * row_bytes)), 1)
    columns = one.elements / (tiles * partitions)
    load_s = _transfer_s(transfer, partitions, one.loaded_bytes / tiles, one.loads)
    store_s = _transfer_s(transfer, partitions, one.stored_bytes / tiles, one.stores)
    engine, cycles = unit.scalar, columns
    if one.loads > 1:
        engine = unit.vector
        cycles = columns * (engine.two_input_cycles_per_element or 1.0)
    each = max(cycles, engine.minimum_cycles) + engine.access_overhead_cycles
    work_s = one.instructions * each / engine.clock_hz
    generation_s = unit.dma.descriptor_generation_s or 0.0
    latency_s = 2 * (unit.dma.start_latency_s + generation_s)
    return BusyRun(
        time_s=latency_s + _line(tiles, load_s, work_s, store_s),
        busy={MEMORY: tiles * (load_s + store_s), VECTOR: tiles * work_s},
    )


def _transfer_s(transfer: TransferCost, partitions: int, size_bytes: float, tensors: int) -> float:
    if size_bytes <= 0:
        return 0.0
    row = size_bytes / (partitions * tensors)
    return float(transfer.occupancy_s(partitions, row, tensors))


def _line(tiles: int, load_s: float, work_s: float, store_s: float) -> float:
    """Time at which the last tile of a line of tiles is stored."""
    # DMA engines take whichever transfer is ready first; the compute engine takes tiles in order.
    dma = engine = 0.0
    loaded: list[float] = []
    worked: list[float] = []
    stored: list[float] = []
    paces: list[float] = []
    tile = 0
    while len(stored) < tiles:
        # The next load waits for a buffer, the next store for its tile.
        may_load = len(loaded) < tiles
        room = 0.0
        if may_load and len(loaded) >= TILES_IN_TURN:
            done = len(loaded) - TILES_IN_TURN
            may_load = done < len(stored)
            room = stored[done] if may_load else 0.0
        may_store = len(worked) > len(stored)
        if may_load and (not may_store or room <= worked[len(stored)]):
            dma = max(dma, room) + load_s
            loaded.append(dma)
            engine = max(engine, dma) + work_s
            worked.append(engine)
            continue
        dma = max(dma, worked[len(stored)]) + store_s
        stored.append(dma)
        tile = len(stored)
        if tile > 1:
            paces.append(stored[-1] - stored[-2])
        recent = paces[-_SETTLED:]
        if len(recent) == _SETTLED and max(recent) - min(recent) <= _EVEN * max(recent):
            return stored[-1] + (tiles - tile) * recent[-1]
    return stored[-1]


LONG = 32 * 1024  # Queries and keys of the long sequence
_FORWARD, _BACKWARD = 2, 5  # Products of queries and keys in each pass


def attention_s(rank: Rank, op: ops.AttentionOp) -> BusyRun:
    """One call of fused attention on a rank, for all its sequences and heads."""
    call = call_of(op, rank.chip)
    kernels = rank.efficiency.kernels
    run = rank.runs.of(
        ("attention", call, rank.cores),
        lambda: _attention_busy(run_attention(call, rank.chip, cores=rank.cores)),
    )
    slower = _slower(rank, op)
    heads = math.ceil(call.heads / rank.cores)
    called_s = float(kernels.attention_call_s) + heads * float(kernels.attention_head_s)
    return BusyRun(time_s=run.time_s * slower + called_s, busy=run.busy)


def _slower(rank: Rank, op: ops.AttentionOp) -> float:
    """Part of the peak that the kernel reaches when played, over that calibrated."""
    number_format, size = rank.chip.own_format(op.format), rank.unit.tensor.rows
    call = AttentionCall(
        queries=LONG,
        keys=LONG,
        heads=1,
        kv_heads=1,
        score_size=size,
        value_size=size,
        number_format=number_format,
        causal=False,
        backward=op.backward,
    )
    run = rank.runs.of(
        ("attention", call, 1), lambda: _attention_busy(run_attention(call, rank.chip))
    )
    products = _BACKWARD if op.backward else _FORWARD
    flop = FLOP_PER_MULTIPLY_ADD * products * LONG**2 * size
    peak_flop_per_s = rank.chip.peak_flop_per_s(number_format) / rank.unit.count
    kernels = rank.efficiency.kernels
    known = kernels.attention_backward_share if op.backward else kernels.attention_forward_share
    return flop / run.time_s / peak_flop_per_s / float(known)


def call_of(op: ops.AttentionOp, chip: Chip) -> AttentionCall:
    """Call of the kernel that an operation of a scalar program is.

    Ranks that share a sequence under a causal mask have an early and a late part of it each, and in
    turn all its keys.
    """
    batch, queries, heads, score_size = (math.ceil(size) for size in op.query.shape)
    _, keys, kv_heads, value_size = (math.ceil(size) for size in op.value.shape)
    return AttentionCall(
        queries=queries,
        keys=keys,
        heads=batch * heads,
        kv_heads=batch * kv_heads,
        score_size=score_size,
        value_size=value_size,
        number_format=chip.own_format(op.format),
        causal=op.causal,
        window=op.window,
        backward=op.backward,
        ring_queries=queries if op.causal and queries < keys else None,
    )


def _attention_busy(run: AttentionRun) -> BusyRun:
    return BusyRun(
        time_s=run.time_s,
        busy={
            TENSOR: run.busy["tensor"] * run.time_s,
            VECTOR: max(run.busy["vector"], run.busy["scalar"]) * run.time_s,
            MEMORY: run.busy["dma"] * run.time_s,
        },
    )


BlockParts: TypeAlias = Mapping[tuple[ops.Phase, ComputeCategory], BusyRun]
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
        recipe=grid.recipe,
        runs=runs,
    )


def computed(rank: Rank, program: StepProgram) -> Mapping[str, BlockParts]:
    return {kind: _block(rank, block) for kind, block in program.blocks.items()}


def _block(rank: Rank, block: Block) -> BlockParts:
    scores = _score_shapes(block)
    parts: dict[tuple[ops.Phase, ComputeCategory], list[BusyRun]] = {}
    for op in block.ops:
        count = float(op.count)
        if isinstance(op, ops.CollectiveOp) or is_on_host(op) or count == 0:
            continue
        if op.region == "experts":
            count *= rank.expert_load
        found = _played(rank, op, scores)
        if found is not None:
            category, run = found
            parts.setdefault((op.phase, category), []).append(run.times(count))
        if isinstance(op, ops.MatMul) and (rank.single or rank.recipe.cached):
            beside = _beside(rank, op)
            parts.setdefault((op.phase, "element-wise"), []).append(beside.times(count))
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
    rank: Rank, op: ops.Operation, scores: frozenset[tuple[Dim, ...]]
) -> tuple[ComputeCategory, BusyRun] | None:
    """An operation's run and its category; None for an operation that is part of another's run."""
    kernels = rank.efficiency.kernels
    match op:
        case ops.MatMul():
            run = _product_run(rank, op.product)
            if op.terms[0].out.dims in scores:
                run = in_turn((run, _touches(rank, op)))
            return ("attention" if op.region == "core" else "matrix"), run
        case ops.AttentionOp():
            return "attention", attention_s(rank, op)
        case ops.ScanOp():
            return "attention", in_turn([_product_run(rank, one) for one in op.products])
        case ops.Elementwise():
            # Passes over the scores of unfused attention are part of the product that makes them.
            if any(tensor.dims in scores for tensor in (*op.reads, *op.writes)):
                return None
            update = op.phase == "optimizer"
            traffic = kernels.optimizer_traffic if update else kernels.elementwise_traffic
            if rank.single and not update and not op.view:
                kernels_of = single_kernels.moved(op, rank.recipe)
                traffic = traffic * float(kernels_of.bytes) / max(float(op.bytes), 1.0)
            return "element-wise", elementwise_run(rank, op, float(traffic))
        case ops.Gather():
            return "gather", gather_run(rank, op)
        case ops.CollectiveOp():
            raise GapError(op.op, "compute of a rank")
        case _:
            unhandled(op, "play of an operation")


def _beside(rank: Rank, op: ops.MatMul) -> BusyRun:
    """Sums of gradients and casts beside a product."""
    moved = float(single_kernels.around(op, rank.recipe).bytes)
    moved += float(rank.efficiency.kernels.adapter_casts) * float(single_kernels.adapted(op).bytes)
    out = op.writes[0]
    traffic = moved * float(rank.efficiency.kernels.elementwise_traffic)
    touches = traffic / max(float(out.bytes), 1.0)
    return touched_run(rank, float(out.elements), float(out.bytes), touches)


def _product_run(rank: Rank, wanted: MatrixProduct) -> BusyRun:
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


def _touches(rank: Rank, op: ops.MatMul) -> BusyRun:
    """All passes of unfused attention over the scores that a product makes."""
    kernels = rank.efficiency.kernels
    backward = op.phase in ("B_input", "B_weight")
    touches = kernels.score_touches_backward if backward else kernels.score_touches_forward
    scores = op.terms[0].out
    size = float(scores.bytes)
    return touched_run(rank, size / element_bytes(scores.format), size, float(touches))


def _score_shapes(block: Block) -> frozenset[tuple[Dim, ...]]:
    return frozenset(
        op.writes[0].dims
        for op in block.ops
        if isinstance(op, ops.Elementwise) and op.region == "core"
    )


def as_runs(parts: Mapping[tuple[ops.Phase, ComputeCategory], float]) -> BlockParts:
    return {key: BusyRun(time_s=seconds) if seconds else NO_RUN for key, seconds in parts.items()}
