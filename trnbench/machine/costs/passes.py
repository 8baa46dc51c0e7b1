"""What one pass of a lane-wise engine of a NeuronCore takes, wherever its operands lie."""

from __future__ import annotations

from trnbench.facts.hardware.compute_unit import VectorEngine
from trnbench.facts.records import Record

WIDE_FORMAT = "fp32"
"""Passes between products are in fp32; the engines' fast modes are looked up for it."""


class LanePass(Record):
    """One instruction over `columns` elements of every partition.

    `psum`: an operand lies there. `inputs`: tensors it reads. `reduces`: a row's sum or maximum
    comes out beside. `plain`: an element a lane and cycle, as maxima and the few kinds take that
    have no fast mode and need no more for a second input.
    """

    columns: int
    psum: bool = False
    inputs: int = 1
    reduces: bool = False
    plain: bool = False

    def seconds(self, engine: VectorEngine) -> float:
        """Return how long an engine takes, s."""
        elements = max(self.columns * self._cycles_per_element(engine), engine.minimum_cycles)
        extra = engine.reduction_cycles if self.reduces else 0
        return (elements + extra + engine.access_overhead_cycles) / engine.clock_hz

    def _cycles_per_element(self, engine: VectorEngine) -> float:
        """One cycle, unless both inputs lie in SBUF or the engine is in a fast mode there."""
        wide = engine.elements_per_cycle.get(WIDE_FORMAT, engine.lanes)
        if self.psum or self.plain or self.reduces:
            return 1.0
        if wide > engine.lanes:
            return engine.lanes / wide
        return (engine.two_input_cycles_per_element or 1.0) if self.inputs > 1 else 1.0


def position_mask_s(engine: VectorEngine, columns: int) -> float:
    """Return how long a mask by position takes, s: its fixed cycles are all there is besides."""
    return (engine.position_cycles + columns) / engine.clock_hz
