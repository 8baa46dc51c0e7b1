"""The time of an element-wise pass that only streams through a core: what moves, at what rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trnbench.arrays import FloatArray
from trnbench.costs.instructions import transfer_cost
from trnbench.hardware.chip import Chip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamTime:
    """Seconds of a pass, and the rate at which its bytes move."""

    time_s: FloatArray
    bytes_per_s: FloatArray


def stream_time(
    size_bytes: ArrayLike, row_bytes: ArrayLike, chip: Chip, *, cores: int = 1
) -> StreamTime:
    """Return the time of moving so many bytes between memory and the cores of a chip, s.

    On a Trainium core every row of a partition is a descriptor of `row_bytes`, and transfers have
    the core's own DMA engines and its share of memory bandwidth. On a GPU memory alone counts.
    """
    size = np.asarray(size_bytes, dtype=np.float64)
    rows = np.asarray(row_bytes, dtype=np.float64)
    if chip.cores is None:
        rate = np.broadcast_to(chip.memory.bandwidth_per_chip_bytes_per_s, rows.shape)
        return StreamTime(time_s=size / rate, bytes_per_s=rate)
    partitions = float(chip.cores.sbuf.partitions)
    transfer = transfer_cost(chip, chip.cores).occupancy_s(partitions, rows)
    rate = cores * partitions * rows / transfer
    return StreamTime(
        time_s=chip.cores.dma.start_latency_s + size / rate, bytes_per_s=np.asarray(rate)
    )
