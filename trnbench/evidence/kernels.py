"""Predicted kernels: published ones of Trainium cores, and those timed by `trnbench measure`.

Published products run the schedule named in a row's text, or else the best one, on the cores and by
the software that it names. In a kernel search the last step has the best schedule; the earlier
schedules are undocumented. A published memory-bound pass moves the bytes counted in a profile of
the same operator and shape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trnbench.engines.analytic.matrix.levels import ends_s, reached_time
from trnbench.engines.analytic.matrix.time import MatrixTime, stream_time_s
from trnbench.engines.analytic.step.compute import passed_time_s, product_time_s
from trnbench.engines.emulate.attention.run import run_attention
from trnbench.engines.emulate.tensor_engine.matrix import run_matrix
from trnbench.errors import InputError
from trnbench.evidence.attention_kernels import (
    TimedChips,
    attention_kernel,
    chip_of,
    interval_s,
    is_attention,
)
from trnbench.evidence.collectives import fitted
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.kernel_programs import PROGRAMS, KernelProgram, lowered
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet, RowFault
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, alone
from trnbench.facts.calibration.training_stack import load_chip_efficiency
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.library import load_chip, load_published
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, show
from trnbench.machine.tiling import DEFAULT_KERNEL, Kernel
from trnbench.machine.tiling.attention import FusedKernel
from trnbench.machine.tiling.kernel_levels import HAND_WRITTEN, KernelSoftware, at_level, level_of
from trnbench.machine.tiling.legality import rate_of
from trnbench.program.matrix import MatrixProduct, matrix_product, usual_result_format

ATTENTION: EvidenceSet = "attention_kernels"
"""Set of the rows of fused attention, in any file of kernels."""
ROW_BYTES = 8192
"""Bytes per partition and transfer of the streaming kernels: 2048 fp32 numbers."""

PRODUCT = "matmul"
"""Kernel name of matrix products in rows."""
STREAMS = ("copy", "triad")
"""Kernel names of memory-bound passes in rows."""

_MEGABYTE = 1e6
_POSSIBLE = 0.8
"""Least credible share of the busiest engine's modelled time."""
_OTHER = "the timed kernel is another: it holds whole rows of scores and has no running maximum"
_LIBRARY = "attention_cte"
"""The NKI library's kernel name; others are emulated as the training kernel."""
_STREAMS = ("adamw", "bmm", "rope_single_freq_apply")
"""Operators bound by memory traffic."""
_STREAM_SCATTER = 1.4
"""Factor about the time of a pass over memory, each way, within which four of five lie."""
_UNTUNED = ("baseline",)
_FAST_FP32 = "fp32 = 2 PE passes"
"""Note on kernels whose products run in a precision mode."""
_SOFTWARE: tuple[tuple[str, KernelSoftware], ...] = (
    ("torch.compile", "compiled"),
    ("neuronx.trace", "traced"),
)
_JOINED = " then "
"""Between a product and the collective that follows it, in a row's text."""
_USED = re.compile(r"(\d+)( logical)?(?:.*LNC(\d))?")
_BUSY = re.compile(r"all (\d+) busy")
_STARTED = "nkilib-cte-lnc2-b1-q256-k256-d128-causal-bf16"
"""Row behind the chip's program start time."""
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
_PRODUCT_SIZES = re.compile(r"([MKNB])(\d+)")
_CUBE = re.compile(r"(\d+)\^3")
_STEP = re.compile(r"search step (\d+)")


