"""A collective of one size on one cluster by one engine."""

from __future__ import annotations

from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.records import Record
from trnbench.show.row import Row, cells
from trnbench.show.trace import TraceSpan


class LinkLoad(Record):
    """Load of one link: its name, its share of the time at full speed, its bytes."""

    name: str
    level: str
    busy: float
    size_bytes: float


class Plane(Record):
    """One unit of a 2D torus: busy shares of the links right of and below each chip, both ways.

    `onward`: those of the links of each chip along further axes, such as that between planes.
    """

    name: str
    shape: tuple[int, int]
    right: tuple[float, ...]
    below: tuple[float, ...]
    onward: tuple[float, ...] = ()


class CollectiveAnswer(Record):
    """One collective of one size on one cluster by one engine; figures are None where it is no.

    `size_bytes` counts as nccl-tests does. `bound_s`: what no algorithm can beat on these links.
    `together_s`: the time while the collectives asked for run beside it. `passed_over`: algorithms
    that the stack's table puts first and why they could not be used. Bandwidths are None where
    nothing takes time.
    """

    op: str
    instance: str
    nodes: int
    ranks: int
    group_size: int
    size_bytes: float
    elements: int
    number_format: str
    engine: str
    stack: str
    evidence: Kind
    time_s: float | None = None
    algbw_bytes_per_s: float | None = None
    busbw_bytes_per_s: float | None = None
    bound_s: float | None = None
    bound_by: str | None = None
    algorithm: str | None = None
    tuning: str | None = None
    passed_over: tuple[str, ...] = ()
    check: str | None = None
    together_s: float | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    links: tuple[LinkLoad, ...] = ()
    tori: tuple[Plane, ...] = ()
    spans: tuple[TraceSpan, ...] = ()

    @property
    def feasible(self) -> bool:
        return not self.reasons

    def row(self, *, links: bool = False) -> Row:
        """Return the row, with the load of every link where `links` are wanted."""
        row = {
            **cells(self, "op instance nodes ranks group_size"),
            "size_bytes": int(size) if (size := self.size_bytes) == int(size) else size,
            **cells(self, "elements dtype=number_format engine time_s algbw_bytes_per_s"),
            **cells(self, "busbw_bytes_per_s together_s bound_s"),
            "of_bound": self.bound_s / self.time_s if self.bound_s and self.time_s else None,
            **cells(self, "bound_by algorithm tuning passed_over check calibration=stack"),
            **cells(self, "evidence=evidence.word feasible reasons warnings"),
        }
        if links:
            row["links"] = [
                cells(link, "link=name level busy bytes=size_bytes") for link in self.links
            ]
        return row
