"""Seconds of a program's exchanges on a platform, with a stack's factors and its samples.

Model of a message between stages: ranks of a tensor group that hold alike what they hand on send a
slice each, and the receivers gather it inside their group, as Megatron and DeepSpeed do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from trnbench.analytic.step_blocks import NOTHING, Purpose, purpose_of
from trnbench.analytic.step_collectives import CollectivePrices, Priced
from trnbench.mapping.rank_groups import groups_along
from trnbench.program.legality import Reason
from trnbench.program.ops import CollectiveOp, Send
from trnbench.program.step import StepProgram
from trnbench.program.tensor import ONE, Dim, FloatArray, array
from trnbench.spec.training_stack import TrainingEfficiency

Lane: TypeAlias = Literal["links", "network"]
"""Inside nodes, or between them."""

_NO_BYTES = Dim(name="nothing", size=array(0), whole=array(0))


def along(values: FloatArray, efficiency: TrainingEfficiency) -> FloatArray:
    """Return an array over layouts with room for the axis of samples, if there is one."""
    return values if efficiency.samples is None else values[..., np.newaxis]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchanges:
    """The exchanges of a program; `refused` collects those that the stack cannot serve."""

    program: StepProgram
    efficiency: TrainingEfficiency
    prices: CollectivePrices
    refused: list[Reason] = field(default_factory=list)

    def seconds(self, op: CollectiveOp) -> FloatArray:
        """Return what a collective takes in one run of its block, s."""
        return self._factored(self.prices.collective(op), op.count)

    def message_s(self) -> FloatArray:
        """Return what a micro-batch takes from one chunk to the next stage, s."""
        sent = self._sent()
        slices = (
            self._factored(self.prices.message(_slice(send, self.program.grid.tp))) for send in sent
        )
        whole = (self._gathered(send) for send in sent if "tp" not in send.tensor.axes)
        return sum([*slices, *whole], start=NOTHING)

    def latency_s(self) -> FloatArray:
        """Return the time of the same messages between stages without their bytes, s."""
        empty = (
            self._factored(self.prices.message(_cut(send, _NO_BYTES))) for send in self._sent()
        )
        return sum(empty, start=NOTHING)

    def lane(self, axis: str, ranks: FloatArray | None = None) -> Lane:
        """Return where groups along an axis of a scalar program meet."""
        groups = groups_along(axis, self.program.grid, self.prices.order, ranks)
        return "network" if groups.nodes(self.prices.ranks_per_node) > 1 else "links"

    def lanes(self) -> Mapping[Purpose, Lane]:
        """Return where a scalar program's slots exchange: between nodes if any such group does."""
        lanes: dict[Purpose, Lane] = {}
        for block in self.program.blocks.values():
            for op in block.collectives:
                if op.phase != "optimizer" and op.count > 0:
                    lane = self.lane(op.axis, op.ranks)
                    if lanes.get(purpose_of(op.axis)) != "network":
                        lanes[purpose_of(op.axis)] = lane
        return lanes

    def _sent(self) -> tuple[Send, ...]:
        """Return one message for each tensor that stages hand on."""
        found = {
            send.tensor: send
            for stage in self.program.stages
            for send in stage.messages
            if send.phase == "F" and send.direction == "send" and stage.role != "last"
        }
        return tuple(found.values())

    def _gathered(self, send: Send) -> FloatArray:
        grid = self.program.grid
        groups = groups_along("tp", grid, self.prices.order)
        piped = (send.count > 0) & (grid.pp > 1)
        return self._factored(self.prices.price("all-gather", groups, send.size_bytes, runs=piped))

    def _factored(self, priced: Priced, count: FloatArray = ONE) -> FloatArray:
        self.refused.extend(priced.refused)
        stack = self.efficiency.stack
        seconds = along(priced.time_s * count, self.efficiency)
        return np.asarray(seconds * (stack.communication * stack.whole_factor))


def _slice(send: Send, ranks: FloatArray) -> Send:
    """Return what one of the ranks that hold a tensor alike sends of it."""
    if "tp" in send.tensor.axes:
        return send
    return _cut(send, Dim(name="slice", size=array(1 / ranks), whole=ONE, axes=("tp",)))


def _cut(send: Send, dim: Dim) -> Send:
    return replace(send, tensor=replace(send.tensor, dims=(*send.tensor.dims, dim)))
