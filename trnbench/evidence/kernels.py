"""Kernels of one Trainium core, predicted: blocked matrix products and passes that only stream.

Products run the schedule that a row's text names, or else the best one. Of a search for a good
kernel the last step has that; those between have schedules nobody described. A streaming pass moves
the bytes that a profile of the same operator and shape counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trnbench.analytic.matrix.stream import stream_time_s
from trnbench.analytic.matrix.time import matrix_time
from trnbench.catalog.search import Catalog
from trnbench.errors import InputError
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.hardware.chip import Chip
from trnbench.hardware.library import load_chip
from trnbench.mapping.tiling.schedule import DEFAULT_KERNEL, Kernel
from trnbench.numerics.formats import format_named
from trnbench.program.matrix import matrix_product

ROW_BYTES = 8192
"""What a partition of the streaming kernels transfers at once: 2048 numbers of fp32."""

_MEGABYTE = 1e6
_STREAMS = ("adamw", "bmm", "rope_single_freq_apply")
"""Operators that move far more than they multiply."""
_PRODUCTS = ("matmul", "gemm", "nki gemm", "einsum ij,jk")
_SCHEDULES: tuple[tuple[str, Kernel], ...] = (
    ("naive", "naive"),
    ("load per matmul", "naive"),
    ("hoisted", "hoisted"),
    ("blocked free", "blocked-free"),
    ("blocked", "blocked"),
)
_NO_MEASUREMENT = (
    ("host", "timed on the host, where dispatch takes longer than the kernel"),
    ("target", "a design target, not a measurement"),
    ("threshold", "inferred from a grading threshold"),
)
_OPERATOR = re.compile(r"[a-z_0-9]+")
_SIZES = re.compile(r"\b([A-Z]{1,2})\s*:?\s*(\d+)\b")
_CUBE = re.compile(r"(\d+)\^3")
_STEP = re.compile(r"search step (\d+)")
_CHIP = re.compile(r"trn(\d)(?:/inf\d)?(?:\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProduct:
    """A matrix product (M, K, N) by a kernel schedule on one core."""

    chip: str
    shape: tuple[int, int, int]
    number_format: str
    kernel: Kernel
    assumed: tuple[str, ...] = ()

    def time_s(self, chip: Chip) -> float:
        """Return the closed form's time, s."""
        product = matrix_product(*self.shape, format_a=self.number_format)
        found = matrix_time(product, chip, kernel=self.kernel)
        if not found.feasible:
            raise RowFault("; ".join(found.reasons))
        return float(found.time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A pass that moves so many bytes between memory and one core."""

    chip: str
    size_bytes: float
    assumed: tuple[str, ...] = ()

    def time_s(self, chip: Chip) -> float:
        """Return the closed form's time, s."""
        return stream_time_s(self.size_bytes, ROW_BYTES, chip)


def compare_kernels(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Return every row of a set of kernels beside its prediction."""
    return tuple(_compared(catalog, file, row) for row in file.rows)


def kernel_of(row: EvidenceRow, rows: Sequence[EvidenceRow]) -> KernelProduct | Stream:
    """Return the kernel that a row timed; raise RowFault if it is not modelled."""
    name, stat = row.needed("kernel").lower(), row.text("latency_stat").lower()
    for word, reason in _NO_MEASUREMENT:
        if word in stat:
            raise RowFault(reason)
    operator = _operator(row)
    if operator in _STREAMS:
        return _stream(row, rows, operator)
    if not name.startswith(_PRODUCTS) or name.startswith("matmul_"):
        raise RowFault("neither a matrix product nor a pass that only streams")
    kernel, assumed = _schedule(row, rows)
    return KernelProduct(
        chip=_chip(row),
        shape=_shape(row),
        number_format=format_named(row.needed("dtype")).name,
        kernel=kernel,
        assumed=assumed,
    )


def seconds(row: EvidenceRow) -> float:
    """Return the measured time of a kernel, s."""
    return row.positive("latency_ms") * 1e-3


def _compared(catalog: Catalog, file: EvidenceFile, row: EvidenceRow) -> Comparison:
    blank = replace(
        Comparison.of_row(file, row, model="kernel", system="hardware"),
        configuration=f"{row.text('hardware')} {row.text('kernel')} {row.text('shape')}",
        layout=row.text("shape") or None,
        precision=row.text("dtype") or None,
    )
    if row.fault is not None:
        return blank
    try:
        blank = replace(blank, measured_s=seconds(row))
        found = kernel_of(row, file.rows)
        blank = replace(blank, assumed=found.assumed)
        return replace(blank, predicted_s=found.time_s(load_chip(catalog, found.chip)))
    except (RowFault, InputError) as fault:
        return replace(blank, reason=str(fault))


def _operator(row: EvidenceRow) -> str:
    found = _OPERATOR.match(row.text("kernel").lower())
    return found[0] if found else row.text("kernel")


def _chip(row: EvidenceRow) -> str:
    text = row.needed("hardware")
    found = _CHIP.match(text)
    return f"trainium{found[1]}" if found else text


def _sizes(row: EvidenceRow) -> dict[str, int]:
    return {name: int(size) for name, size in _SIZES.findall(row.text("shape"))}


def _shape(row: EvidenceRow) -> tuple[int, int, int]:
    cube = _CUBE.fullmatch(row.text("shape"))
    if cube:
        return (int(cube[1]),) * 3
    sizes = _sizes(row)
    if not {"M", "K", "N"} <= set(sizes):
        raise RowFault(f"shape: {row.text('shape')!r} does not give M, K and N")
    return sizes["M"], sizes["K"], sizes["N"]


def _stream(row: EvidenceRow, rows: Sequence[EvidenceRow], operator: str) -> Stream:
    for other in (row, *rows):
        alike = _operator(other) == operator and _sizes(other) == _sizes(row)
        if alike and other.said("hbm_read_MB") and other.said("hbm_write_MB"):
            moved = other.positive("hbm_read_MB") + other.positive("hbm_write_MB")
            told = () if other is row else (f"memory traffic as counted for {other.id}",)
            return Stream(chip=_chip(row), size_bytes=moved * _MEGABYTE, assumed=told)
    raise RowFault(f"{operator}: no row tells how many bytes it moves")


def _schedule(row: EvidenceRow, rows: Sequence[EvidenceRow]) -> tuple[Kernel, tuple[str, ...]]:
    name = row.text("kernel").lower()
    for word, kernel in _SCHEDULES:
        if word in name:
            return kernel, ()
    step = _STEP.search(name)
    if step is None:
        return DEFAULT_KERNEL, (f"schedule: {DEFAULT_KERNEL}",)
    last = max(
        int(found[1])
        for other in rows
        if (found := _STEP.search(other.text("kernel").lower()))
        and all(other.text(key) == row.text(key) for key in ("hardware", "shape", "dtype"))
    )
    if int(step[1]) != last:
        raise RowFault("a step on the way of a search: its schedule was not described")
    return DEFAULT_KERNEL, (f"schedule: {DEFAULT_KERNEL}, the last step of a search",)