class KernelProduct(Record):
    """A matrix product (M, K, N) by a kernel's schedule or a compiler, on cores of a chip."""

    chip: str
    shape: tuple[int, int, int]
    number_format: str
    kernel: Kernel
    software: KernelSoftware = HAND_WRITTEN
    cores: int = 1
    busy: int = 1
    """All cores of the chip that worked."""
    assumed: tuple[str, ...] = ()

    def times(self, chip: Chip) -> tuple[MatrixTime, MatrixTime]:
        """Times as this software reaches them, and at the chip's documented rates."""
        found, sheet = reached_time(
            self._product(chip),
            chip,
            self.software,
            cores=self.cores,
            busy=self.busy,
            kernel=self.kernel,
        )
        if not found.feasible:
            raise RowFault("; ".join(found.reasons))
        return found, sheet

    def time_s(self, chip: Chip) -> float:
        return float(self.times(chip)[0].time_s)

    def played_s(self, chip: Chip) -> float:
        level, product = level_of(chip, self.software), self._product(chip)
        if self.software != HAND_WRITTEN:
            raise RowFault(f"the instructions of {self.software} kernels are not published")
        if level is not None and isinstance(chip.unit, NeuronCores):
            rate = rate_of(product, chip.unit, "native")
            chip = at_level(chip, rate, level, max(self.busy, self.cores))
        found = run_matrix(product, chip, cores=self.cores, kernel=self.kernel)
        if not found.feasible:
            raise RowFault("; ".join(found.reasons))
        return found.time_s

    def interval_s(self, chip: Chip, time_s: float) -> tuple[float | None, float | None]:
        """Ends of the 80 % interval about a time; none where no such kernel was timed."""
        level = level_of(chip, self.software)
        if level is None:
            return None, None
        low_s, high_s = ends_s(time_s, self.times(chip)[1], level)
        return float(low_s), float(high_s)

    def fitted_rows(self, chip: Chip) -> tuple[str, ...]:
        level = level_of(chip, self.software)
        return () if level is None else level.fitted_rows

    def _product(self, chip: Chip) -> MatrixProduct:
        return matrix_product(*self.shape, format_a=chip.format_named(self.number_format))


class Stream(Record):
    """A pass that moves `size_bytes` between memory and one core.

    A tuned one alone on its chip has the DMA engines of a pair of cores, and a stack of memory.
    """

    chip: str
    size_bytes: float
    tuned: bool = False
    assumed: tuple[str, ...] = ()

    def time_s(self, chip: Chip) -> float:
        own_s = stream_time_s(self.size_bytes, ROW_BYTES, chip)
        if not self.tuned or not isinstance(chip.unit, NeuronCores):
            return own_s
        stack_bytes_per_s = chip.memory.bandwidth_per_chip_bytes_per_s / (chip.memory.stacks or 1)
        return max(
            own_s / chip.unit.logical_default, min(own_s, self.size_bytes / stack_bytes_per_s)
        )

    def played_s(self, chip: Chip) -> float:
        raise RowFault(f"{chip.name}: passes over memory alone are not simulated")

    def interval_s(self, chip: Chip, time_s: float) -> tuple[float | None, float | None]:
        """Ends of the 80 % interval about a time."""
        return time_s / _STREAM_SCATTER, time_s * _STREAM_SCATTER

    def fitted_rows(self, chip: Chip) -> tuple[str, ...]:
        return ()


def compare_kernels(
    catalog: Catalog, file: EvidenceFile, *, played: bool = False
) -> tuple[Comparison, ...]:
    chips = TimedChips(catalog)
    return tuple(_compared(chips, file, row, played) for row in file.rows)


def kernel_of(
    row: EvidenceRow, rows: Sequence[EvidenceRow]
) -> KernelProduct | Stream | KernelProgram:
    """The kernel that a row timed; raise RowFault if it is not modelled."""
    name, stat = row.needed("kernel").lower(), row.text("latency_stat").lower()
    for word, reason in _NO_MEASUREMENT:
        if word in stat:
            raise RowFault(reason)
    operator = _operator(row)
    if operator in _STREAMS:
        return _stream(row, rows, operator)
    if operator in PROGRAMS:
        return _program(row, rows, operator)
    if not name.startswith(_PRODUCTS) or name.startswith("matmul_"):
        raise RowFault("kernel type not modelled")
    if _JOINED in name:
        raise RowFault("a product and the collective after it: two times in one")
    software = _software(name)
    kernel, assumed = _schedule(row, rows) if software == HAND_WRITTEN else (DEFAULT_KERNEL, ())
    cores, busy = _cores(row)
    return KernelProduct(
        chip=chip_of(row) or row.text("hardware"),
        shape=_shape(row),
        number_format=row.needed("dtype").lower(),
        kernel=kernel,
        software=software,
        cores=cores,
        busy=busy,
        assumed=assumed,
    )


def _software(kernel: str) -> KernelSoftware:
    return next((kind for word, kind in _SOFTWARE if word in kernel), HAND_WRITTEN)


