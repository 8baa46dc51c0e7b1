"""Seconds of one pass of a lane-wise engine of a NeuronCore, wherever its operands lie."""

from __future__ import annotations

from trnbench.facts.hardware.compute_unit import VectorEngine
from trnbench.facts.records import Record

WIDE_FORMAT = "fp32"
"""Format of passes between products; the engines' fast modes are looked up for it."""


class LanePass(Record):
    """One instruction over `columns` elements of every partition."""

    columns: int
    psum: bool = False  # an operand is in PSUM
    inputs: int = 1  # tensors read
    reduces: bool = False  # a row's sum or maximum comes out too
    plain: bool = False  # an element per lane and cycle, whatever the inputs (maxima)

    def seconds(self, engine: VectorEngine) -> float:
        """Seconds of the pass on an engine."""
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
