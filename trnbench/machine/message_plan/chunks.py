"""Chunks of a collective that has several phases: their number, and their turns at phases."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.collective_stack import Tuning


def chunks_of(tuning: Tuning, phases: int, size_bytes: FloatArray) -> FloatArray:
    """Number of chunks of a collective of these sizes; 1 where nothing overlaps."""
    if phases < 2:
        return np.ones_like(size_bytes)
    return np.clip(np.ceil(size_bytes / tuning.chunk_bytes), 1.0, float(tuning.chunks))


def turns(lanes: tuple[int, ...], chunks: int) -> list[tuple[int, int]]:
    """Turns (chunk, phase) in the order in which each lane takes them.

    A chunk follows the one before by one phase; where two would take a lane at once, the older goes
    first. `lanes[phase]` is the lane of each phase.
    """
    every = [(chunk, phase) for chunk in range(chunks) for phase in range(len(lanes))]
    return sorted(every, key=lambda turn: (turn[0] + turn[1], turn[0]))