def _cores(row: EvidenceRow) -> tuple[int, int]:
    """Physical cores that share the kernel, and all that worked; one where none is named."""
    text = row.text("cores_used")
    used = _USED.match(text)
    cores = int(used[1]) * (int(used[3] or 1) if used[2] else 1) if used else 1
    busy = _BUSY.search(text)
    return cores, max(cores, int(busy[1])) if busy else cores


def seconds(row: EvidenceRow) -> float:
    return row.positive("latency_ms") * 1e-3


def _compared(chips: TimedChips, file: EvidenceFile, row: EvidenceRow, played: bool) -> Comparison:
    blank = replace(
        Comparison.of_row(file, row, model="kernel", system="hardware"),
        set=ATTENTION if is_attention(row) else file.set,
        configuration=f"{row.text('hardware')} {row.text('kernel')} {row.text('shape')}",
        layout=row.text("shape") or None,
        precision=row.text("dtype") or None,
    )
    if row.fault is not None:
        return blank
    try:
        blank = replace(blank, measured_s=seconds(row))
        if is_attention(row):
            closed = _attention(chips, file, row, blank)
            return _played(chips.catalog, file, row, closed) if played else closed
        found = kernel_of(row, file.rows)
        chip = load_chip(chips.catalog, found.chip)
        blank = replace(blank, assumed=found.assumed, family=_family(found))
        time_s = found.played_s(chip) if played else found.time_s(chip)
        low_s, high_s = found.interval_s(chip, time_s)
        told = fitted(found.fitted_rows(chip), row.id)
        return replace(blank, predicted_s=time_s, low_s=low_s, high_s=high_s, fitted=told)
    except (RowFault, InputError) as fault:
        return replace(blank, reason=str(fault))


def _family(found: KernelProduct | Stream | KernelProgram) -> str:
    """Kind of kernel by which errors are counted."""
    if isinstance(found, KernelProduct):
        return f"{found.software} product"
    return "pass over memory" if isinstance(found, Stream) else "several operations"


def _attention(
    chips: TimedChips, file: EvidenceFile, row: EvidenceRow, blank: Comparison
) -> Comparison:
    kernel = attention_kernel(row, file.rows)
    on = chips.of(kernel.chip)
    time_s, low_s, high_s = interval_s(kernel, on)
    return replace(
        blank,
        predicted_s=time_s,
        low_s=low_s,
        high_s=high_s,
        fitted=fitted(on.efficiency.fitted_rows, row.id),
        platform=kernel.chip,
        assumed=kernel.assumed,
    )


def _played(
    catalog: Catalog, file: EvidenceFile, row: EvidenceRow, closed: Comparison
) -> Comparison:
    """Comparison of a call of fused attention with the emulation of a published kernel.

    The comparison notes if the row timed another algorithm. The chip's program start is added to a
    kernel timed alone.
    """
    timed = attention_kernel(row, file.rows)
    chip = load_chip(catalog, timed.chip)
    kernel: FusedKernel = "library" if _LIBRARY in row.text("kernel") else "training"
    unit = chip.unit
    if not isinstance(unit, NeuronCores):
        raise RowFault(f"{chip.name} has no NeuronCores to play on")
    run = run_attention(timed.call, chip, cores=timed.cores, kernel=kernel)
    time_s = run.time_s + (unit.program_start_s or 0.0)
    played = show(time_s, Dimension.SECONDS)
    if timed.bound:
        raise RowFault(f"a bound that a test asserts and no time; it plays in {played}")
    busiest, share = max(run.busy.items(), key=lambda item: item[1])
    if timed.flash and (closed.measured_s or 0.0) < _POSSIBLE * share * run.time_s:
        work = show(share * run.time_s, Dimension.SECONDS)
        raise RowFault(
            f"less than the {work} of the kernel's {busiest} engine alone: what ran was smaller "
            f"than the row says, which plays in {played}"
        )
    flop_per_s = chip.peak_flop_per_s(timed.number_format) * timed.cores / unit.count
    return replace(
        closed,
        predicted_s=time_s,
        closed_s=closed.predicted_s,
        low_s=None,
        high_s=None,
        ideal_s=float(timed.op.flop) / flop_per_s,
        played_as=f"{kernel} kernel{'' if timed.flash else ', timed another'}",
        family=f"{timed.chip} {'backward' if timed.backward else 'forward'}",
        assumed=timed.assumed if timed.flash else (*timed.assumed, _OTHER),
        fitted=row.id == _STARTED,
    )


