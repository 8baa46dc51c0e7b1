"""Scaling curves: a family of layouts on more and more nodes."""

from __future__ import annotations

from typing import Literal

from trnbench.facts.records import Record
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.show.row import Row
from trnbench.verbs.quotes.answer import Quote

Scaling = Literal["strong", "weak"]


class ScalingCurve(Record):
    """One instance type: a layout family, whose replicas grow with the nodes, on each of them.

    `family` is the layout that the comparison takes, on `nodes`; None where the model never runs.
    """

    instance: str
    nodes: int
    family: PartialLayout | None
    points: tuple[Quote, ...]

    @property
    def running(self) -> tuple[Quote, ...]:
        """The points at which it runs."""
        return tuple(quote for quote in self.points if quote.step.step is not None)

    def efficiency(self, quote: Quote) -> float | None:
        """Return the throughput of a node over that of a node of the smallest cluster."""
        mine = quote.samples_per_s
        if mine is None:
            return None
        first = self.running[0]
        return mine / quote.nodes / ((first.samples_per_s or mine) / first.nodes)


class ScalingAnswer(Record):
    """Scaling of a model on some instance types; the batch grows with the nodes if it is weak."""

    model: str
    scaling: Scaling
    curves: tuple[ScalingCurve, ...]
    complete: bool

    @property
    def positive(self) -> bool:
        """Whether every instance type runs the model on some of its clusters."""
        return bool(self.curves) and all(curve.running for curve in self.curves)

    def rows(self) -> tuple[Row, ...]:
        """Return the row of each point of each curve."""
        return tuple(
            {
                **quote.row(),
                "scaling": self.scaling,
                "efficiency": curve.efficiency(quote),
            }
            for curve in self.curves
            for quote in curve.points
        )
