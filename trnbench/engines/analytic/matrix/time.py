"""Seconds of matrix products on a chip in closed form, over arrays, with their parts.

On a GPU. Every output tile occupies one multiprocessor for the depth of K; tiles run in waves, and
the last wave is as long as the others. The tile shape that finishes first is taken. Memory sees the
operands once if the cache holds them, else the panels of a near-square patch of tiles per wave. The
bandwidth of the cache is no bound: multiprocessors share panels, the traffic of each is unknown,
and measured rates exceed what separate panels would allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbench.engines.analytic.matrix.neuron_core import CoreTime, core_time
from trnbench.errors import unhandled
from trnbench.facts.arrays import BoolArray, FloatArray
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.facts.records import Record, fields, replace
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.machine.costs.instructions import Instructions, instructions_of, transfer_cost
from trnbench.machine.tiling import DEFAULT_KERNEL, Cores, Kernel, Precision
from trnbench.machine.tiling.legality import (
    Rate,
    format_reasons,
    pattern_fits,
    rate_of,
    shape_reasons,
)
from trnbench.machine.tiling.schedule import (
    core_count,
    core_reasons,
    kernel_reasons,
    schedule_of,
    split_over,
)
from trnbench.program.matrix import MatrixProduct

MatrixPart: TypeAlias = Literal["tensor", "weights", "evacuation", "memory", "trigger", "fixed"]
MATRIX_PARTS: tuple[MatrixPart, ...] = get_args(MatrixPart)
HIDDEN_PART: MatrixPart = "weights"  # behind multiplying: it never sets the time

# Arrays of this length stay in a core's cache, which makes the closed form twice as fast; no power
# of two, so that they do not all claim the same lines of it.
_CHUNK = 12_000


class MatrixTime(Record, eq=False):
    """Seconds of each product and their parts; NaN where `legal` is False."""

    chip: str
    kernel: Kernel | None
    precision: Precision
    product: MatrixProduct
    cores: FloatArray
    clock_hz: float
    peak_flop_per_s: FloatArray
    memory_bytes_per_s: FloatArray
    time_s: FloatArray
    parts_s: Mapping[MatrixPart, FloatArray]
    """Seconds each part would take alone. `tensor` multiplies, `memory` moves bytes between memory
    and cores; NeuronCores also load `weights`, copy results out of PSUM (`evacuation`) and trigger
    transfers (`trigger`). `fixed` is the rest: starting, filling, draining."""
    read_bytes: FloatArray  # Bytes of all cores at memory, each core reading as much as the busiest
    legal: BoolArray
    reasons: tuple[str, ...]  # Why a product cannot run, and what can

    @property
    def feasible(self) -> bool:
        return bool(np.all(self.legal)) and not self.reasons

    @property
    def cycles(self) -> FloatArray:
        return self.time_s * self.clock_hz

    @property
    def written_bytes(self) -> FloatArray:
        return self.product.result_bytes

    @property
    def hbm_bytes(self) -> FloatArray:
        return self.read_bytes + self.written_bytes

    @property
    def binds(self) -> NDArray[np.str_]:
        """Name of the part that takes longest, for each product."""
        present = [part for part in MATRIX_PARTS if part in self.parts_s and part != HIDDEN_PART]
        parts = np.broadcast_arrays(*(self.parts_s[part] for part in present))
        names: NDArray[np.str_] = np.asarray(present)[np.argmax(np.stack(parts), axis=0)]
        return names


def roofline(
    flop_per_byte: ArrayLike, peak_flop_per_s: ArrayLike, memory_bytes_per_s: ArrayLike
) -> FloatArray:
    """The lower of the peak and the rate that memory can feed at an intensity, FLOP/s."""
    fed = np.asarray(flop_per_byte) * np.asarray(memory_bytes_per_s)
    return np.asarray(np.minimum(np.asarray(peak_flop_per_s), fed), dtype=np.float64)


def matrix_time(
    product: MatrixProduct,
    chip: Chip,
    *,
    cores: Cores = 1,
    kernel: Kernel = DEFAULT_KERNEL,
    precision: Precision = "native",
) -> MatrixTime:
    """Seconds of each product on one core, some, or all cores of a chip.

    A split product takes as long as its largest share. A GPU counts as one core and has no kernel
    but the default. A product that the chip cannot run gives a result with reasons.
    """
    # Refusals that need no shape come first: with one, nothing is priced.
    count = core_count(cores, chip)
    reasons = format_reasons(product, chip, precision) + core_reasons(count, chip)
    reasons += kernel_reasons(kernel, chip)
    if reasons:
        return _impossible(product, chip, kernel, precision, reasons)
    match chip.unit:
        case NeuronCores() as unit:
            return _on_cores(product, chip, unit, count, kernel, precision)
        case Multiprocessors() as unit:
            return _on_gpu(product, chip, unit)
        case unknown:
            unhandled(unknown, "time of a matrix product")


def _on_cores(
    product: MatrixProduct,
    chip: Chip,
    unit: NeuronCores,
    count: int,
    kernel: Kernel,
    precision: Precision,
) -> MatrixTime:
    rate = rate_of(product, unit, precision)
    costs = instructions_of(chip, unit, rate)
    found, cores, fits = _priced(product, count, unit, rate, kernel, costs)
    legal = fits & pattern_fits(product)
    core_flop_per_s = unit.tensor.peak_flop_per_s(rate.passes, rate.rows_per_pe)
    time_s, fixed_s = found.time_s, found.fixed_s
    if not np.all(legal):
        time_s, fixed_s = (np.where(legal, each, np.nan) for each in (time_s, fixed_s))
    return MatrixTime(
        chip=chip.name,
        kernel=kernel,
        precision=precision,
        product=product,
        cores=cores,
        clock_hz=unit.tensor.clock_hz,
        peak_flop_per_s=np.asarray(core_flop_per_s * count),
        memory_bytes_per_s=np.asarray(costs.transfer.memory_bytes_per_s * count),
        time_s=time_s,
        parts_s={
            "tensor": found.tensor_s,
            "weights": found.weights_s,
            "evacuation": found.evacuation_s,
            "memory": found.dma_s,
            "trigger": found.trigger_s,
            "fixed": fixed_s,
        },
        read_bytes=found.read_bytes,
        legal=legal,
        reasons=shape_reasons(product, fits, kernel),
    )


def _priced(
    product: MatrixProduct,
    count: int,
    unit: NeuronCores,
    rate: Rate,
    kernel: Kernel,
    costs: Instructions,
) -> tuple[CoreTime, FloatArray, BoolArray]:
    """Times of the shares, number of cores with a share, and True where the kernel's buffers fit.

    Bytes are those that all cores read. Long arrays are priced a chunk at a time.
    """

    def priced(part: MatrixProduct) -> tuple[CoreTime, FloatArray, BoolArray]:
        split = split_over(part, count, unit)
        schedule = schedule_of(split.share, unit, rate, kernel)
        found = core_time(schedule, costs, unit.psum.banks)
        if count > 1:
            # Each core counts as reading what the busiest reads: an upper bound where shares are
            # uneven.
            found = replace(found, read_bytes=found.read_bytes * split.cores)
        return found, split.cores, np.broadcast_to(schedule.fits, part.shape)

    shape = product.shape
    size = int(np.prod(shape))
    if size <= _CHUNK:
        return priced(product)
    m, k, n, batch = (
        _flat(size_of, shape) for size_of in (product.m, product.k, product.n, product.batch)
    )
    whole = {field.name: np.empty(size) for field in fields(CoreTime)}
    cores, fits = np.empty(size), np.empty(size, dtype=np.bool_)
    for start in range(0, size, _CHUNK):
        place = slice(start, min(start + _CHUNK, size))
        part = replace(
            product, m=_cut(m, place), k=_cut(k, place), n=_cut(n, place), batch=_cut(batch, place)
        )
        found, cores[place], fits[place] = priced(part)
        for name, array in whole.items():
            array[place] = getattr(found, name)
    shaped = {name: array.reshape(shape) for name, array in whole.items()}
    return CoreTime(**shaped), cores.reshape(shape), fits.reshape(shape)


def _flat(array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    if array.size == 1:
        return array.reshape(())
    return np.broadcast_to(array, shape).reshape(-1)


def _cut(array: FloatArray, place: slice) -> FloatArray:
    return array[place] if array.ndim else array


def gpu_peak_flop_per_s(product: MatrixProduct, chip: Chip, unit: Multiprocessors) -> float:
    """Peak rate for the operations of a product, FLOP/s.

    Of a sparse product only those that pruning leaves; vendors count them all.
    """
    names = (product.format_a, product.format_b)
    if product.pattern is not None and chip.sparsity is not None:
        peaks = chip.sparsity.peak_per_chip_flop_per_s
        return min(peaks[name] for name in names) / product.ratio
    return min(unit.rates_per_chip_flop_per_s[name] for name in names)


def _on_gpu(product: MatrixProduct, chip: Chip, unit: Multiprocessors) -> MatrixTime:
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
    legal = np.broadcast_to(pattern_fits(product), product.shape)
    return MatrixTime(
        chip=chip.name,
        kernel=None,
        precision="native",
        product=product,
        cores=np.ones(()),
        clock_hz=unit.clock_hz,
        peak_flop_per_s=np.asarray(gpu_peak_flop_per_s(product, chip, unit)),
        memory_bytes_per_s=np.asarray(chip.memory.bandwidth_per_chip_bytes_per_s),
        time_s=np.where(legal, busy + unit.launch_latency_s, np.nan),
        parts_s={
            "tensor": tensor_s,
            "memory": memory_s,
            "fixed": np.full_like(busy, unit.launch_latency_s),
        },
        read_bytes=read,
        legal=legal,
        reasons=shape_reasons(product, np.ones((), dtype=np.bool_), DEFAULT_KERNEL),
    )


def _impossible(
    product: MatrixProduct,
    chip: Chip,
    kernel: Kernel,
    precision: Precision,
    reasons: tuple[str, ...],
) -> MatrixTime:
    unknown = np.full(product.shape, np.nan)
    return MatrixTime(
        chip=chip.name,
        kernel=kernel if chip.unit.has_kernels else None,
        precision=precision,
        product=product,
        cores=np.zeros(()),
        clock_hz=chip.unit.clock_hz,
        peak_flop_per_s=np.full((), np.nan),
        memory_bytes_per_s=np.full((), np.nan),
        time_s=unknown,
        parts_s=dict.fromkeys(MATRIX_PARTS, unknown),
        read_bytes=unknown,
        legal=np.zeros(product.shape, dtype=np.bool_),
        reasons=reasons,
    )


def stream_time_s(size_bytes: float, row_bytes: float, chip: Chip) -> float:
    """Seconds of moving bytes between memory and one core of a chip.

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
