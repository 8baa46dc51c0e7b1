"""How many micro-batches a pipeline stage holds at once, which decides its activation memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.schedule import forwards_ahead, splits_backward
from trnbench.program.schedule_rules import Degrees
from trnbench.workload.layout import Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InFlight:
    """Peak number of micro-batches a stage holds, in whole stages: a chunk counts 1 / vpp.

    `until_backward` counts from the forward to the end of the backward slot, `until_weight` to the
    end of the weight gradients; they differ only where the schedule splits the two.
    """

    until_backward: FloatArray
    until_weight: FloatArray


def in_flight(
    schedule: Schedule, *, pp: Degrees, vpp: Degrees, micro_batches: Degrees, stage: Degrees
) -> InFlight:
    """Return the micro-batches that legal schedules hold on a stage (counted from 0)."""
    total = np.multiply(micro_batches, vpp)
    ahead = forwards_ahead(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, stage=stage)
    if splits_backward(schedule):
        until_weight = np.minimum(total, pp) + 0 * ahead
        return InFlight(until_backward=ahead / vpp, until_weight=until_weight / vpp)
    held = np.minimum(ahead + 1, total) / vpp
    return InFlight(until_backward=held, until_weight=held)