def _operator(row: EvidenceRow) -> str:
    found = _OPERATOR.match(row.text("kernel").lower())
    return found[0] if found else row.text("kernel")


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
            chip = chip_of(row) or row.text("hardware")
            return Stream(
                chip=chip,
                size_bytes=moved * _MEGABYTE,
                tuned=not any(word in row.text("kernel").lower() for word in _UNTUNED),
                assumed=told,
            )
    raise RowFault(f"{operator}: no row tells how many bytes it moves")


def _program(row: EvidenceRow, rows: Sequence[EvidenceRow], operator: str) -> KernelProgram:
    name, sizes = row.text("kernel").lower(), _sizes(row)
    software = _software(name)
    if not sizes:
        # A row on the activity of another has its shape.
        same = next((one for one in rows if _operator(one) == operator and _sizes(one)), row)
        sizes = _sizes(same)
    counted = row.said("hbm_read_MB") and row.said("hbm_write_MB")
    moved = row.positive("hbm_read_MB") + row.positive("hbm_write_MB") if counted else None
    return KernelProgram(
        chip=chip_of(row) or row.text("hardware"),
        lowered=lowered(operator, sizes),
        number_format=(_OPERATOR.match(row.needed("dtype").lower()) or row.needed("dtype"))[0],
        tuned=software == HAND_WRITTEN and not any(word in name for word in _UNTUNED),
        software=software,
        cores=_cores(row)[0],
        fast=_FAST_FP32 in row.text("notes"),
        size_bytes=None if moved is None else moved * _MEGABYTE,
    )


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
        raise RowFault("intermediate result of a kernel search; schedule unpublished")
    return DEFAULT_KERNEL, (f"schedule: {DEFAULT_KERNEL}, the last step of a search",)


def compare_measured_kernels(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    return tuple(_compared_here(catalog, file, row) for row in file.rows)


def measured_product(row: EvidenceRow) -> MatrixProduct:
    """The product that a row timed."""
    sizes = {name: int(size) for name, size in _PRODUCT_SIZES.findall(row.needed("shape"))}
    if not {"M", "K", "N"} <= set(sizes) or min(sizes.values()) < 1:
        raise RowFault(f"shape: {row.text('shape')[:40]!r} does not give M, K and N")
    number_format = format_named(row.needed("dtype")).name
    return matrix_product(
        sizes["M"],
        sizes["K"],
        sizes["N"],
        batch=sizes.get("B", 1),
        format_a=number_format,
        format_out=usual_result_format(number_format),
    )


def _compared_here(catalog: Catalog, file: EvidenceFile, row: EvidenceRow) -> Comparison:
    blank = replace(
        Comparison.of_row(file, row, model="kernel", system="instance"),
        configuration=f"{row.text('kernel')} {row.text('shape')}",
        precision=row.text("dtype") or None,
    )
    if row.fault is not None:
        return blank
    try:
        blank = replace(blank, measured_s=seconds(row))
        instance = load_published(catalog, row.needed("instance"), "")
        if instance is None:
            raise RowFault(f"unknown instance {row.text('instance')[:40]!r}")
        chip = load_chip(catalog, instance.chip)
        efficiency = load_chip_efficiency(catalog, chip.name)
        return replace(
            blank,
            platform=instance.name,
            ranks=row.whole_if_said("ranks"),
            fitted=fitted(efficiency.fitted_rows, row.id),
            predicted_s=_predicted_s(row, chip, efficiency),
        )
    except (RowFault, InputError) as fault:
        return replace(blank, reason=str(fault))


def _predicted_s(row: EvidenceRow, chip: Chip, efficiency: ChipEfficiency) -> float:
    known = alone(efficiency)
    kernel = row.needed("kernel")
    if kernel == PRODUCT:
        return float(product_time_s(measured_product(row), chip, known))
    if kernel in STREAMS:
        return float(passed_time_s(row.positive("bytes"), chip, known))
    raise RowFault(f"{kernel}: the model counts it as part of a step, not by itself")
