"""Seconds of matrix products on NeuronCores by the software that their kernels come from.

A hand-written kernel is its schedule on a tensor engine at the share of its rate that such kernels
reach. What the compiler makes of a product has no published schedule: a call takes its launch, the
multiplying at a share, and moving operands and result once, which nothing hides.
"""

from __future__ import annotations

import numpy as np

from trnbench.engines.analytic.matrix.time import MatrixTime, matrix_time
from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import KernelLevel, NeuronCores
from trnbench.facts.records import replace
from trnbench.machine.tiling import DEFAULT_KERNEL, Cores, Kernel, Precision
from trnbench.machine.tiling.kernel_levels import (
    HAND_WRITTEN,
    KernelSoftware,
    at_level,
    busy_share,
    level_of,
)
from trnbench.machine.tiling.legality import rate_of
from trnbench.program.matrix import MatrixProduct


def reached_time(
    product: MatrixProduct,
    chip: Chip,
    software: KernelSoftware = HAND_WRITTEN,
    *,
    cores: Cores = 1,
    busy: int | None = None,
    kernel: Kernel = DEFAULT_KERNEL,
    precision: Precision = "native",
) -> tuple[MatrixTime, MatrixTime]:
    """Times by this software, and those at the data sheet's rates.

    `busy` counts all cores of the chip that work, where more do than share the product.
    """
    sheet = matrix_time(product, chip, cores=cores, kernel=kernel, precision=precision)
    if sheet.reasons or not isinstance(chip.unit, NeuronCores):
        return sheet, sheet
    level = level_of(chip, software)
    if level is None:
        return sheet, sheet
    used = chip.unit.count if cores == "all" else cores
    working = max(busy or 0, used)
    if level.unhidden_per_core_bytes_per_s is not None:
        return _called(sheet, level, busy_share(chip, working)), sheet
    slowed = at_level(chip, rate_of(product, chip.unit, precision), level, working)
    found = matrix_time(product, slowed, cores=cores, kernel=kernel, precision=precision)
    return replace(found, clock_hz=sheet.clock_hz, peak_flop_per_s=sheet.peak_flop_per_s), sheet


def ends_s(
    time_s: FloatArray | float, sheet: MatrixTime, level: KernelLevel
) -> tuple[FloatArray, FloatArray]:
    """Ends of the 80 % interval of a time; none is shorter than at the peak rate."""
    low_s = np.maximum(time_s / np.float64(level.scatter), sheet.parts_s["tensor"])
    return np.minimum(low_s, time_s), np.asarray(time_s * np.float64(level.scatter))


def _called(sheet: MatrixTime, level: KernelLevel, kept: float) -> MatrixTime:
    assert level.unhidden_per_core_bytes_per_s is not None
    product = sheet.product
    operands = product.m * product.element_bytes_a + product.n * product.element_bytes_b
    moved = product.batch * product.k * operands + product.result_bytes
    tensor_s = sheet.parts_s["tensor"] / (level.share * kept)
    memory_s = moved / (level.unhidden_per_core_bytes_per_s * sheet.cores * kept)
    fixed_s = np.full_like(tensor_s, level.launch_s)
    return replace(
        sheet,
        kernel=None,
        time_s=np.where(sheet.legal, tensor_s + memory_s + fixed_s, np.nan),
        parts_s={"tensor": tensor_s, "memory": memory_s, "fixed": fixed_s},
        read_bytes=np.asarray(moved - product.result_bytes),
    )
