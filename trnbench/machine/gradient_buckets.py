"""Messages of a step's end: gradients and weights of many layers travel in buckets of the software.

What a chunk of a stage exchanges by one operation, with one set of ranks, is cut into buckets; less
than a bucket is one message.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.buckets import GradientBuckets
from trnbench.program.ops import CollectiveOp
from trnbench.program.step import StepProgram
from trnbench.program.tensor import array, element_bytes, total

REPLICAS = ("data", "expert_data", "shard", "expert_shard", "copies")
"""Axes of ranks with the same weights, or slices of them."""


def in_buckets(op: CollectiveOp, buckets: GradientBuckets | None) -> bool:
    """True of an exchange between replicas at the end of a step, by software with buckets."""
    return buckets is not None and op.phase == "optimizer" and op.axis in REPLICAS


def bucket_bytes(program: StepProgram, op: CollectiveOp, buckets: GradientBuckets) -> FloatArray:
    """Bytes of one message in which an exchange of a block travels with those of other blocks."""
    grid = program.grid
    together = total(
        program.instances(kind) * other.size_bytes * (other.count > 0)
        for kind, block in program.blocks.items()
        for other in block.collectives
        if (other.op, other.axis, other.phase) == (op.op, op.axis, op.phase)
    )
    parameters = np.maximum(buckets.parameters, buckets.parameters_a_rank * op.ranks)
    most = np.maximum(buckets.bytes, parameters * element_bytes(op.read.format))
    return array(np.minimum(most, np.maximum(together / (grid.pp * grid.vpp), 1.0)))
