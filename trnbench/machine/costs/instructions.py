"""Prices for both engines: an instruction or a lane-wise pass of a NeuronCore, in cycles or s.

Multiply, weight load, evacuation and transfer, one at a time and over arrays; how instructions
overlap is each engine's business.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, Number, times
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores, VectorEngine
from trnbench.facts.records import Record
from trnbench.machine.tiling.legality import Rate

TENSOR, VECTOR, MEMORY = "tensor engine", "vector and scalar engine", "memory"
LINK = "busiest link"
EXCHANGED = "exchanges, nothing hidden"
WAITING = "waiting"
"""Seconds of a category besides its busiest part; the names above are its busy parts."""


EvacuationEngine: TypeAlias = Literal["vector", "scalar"]

_EVACUATORS: tuple[EvacuationEngine, ...] = ("vector", "scalar")


class TransferCost(Record):
    """Cost of a DMA transfer of some partitions' rows on the engines of a core."""

    partitions_per_engine: int
    engine_bytes_per_s: float
    descriptor_overhead_s: float
    memory_bytes_per_s: float

    def occupancy_s(self, partitions: Number, row_bytes: Number, rows: Number = 1.0) -> FloatArray:
        """Seconds of the busiest engine for `rows` rows of each partition.

        An engine serves `partitions_per_engine` partitions, one descriptor a row. All engines
        together draw no more than the core's share of memory bandwidth.
        """
        served = np.minimum(partitions, self.partitions_per_engine) * rows
        engine_s = served / self.engine_bytes_per_s
        memory_s = partitions * rows / self.memory_bytes_per_s
        busiest = served * self.descriptor_overhead_s + row_bytes * engine_s
        if np.ndim(engine_s) == 0 and engine_s >= memory_s:
            return np.asarray(busiest)  # memory never is the slower of the two
        return np.maximum(busiest, row_bytes * memory_s)

    def engines(self, partitions: float) -> int:
        return math.ceil(partitions / self.partitions_per_engine)


class Instructions(Record):
    """Instruction costs of one core for one way of taking a product."""

    tensor_clock_hz: float
    passes: float  # over the moving data
    moving_min: int
    load_rows_per_cycle: int
    add_cycles_per_element: float
    vector: VectorEngine
    scalar: VectorEngine
    evacuators: tuple[EvacuationEngine, ...]  # engines that copy results out of PSUM
    transfer: TransferCost
    start_latency_s: float  # of a DMA transfer
    generation_s: float  # of a DMA descriptor

    def multiply_cycles(self, columns: Number, moving: Number) -> FloatArray:
        """Tensor cycles of one multiply: a stationary tile against `moving` columns."""
        return self._streaming(columns, moving) * self.passes

    def multiply_s(self, columns: Number, moving: Number) -> FloatArray:
        return self._streaming(columns, moving) * (self.passes / self.tensor_clock_hz)

    def weight_load_cycles(self, columns: Number) -> Number:
        """Tensor cycles of loading a stationary tile of `columns` columns."""
        return columns * np.float64(self.passes / self.load_rows_per_cycle)

    def copy_s(self, engine: EvacuationEngine, columns: Number) -> FloatArray:
        """Seconds of copying one accumulated tile out of PSUM on an engine."""
        return self._pass_s(self._engine(engine), columns)

    def add_s(self, columns: Number) -> FloatArray:
        """Seconds of adding one accumulated tile to a partial sum in SBUF.

        Only the vector engine takes two tensors.
        """
        return self._pass_s(self.vector, times(columns, self.add_cycles_per_element))

    def copy_each_s(self, columns: Number) -> FloatArray:
        """Mean seconds between copies when all evacuating engines work."""
        if len(self.evacuators) == 1:
            return self.copy_s(self.evacuators[0], columns)
        vector, scalar = self.copy_s("vector", columns), self.copy_s("scalar", columns)
        return vector * scalar / (vector + scalar)

    def copy_alone_s(self, columns: Number) -> FloatArray:
        """Seconds of one copy on the fastest of the evacuating engines."""
        fastest = self.copy_s(self.evacuators[0], columns)
        for engine in self.evacuators[1:]:
            fastest = np.minimum(fastest, self.copy_s(engine, columns))
        return fastest

    def _engine(self, engine: EvacuationEngine) -> VectorEngine:
        return self.vector if engine == "vector" else self.scalar

    def _pass_s(self, engine: VectorEngine, columns: Number) -> FloatArray:
        cycles = np.maximum(columns, engine.minimum_cycles) + engine.access_overhead_cycles
        return cycles * (1 / engine.clock_hz)

    def _streaming(self, columns: Number, moving: Number) -> FloatArray:
        return np.maximum(np.minimum(self.moving_min, columns), moving)


