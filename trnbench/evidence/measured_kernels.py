"""Kernels timed by `trnbench measure`, against their prediction in a step."""

from __future__ import annotations

import re

from trnbench.engines.analytic.step.compute import passed_time_s, product_time_s
from trnbench.errors import InputError
from trnbench.evidence.collectives import fitted
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.kernels import seconds
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, alone
from trnbench.facts.calibration.training_stack import load_chip_efficiency
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.library import load_chip, load_published
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import replace
from trnbench.program.matrix import MatrixProduct, matrix_product, usual_result_format

PRODUCT = "matmul"
"""Kernel name of matrix products in rows."""
STREAMS = ("copy", "triad")
"""Kernel names of memory-bound passes in rows."""
_SIZES = re.compile(r"([MKNB])(\d+)")


def compare_measured_kernels(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Every row of kernels that were timed here beside its prediction."""
    return tuple(_compared(catalog, file, row) for row in file.rows)


def measured_product(row: EvidenceRow) -> MatrixProduct:
    """The product that a row timed."""
    sizes = {name: int(size) for name, size in _SIZES.findall(row.needed("shape"))}
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


def _compared(catalog: Catalog, file: EvidenceFile, row: EvidenceRow) -> Comparison:
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
