"""Products on a bare systolic array, as a simulator of such arrays prints them."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.engines.analytic.matrix.systolic import ArrayConventions, ArrayTime
from trnbench.facts.workload.suite import Product
from trnbench.show.report import Report, columns
from trnbench.show.row import Row, cells


def systolic_report(
    products: Sequence[Product], times: Sequence[ArrayTime], conventions: ArrayConventions
) -> Report:
    """Return the report of some products on an array, a row each."""
    return Report(
        verb="matrix-array",
        inputs=cells(conventions, "rows columns dataflow overlap count_from_zero"),
        rows=tuple(_row(p, time) for p, time in zip(products, times, strict=True)),
        columns=(
            *columns("shape", "folds", "cycles_per_fold", "cycles"),
            *columns("utilization", "mapping_efficiency", "compute_utilization"),
        ),
        notes=(
            "nothing overlaps: each fold loads, streams and drains; cycles are counted from 0, as "
            "SCALE-Sim does",
        ),
    )


def _row(product: Product, time: ArrayTime) -> Row:
    return {
        "shape": f"{product.m}x{product.k}x{product.n}",
        **cells(product, "m k n batch"),
        "folds": int(time.folds),
        "cycles_per_fold": int(time.cycles_per_fold),
        "cycles": int(time.cycles),
        "utilization": float(time.overall_utilization),
        "mapping_efficiency": float(time.mapping_efficiency),
        "compute_utilization": float(time.compute_utilization),
    }
