"""The instructions that attention kernels are made of, with their durations on a core."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.engines.emulate.tensor_engine.plan import femtoseconds
from trnbench.engines.emulate.tensor_engine.stream import (
    CoreEngine,
    Event,
    Instruction,
    OnEngine,
    Pool,
    Shared,
)
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import Instructions, LanePass, position_mask_s

_NAMES = {CoreEngine.VECTOR: "vector", CoreEngine.SCALAR: "scalar", CoreEngine.GPSIMD: "gpsimd"}


class Links(Record):
    """Resources and events of an instruction: awaited, taken, signalled and given back."""

    after: Sequence[Event] = ()
    takes: Sequence[Pool] = ()
    done: Event | None = None
    gives: Sequence[Pool] = ()


class Maker:
    """Factory of instructions of one core for operands of one width."""

    def __init__(self, cores: NeuronCores, costs: Instructions, element_bytes: float) -> None:
        self.element_bytes = element_bytes
        self.array = cores.tensor.rows
        self.partition_bytes = cores.sbuf.partition_bytes
        self._cores = cores
        self._costs = costs
        self._ports = {
            engine: tuple(
                Shared[port.memory.upper()] for port in cores.shared_ports if name in port.engines
            )
            for engine, name in _NAMES.items()
        }

    def product(self, columns: int, moving: int, times: int, links: Links) -> Instruction:
        """`times` products of a stationary tile of this many columns with moving ones."""
        cycles = float(self._costs.multiply_cycles(columns, moving)) * times
        duration_fs = femtoseconds(cycles / self._costs.tensor_clock_hz)
        return self._made([OnEngine(CoreEngine.TENSOR, duration_fs)], links)

    def copy_out(self, columns: int, links: Links) -> Instruction:
        """A copy of accumulated columns to SBUF, on the vector or the scalar engine."""
        one = LanePass(columns=columns, psum=True)
        return self._made(
            [self._way(CoreEngine.VECTOR, one), self._way(CoreEngine.SCALAR, one)], links
        )

    def vector(self, one: LanePass, links: Links) -> Instruction:
        return self._made([self._way(CoreEngine.VECTOR, one)], links)

    def scalar(self, one: LanePass, links: Links) -> Instruction:
        return self._made([self._way(CoreEngine.SCALAR, one)], links)

    def mask(self, columns: int, links: Links) -> Instruction:
        """A mask by position, which the GpSimd engine puts on scores in SBUF."""
        seconds = position_mask_s(self._cores.gpsimd, columns)
        ports = tuple(p for p in self._ports[CoreEngine.GPSIMD] if p is Shared.SBUF)
        return self._made([OnEngine(CoreEngine.GPSIMD, femtoseconds(seconds), ports)], links)

    def load(self, partitions: int, columns: int, links: Links, *, rows: int = 1) -> Instruction:
        """A transfer from memory: `rows` rows of this many columns for each partition."""
        return self._transfer(CoreEngine.LOADS, (partitions, columns, rows), 1.0, links)

    def store(self, partitions: int, columns: int, links: Links) -> Instruction:
        return self._transfer(CoreEngine.STORES, (partitions, columns, 1), 1.0, links)

    def turn(self, columns: int, rows: int, links: Links) -> Instruction:
        """DMA engines' transpose of a tile in SBUF."""
        rate = self._cores.dma.transpose_rate_in_sbuf
        assert rate is not None
        pieces = -(-columns // self.array)
        return self._transfer(CoreEngine.TURNS, (self.array, rows, pieces), rate, links)

    def _transfer(
        self, queue: CoreEngine, shape: tuple[int, int, int], rate: float, links: Links
    ) -> Instruction:
        partitions, columns, rows = shape
        cost = self._costs.transfer
        row_bytes = columns * self.element_bytes / rate
        # More rows than partitions come one after another on each.
        rounds = -(-partitions // self.array)
        seconds = float(cost.occupancy_s(min(partitions, self.array), row_bytes, rows * rounds))
        way = OnEngine(queue, femtoseconds(self._costs.generation_s))
        return self._made([way], links, transfer_fs=femtoseconds(seconds))

    def _way(self, engine: CoreEngine, one: LanePass) -> OnEngine:
        unit = self._cores.vector if engine is CoreEngine.VECTOR else self._cores.scalar
        ports = tuple(port for port in self._ports[engine] if port is not Shared.PSUM or one.psum)
        return OnEngine(engine, femtoseconds(one.seconds(unit)), ports)

    def _made(self, ways: Sequence[OnEngine], links: Links, transfer_fs: int = 0) -> Instruction:
        return Instruction(
            ways=tuple(ways),
            after=tuple(links.after),
            takes=tuple(links.takes),
            done=links.done,
            gives=tuple(links.gives),
            transfer_fs=transfer_fs,
        )
