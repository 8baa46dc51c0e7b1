"""Cycles of a systolic array under stated conventions: which operand stays, what overlaps.

Model: an array of R x C processing elements holds or accumulates an a x b plane in ceil(a/R) x
ceil(b/C) folds and streams t columns through each. Without overlap a fold loads its stationary tile
(R cycles, none where the output stays), streams, and drains through the skew of both sides; the
next starts after it. With overlap only the streaming counts; a Trainium tensor engine then is the
`is` flow, with its own limits on a tile.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.program.matrix import MatrixProduct

Dataflow: TypeAlias = Literal["ws", "is", "os"]


class ArrayConventions(Record):
    """The conventions by which cycles are counted."""

    dataflow: Dataflow  # operand that stays in the array: b (`ws`), a (`is`) or the result (`os`)
    rows: int
    columns: int
    overlap: bool  # Loads and drains hide behind the streaming of other tiles
    count_from_zero: bool  # The figure is the index of the last cycle, one less than their number


SCALE_SIM = ArrayConventions(
    dataflow="ws", rows=128, columns=128, overlap=False, count_from_zero=True
)


class ArrayTime(Record, eq=False):
    """Cycles of an array and three utilisations of its processing elements (0 to 1)."""

    folds: FloatArray
    cycles_per_fold: FloatArray
    cycles: FloatArray
    overall_utilization: FloatArray
    mapping_efficiency: FloatArray  # Elements used while streaming
    compute_utilization: FloatArray
    """Mapping efficiency times the share of a fold's cycles in which it streams."""


def array_time(product: MatrixProduct, conventions: ArrayConventions) -> ArrayTime:
    """Cycles and utilisations of one product (times its batch) on the array."""
    down, across, streamed = _planes(product, conventions.dataflow)
    rows, columns = conventions.rows, conventions.columns
    folds = np.ceil(down / rows) * np.ceil(across / columns)
    skew = 0 if conventions.overlap else rows + columns - 2
    load = 0 if conventions.overlap or conventions.dataflow == "os" else rows
    per_fold = streamed + skew + load
    # With overlap a fold costs its streaming only: loads and drains hide behind other folds.
    cycles = folds * per_fold * product.batch - (1 if conventions.count_from_zero else 0)
    mapping = down * across / (folds * rows * columns)
    # Where an operand stays, the peer tool counts the skew over the columns a second time.
    counted = per_fold + (columns - 1 if load else 0)
    products = product.m * product.n * product.k * product.batch
    return ArrayTime(
        folds=folds,
        cycles_per_fold=per_fold,
        cycles=cycles,
        overall_utilization=products / (cycles * rows * columns),
        mapping_efficiency=mapping,
        compute_utilization=mapping * streamed / counted,
    )


def _planes(
    product: MatrixProduct, dataflow: Dataflow
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sizes (on the rows, on the columns, streamed)."""
    if dataflow == "ws":
        return product.k, product.n, product.m
    if dataflow == "is":
        return product.k, product.m, product.n
    return product.m, product.n, product.k
