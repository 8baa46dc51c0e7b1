"""Micro-batches in flight on the classes of stages of a pipeline, for some layouts of a grid."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.workload.layout import Schedule
from trnbench.program.grid import Grid
from trnbench.program.points import Pick
from trnbench.program.schedule import InFlight, in_flight
from trnbench.program.stages import StageClass, is_behind
from trnbench.program.tensor import ONE

Flights: TypeAlias = dict[tuple[Schedule, str], InFlight]
"""Micro-batches in flight on each class of stages by schedule, for some layouts."""


class StageFlights:
    """Micro-batches that the stages of some layouts hold at once, remembered in `known`."""

    def __init__(
        self,
        grid: Grid,
        schedule: Schedule,
        pick: Pick,
        known: Flights,
        micro_batches: FloatArray | None = None,
    ) -> None:
        self._grid, self._schedule, self._pick, self._known = grid, schedule, pick, known
        self._given = micro_batches

    @cached_property
    def micro_batches(self) -> FloatArray:
        """Micro-batches of a step: the given ones, else those of each layout."""
        return self._grid.micro_batches_of(self._pick) if self._given is None else self._given

    @cached_property
    def pp(self) -> FloatArray:
        return self._pick(self._grid.pp)

    @cached_property
    def vpp(self) -> FloatArray:
        # No other schedule has chunks.
        return self._pick(self._grid.vpp) if self._schedule == "interleaved" else ONE

    def of(self, stage: StageClass, kind: str = "") -> InFlight:
        """Micro-batches that blocks of a kind keep on a stage."""
        if is_behind(kind):
            return self._behind(stage)
        key = self._schedule, stage.role
        if key not in self._known:
            self._known[key] = self._flight(self._pick(stage.index))
        return self._known[key]

    def _flight(self, index: FloatArray) -> InFlight:
        return in_flight(
            self._schedule,
            pp=self.pp,
            vpp=self.vpp,
            micro_batches=self.micro_batches,
            stage=index,
        )

    def _behind(self, stage: StageClass) -> InFlight:
        """Micro-batches kept by blocks behind the last layer."""
        # On another stage than the output block's, each waits for the stages behind it and back.
        if stage.role in ("only", "last"):
            return self._output()
        if self._schedule != "interleaved":
            return self.of(stage)
        # These blocks are in the last chunk: a micro-batch passes the stages behind and is back.
        behind = np.minimum(self.pp - self._pick(stage.index), self.micro_batches)
        held = np.where(self.micro_batches == self.pp, self.micro_batches, behind)
        return InFlight(until_backward=held, until_weight=held)

    def _output(self) -> InFlight:
        """Micro-batches kept by the output block, which is in the last chunk."""
        # There a backward slot follows each forward slot, unless all forward slots come first.
        key = self._schedule, "output"
        if key not in self._known:
            if self._schedule != "interleaved":
                self._known[key] = self._flight(np.asarray(self.pp - 1))
            else:
                all_first = self.micro_batches == self.pp
                held = np.where(all_first, self.micro_batches, 1.0)
                self._known[key] = InFlight(until_backward=held, until_weight=held)
        return self._known[key]
