"""Buckets in which software sends gradients and weights between replicas, from `specs/software`.

A bucket is one message: its latency is paid once, however many layers are in it.
"""

from __future__ import annotations

from trnbench.facts.catalog.quantity import Bytes, Total
from trnbench.facts.records import Record


class GradientBuckets(Record):
    """Size of a bucket: the largest of these."""

    parameters: Total = 0
    parameters_a_rank: Total = 0
    """Parameters for each rank that shares the exchange."""
    bytes: Bytes = 0.0

    def __post_init__(self) -> None:
        if not max(self.parameters, self.parameters_a_rank, self.bytes) > 0:
            raise ValueError("a bucket needs `parameters`, `parameters_a_rank` or `bytes` above 0")