def instructions_of(chip: Chip, cores: NeuronCores, rate: Rate) -> Instructions:
    """Instruction costs on a core of this chip.

    Where a shared port lets only one of the evacuating engines at PSUM, the faster one copies.
    """
    dma = cores.dma
    add_cycles = cores.vector.two_input_cycles_per_element
    if add_cycles is None:
        raise InputError(f"{chip.name}: cores.vector has no two_input_cycles_per_element")
    return Instructions(
        tensor_clock_hz=cores.tensor.clock_hz,
        passes=rate.passes,
        moving_min=cores.tensor.moving_min,
        load_rows_per_cycle=cores.tensor.load_rows_per_cycle,
        add_cycles_per_element=add_cycles,
        vector=cores.vector,
        scalar=cores.scalar,
        evacuators=_evacuators(cores),
        transfer=transfer_cost(chip, cores),
        start_latency_s=dma.start_latency_s,
        generation_s=dma.descriptor_generation_s or 0.0,
    )


def transfer_cost(chip: Chip, cores: NeuronCores) -> TransferCost:
    """Costs of transfers on the DMA engines of one core.

    A core gets an equal share of the chip's memory bandwidth, because its neighbours work too.
    """
    dma = cores.dma
    return TransferCost(
        partitions_per_engine=cores.sbuf.partitions // dma.engines_per_core,
        engine_bytes_per_s=dma.bandwidth_per_engine_bytes_per_s,
        descriptor_overhead_s=dma.descriptor_overhead_s,
        memory_bytes_per_s=chip.memory.bandwidth_per_chip_bytes_per_s / cores.count,
    )


def _evacuators(cores: NeuronCores) -> tuple[EvacuationEngine, ...]:
    shared = any(
        port.memory == "psum" and set(_EVACUATORS) <= set(port.engines)
        for port in cores.shared_ports
    )
    if not shared:
        return _EVACUATORS
    faster: EvacuationEngine = (
        "vector" if cores.vector.clock_hz >= cores.scalar.clock_hz else "scalar"
    )
    return (faster,)


WIDE_FORMAT = "fp32"
"""Format of passes between products; the engines' fast modes are looked up for it."""


class LanePass(Record):
    """One instruction of a lane-wise engine over `columns` elements of every partition."""

    columns: int
    psum: bool = False  # an operand is in PSUM
    inputs: int = 1  # tensors read
    reduces: bool = False  # a row's sum or maximum comes out too
    plain: bool = False  # an element per lane and cycle, whatever the inputs (maxima)

    def seconds(self, engine: VectorEngine) -> float:
        elements = max(self.columns * self._cycles_per_element(engine), engine.minimum_cycles)
        extra = engine.reduction_cycles if self.reduces else 0
        return (elements + extra + engine.access_overhead_cycles) / engine.clock_hz

    def _cycles_per_element(self, engine: VectorEngine) -> float:
        """One cycle, unless both inputs are in SBUF or the engine is in a fast mode there."""
        wide = engine.elements_per_cycle.get(WIDE_FORMAT, engine.lanes)
        if self.psum or self.plain or self.reduces:
            return 1.0
        if wide > engine.lanes:
            return engine.lanes / wide
        return (engine.two_input_cycles_per_element or 1.0) if self.inputs > 1 else 1.0


def position_mask_s(engine: VectorEngine, columns: int) -> float:
    """Seconds of a mask by position: its fixed cycles, and one a column."""
    return (engine.position_cycles + columns) / engine.clock_hz
