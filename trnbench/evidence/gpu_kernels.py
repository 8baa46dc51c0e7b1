"""Kernels of a GPU timed alone: products, fused attention, copies, launches, and their prediction.

Every row names its kind, shape, format and device. A kernel timed alone takes the time that it has
in a step, and once what the program's start takes besides.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import numpy as np

from trnbench.engines.analytic.step.compute import attention_time_s, passed_time_s, product_time_s
from trnbench.errors import InputError
from trnbench.evidence.attention_kernels import TimedAttention, TimedChips, interval_s
from trnbench.evidence.collectives import fitted
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, alone
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import Multiprocessors
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, replace
from trnbench.machine.costs.shares import unaligned
from trnbench.program.matrix import MatrixProduct, matrix_product, usual_result_format

SCATTER = {"product": 0.06, "attention": 0.05, "copy": 0.02, "launch": 0.2}
"""Log standard deviation of a kernel's time about its chip's common numbers, by kind.

The library has another kernel for every few shapes of products, and one for all copies.
"""
_THIN = 256
_THIN_SCATTER = 0.2
"""Products with a side below 256 leave multiprocessors idle, or cut K between them."""
_UNALIGNED_SCATTER = 0.35
"""Unaligned rows of 2, 4 or 8 bytes take kernels that are 3 to 9 times slower."""
_MIB = 2**20
_DEVICE = re.compile(r"(?:nvidia[\s-]+)?([a-z]+\d+)(?:.*?\b(\d+)\s*gb)?")
_PRODUCT = re.compile(r"(\d+)x(\d+)x(\d+)")
_ATTENTION = re.compile(r"b(\d+) h(\d+) s(\d+) d(\d+)")
_COPY = re.compile(r"(\d+) MiB")
_LAUNCH = "1 element add"

Work: TypeAlias = MatrixProduct | TimedAttention | float
"""What a kernel does: a product, a call of attention, or bytes that it moves."""


class GpuKernel(Record, eq=False):
    """A kernel timed alone on a GPU."""

    kind: str
    chip: str
    work: Work

    def scatter_on(self, chip: Chip) -> float:
        """Log standard deviation of its time."""
        assert isinstance(chip.unit, Multiprocessors)
        if isinstance(self.work, MatrixProduct):
            if np.any(unaligned(self.work, chip.unit)):
                return _UNALIGNED_SCATTER
            if np.minimum(self.work.m, self.work.n) < _THIN:
                return _THIN_SCATTER
        return SCATTER[self.kind]

    @property
    def family(self) -> str:
        """Kind of kernel by which errors are counted."""
        match self.work:
            case MatrixProduct() as product:
                return f"product {product.format_a}"
            case TimedAttention() as timed:
                return f"attention {'backward' if timed.backward else 'forward'}"
            case _:
                return self.kind

    def times_s(self, chip: Chip, efficiency: ChipEfficiency) -> FloatArray:
        """The closed form's time by the chip's numbers, s; a row for samples."""
        unit = chip.unit
        assert isinstance(unit, Multiprocessors)
        match self.work:
            case MatrixProduct() as product:
                own = replace(
                    product,
                    format_a=chip.format_named(product.format_a),
                    format_b=chip.format_named(product.format_b),
                )
                run_s = product_time_s(own, chip, alone(efficiency))
            case TimedAttention() as timed:
                if np.max(efficiency.attention_forward_share) == 0:
                    raise RowFault(f"no attention kernel of {chip.name} was timed")
                shares = {
                    "attention_forward_share": efficiency.attention_forward_share,
                    "attention_backward_share": efficiency.attention_backward_share,
                }
                run_s = attention_time_s(timed.op, chip, alone(efficiency, **shares))
            case size_bytes:
                moved_s = passed_time_s(size_bytes, chip, alone(efficiency))
                run_s = unit.launch_latency_s + moved_s
        return np.asarray(unit.program_start_s + run_s)


def gpu_kernel(catalog: Catalog, row: EvidenceRow) -> GpuKernel:
    """The kernel that a row timed; raise RowFault if it is not modelled."""
    kind, shape = row.needed("kind").lower(), row.needed("shape")
    chip = _chip(catalog, row.needed("device"))
    number_format = format_named(row.needed("dtype")).name
    if kind == "product":
        m, k, n = _sizes(_PRODUCT, shape)
        result = usual_result_format(number_format)
        work: Work = matrix_product(m, k, n, format_a=number_format, format_out=result)
    elif kind.startswith("attention"):
        batch, heads, tokens, size = _sizes(_ATTENTION, shape)
        work = TimedAttention(
            chip=chip,
            cores=1,
            batch=batch,
            heads=heads,
            kv_heads=heads,
            queries=tokens,
            keys=tokens,
            head_size=size,
            causal="causal" in kind and "non-causal" not in kind,
            backward="backward" in kind,
            number_format=number_format,
        )
    elif kind == "copy":
        work = 2.0 * _sizes(_COPY, shape)[0] * _MIB
    elif kind == "launch" and shape == _LAUNCH:
        work = 0.0
    else:
        raise RowFault(f"kind: {kind[:40]!r} is not modelled")
    return GpuKernel(kind=kind.split()[0], chip=chip, work=work)


def compare_gpu_kernels(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Every row of a file of a GPU's kernels with its prediction."""
    chips = TimedChips(catalog)
    return tuple(_compared(chips, file, row) for row in file.rows)


def _compared(chips: TimedChips, file: EvidenceFile, row: EvidenceRow) -> Comparison:
    blank = replace(
        Comparison.of_row(file, row, model="kind", system="device"),
        configuration=f"{row.text('kind')} {row.text('shape')} {row.text('dtype')}",
        layout=row.text("shape") or None,
        precision=row.text("dtype") or None,
    )
    if row.fault is not None:
        return blank
    try:
        blank = replace(blank, measured_s=row.positive("time_s"))
        kernel = gpu_kernel(chips.catalog, row)
        on = chips.of(kernel.chip)
        time_s, low_s, high_s = interval_s(kernel, on, scatter=kernel.scatter_on(on.chip))
        return replace(
            blank,
            predicted_s=time_s,
            low_s=low_s,
            high_s=high_s,
            platform=kernel.chip,
            family=f"{kernel.chip} {kernel.family}",
            fitted=fitted(on.efficiency.fitted_rows, row.id),
        )
    except (RowFault, InputError) as fault:
        return replace(blank, reason=str(fault))


def _chip(catalog: Catalog, device: str) -> str:
    """Name of the chip that a device's name means."""
    found = _DEVICE.match(device.lower())
    if found is None:
        raise RowFault(f"device: {device[:40]!r} names no chip")
    try:
        return load_chip(catalog, found[1]).name
    except InputError:
        return load_chip(catalog, f"{found[1]}-{found[2]}gb").name


def _sizes(pattern: re.Pattern[str], shape: str) -> tuple[int, ...]:
    found = pattern.fullmatch(shape)
    sizes = tuple(int(size) for size in found.groups()) if found else ()
    if not sizes or min(sizes) < 1:
        raise RowFault(f"shape: {shape[:40]!r} is not read for this kind")
    return sizes
