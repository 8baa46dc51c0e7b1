"""Passes over memory played as streams of tiles: loaded, worked on, stored.

A core's part of a pass is cut into tiles of all partitions. Two tiles have room: while one is
worked on, DMA engines load the next and store the one before, in the order in which transfers
become ready. A pass of one tensor runs on the scalar engine, one of several on the vector engine,
an instruction for each further tensor. Once tiles follow each other at an even pace, the rest of
them is added.
"""

from __future__ import annotations

import math

from trnbench.engines.emulate.step.rank import BusyRun, Rank
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import MEMORY, VECTOR, TransferCost
from trnbench.program.ops import Elementwise, Gather
from trnbench.program.tensor import element_bytes

TILES_IN_TURN = 2
"""One tile fills while the other is read, as in the kernels of products."""
_EVEN = 1e-9
_SETTLED = 4
"""Tiles that have to follow each other at the same pace before the rest is taken to do so too."""


class StreamPass(Record):
    """A core's part of a pass: elements of its widest tensor, bytes moved, instructions a tile."""

    elements: float
    loaded_bytes: float
    stored_bytes: float
    loads: int
    stores: int
    instructions: int


def elementwise_run(rank: Rank, op: Elementwise, traffic: float) -> BusyRun:
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


def gather_run(rank: Rank, op: Gather) -> BusyRun:
    """Rows taken from or added to a tensor, a descriptor each."""
    size = float(op.bytes) / rank.cores
    rows_of = op.reads[0] if op.function == "scatter_add" else op.writes[0]
    row = float(rows_of.shape[-1]) * element_bytes(rows_of.format)
    return _moved(rank, size, row)


def _moved(rank: Rank, size_bytes: float, row_bytes: float) -> BusyRun:
    if size_bytes <= 0:
        return BusyRun()
    partitions = rank.unit.sbuf.partitions
    rows = size_bytes / (row_bytes * partitions)
    busy = float(rank.transfer.occupancy_s(partitions, row_bytes, rows))
    return BusyRun(time_s=busy + rank.unit.dma.start_latency_s, busy={MEMORY: busy})


def stream(rank: Rank, one: StreamPass) -> BusyRun:
    """A core's part of a pass."""
    key = ("stream", one, rank.memory_share)
    return rank.runs.of(key, lambda: _stream(rank.unit, rank.transfer, one))


def _row_bytes(unit: NeuronCores) -> float:
    return unit.sbuf.partition_bytes / (2 * TILES_IN_TURN)


def _stream(unit: NeuronCores, transfer: TransferCost, one: StreamPass) -> BusyRun:
    partitions = unit.sbuf.partitions
    moved = one.loaded_bytes + one.stored_bytes
    # A tile's rows of all tensors share the buffers of one turn.
    tiles = max(math.ceil(moved / (partitions * _row_bytes(unit))), 1)
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
