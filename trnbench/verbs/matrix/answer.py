"""A matrix product on one chip by one engine."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.analytic.matrix.time import roofline
from trnbench.engines.emulate.tensor_engine.machine import TraceEvent
from trnbench.engines.execute.numbers.accuracy import ErrorReport
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.records import Record, field
from trnbench.facts.workload.library import Product
from trnbench.show.row import Row, cells

_FIGURES = (
    "time_s cycles flop flop_per_s utilization bytes=size_bytes intensity_flop_per_byte "
    "peak_flop_per_s roofline_flop_per_s memory_bytes_per_s binds parts_s engine_utilization "
    "stalls_s"
)
"""What a product that cannot run has none of."""


class MatrixAnswer(Record):
    """One product on one chip by one engine; figures are NaN where it cannot run.

    `size_bytes` is what moves at the chip's memory. `evidence` is the weakest kind of chip figure
    the time rests on.
    """

    product: Product
    chip: str
    number_format: str
    engine: str
    kernel: str | None
    cores: int
    time_s: float
    cycles: float
    flop: float
    peak_flop_per_s: float
    size_bytes: float
    memory_bytes_per_s: float
    binds: str
    parts_s: Mapping[str, float]
    engine_utilization: Mapping[str, float] = field(default_factory=dict)
    stalls_s: Mapping[str, float] = field(default_factory=dict)
    evidence: Kind
    reasons: tuple[str, ...]
    numbers: ErrorReport | None = None
    events: tuple[TraceEvent, ...] = ()

    @property
    def feasible(self) -> bool:
        """Return whether the product can run."""
        return not self.reasons

    @property
    def shape(self) -> str:
        """The product as people write it: 128x512x64, with its batch behind if it has one."""
        product = self.product
        batch = f" x{product.batch}" if product.batch != 1 else ""
        return f"{product.m}x{product.k}x{product.n}{batch}"

    @property
    def flop_per_s(self) -> float:
        """Return operations carried out per second."""
        return self.flop / self.time_s

    @property
    def utilization(self) -> float:
        """Return the achieved part of the tensor units' peak in this format."""
        return self.flop_per_s / self.peak_flop_per_s

    @property
    def intensity_flop_per_byte(self) -> float:
        """Return operations per byte at memory."""
        return self.flop / self.size_bytes

    @property
    def roofline_flop_per_s(self) -> float:
        """Return the most that peak and memory allow at this intensity."""
        at = self.intensity_flop_per_byte
        return float(roofline(at, self.peak_flop_per_s, self.memory_bytes_per_s))

    def row(self) -> Row:
        """Return the row: times in seconds, sizes in bytes, rates in FLOP/s."""
        row = {
            **cells(self, "shape label=product.label m=product.m k=product.k n=product.n"),
            **cells(self, "batch=product.batch chip dtype=number_format engine kernel cores"),
            **cells(self, "feasible reasons evidence=evidence.word"),
            **cells(self if self.feasible else None, _FIGURES),
        }
        if self.numbers is not None:
            errors = "max_absolute_error=max_abs max_relative_error=max_rel"
            row |= cells(self.numbers, f"{errors} rms_relative_error=rms_rel bound_use")
            row["check"] = "ok" if self.numbers.within_bound else "FAILED"
        return row
