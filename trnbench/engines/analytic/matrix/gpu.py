"""Seconds of a matrix product on a GPU in closed form: tiles, waves and memory.

Model: every output tile occupies one multiprocessor for the depth of K; tiles run in waves, and the
last wave is as long as the others. The tile shape that finishes first is taken. Memory sees the
operands once if the cache holds them, else the panels of a near-square patch of tiles per wave. The
bandwidth of the cache is no bound: multiprocessors share panels, the traffic of each is unknown,
and measured rates exceed what separate panels would allow.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import Multiprocessors
from trnbench.facts.records import Record
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.program.matrix import MatrixProduct


class GpuTime(Record, eq=False):
    """Seconds of the whole, of the tensor cores and of memory; bytes read at memory."""

    time_s: FloatArray
    tensor_s: FloatArray
    memory_s: FloatArray
    fixed_s: FloatArray
    read_bytes: FloatArray


def gpu_peak_flop_per_s(product: MatrixProduct, chip: Chip, unit: Multiprocessors) -> float:
    """Peak rate for the operations of a product, FLOP/s.

    Of a sparse product only those that pruning leaves; vendors count them all.
    """
    names = (product.format_a, product.format_b)
    if product.pattern is not None and chip.sparsity is not None:
        peaks = chip.sparsity.peak_per_chip_flop_per_s
        return min(peaks[name] for name in names) / product.ratio
    return min(unit.rates_per_chip_flop_per_s[name] for name in names)


def gpu_time(product: MatrixProduct, chip: Chip, unit: Multiprocessors) -> GpuTime:
    """Seconds of each product on all multiprocessors of a GPU."""
    per_unit = gpu_peak_flop_per_s(product, chip, unit) / unit.count
    depth = unit.padded_depth(product.k) / product.ratio
    tensor_s = np.asarray(np.inf)
    memory_bytes = np.zeros(())
    wide_a = product.k * product.element_bytes_a
    wide_b = product.k * product.element_bytes_b
    for tile in unit.tiles:
        down, across = np.ceil(product.m / tile.rows), np.ceil(product.n / tile.columns)
        tiles = down * across * product.batch
        waves = np.ceil(tiles / unit.count)
        flop = FLOP_PER_MULTIPLY_ADD * tile.rows * tile.columns * depth
        tile_s = waves * flop / (per_unit * tile.relative_rate)
        # One wave covers a near-square patch of the output: the shape that needs the fewest panels.
        side = np.sqrt(unit.count * tile.rows * tile.columns)
        patch_m = np.minimum(side, down * tile.rows)
        patch_n = np.minimum(side, across * tile.columns)
        # The library's choice of a tile is taken to be the fastest by compute alone.
        better = tile_s < tensor_s
        tensor_s = np.where(better, tile_s, tensor_s)
        memory_bytes = np.where(better, waves * (patch_m * wide_a + patch_n * wide_b), memory_bytes)
    once = product.batch * (product.m * wide_a + product.n * wide_b)
    cached = product.m * wide_a + product.n * wide_b <= unit.cache_per_chip_bytes
    read = np.where(cached, once, np.maximum(once, memory_bytes))
    memory_s = (read + product.result_bytes) / chip.memory.bandwidth_per_chip_bytes_per_s
    busy = np.maximum(tensor_s, memory_s)
    return GpuTime(
        time_s=busy + unit.launch_latency_s,
        tensor_s=tensor_s,
        memory_s=memory_s,
        fixed_s=np.full_like(busy, unit.launch_latency_s),
        read_bytes=read,
    )
