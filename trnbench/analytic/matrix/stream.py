"""The time of an element-wise pass that only streams through a core."""

from __future__ import annotations

from trnbench.costs.instructions import transfer_cost
from trnbench.errors import unhandled
from trnbench.hardware.chip import Chip
from trnbench.hardware.compute_unit import Multiprocessors, NeuronCores


def stream_time_s(size_bytes: float, row_bytes: float, chip: Chip) -> float:
    """Return the time of moving so many bytes between memory and one core of a chip, s.

    On a Trainium core every row of a partition is a descriptor of `row_bytes`, and transfers have
    the core's own DMA engines and its share of memory bandwidth. On a GPU memory alone counts.
    """
    match chip.unit:
        case NeuronCores() as cores:
            partitions = float(cores.sbuf.partitions)
            transfer_s = float(transfer_cost(chip, cores).occupancy_s(partitions, row_bytes))
            rate = partitions * row_bytes / transfer_s
            return cores.dma.start_latency_s + size_bytes / rate
        case Multiprocessors():
            return size_bytes / chip.memory.bandwidth_per_chip_bytes_per_s
        case unknown:
            unhandled(unknown, "time of a streaming pass")
