"""Seconds of a program's exchanges on a platform, with a stack's factors and its samples.

Model of a message between stages: ranks of a tensor group that hold alike what they hand on send a
slice each, and the receivers gather it inside their group, as Megatron and DeepSpeed do.

Model of tokens on their way to experts: routers draw all nodes alike, so k copies of a token reach
n (1 - (1 - 1/n)^k) of n nodes. A stack that sends a token to a node once spares the network the
other copies; they are handed on inside the node meanwhile. Answers return the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trnbench.analytic.step.blocks import NOTHING, Purpose, purpose_of
from trnbench.analytic.step.collectives import CollectivePrices, Engines, PricedExchange
from trnbench.arrays import BoolArray, FloatArray
from trnbench.calibration.collective_stack import CollectiveStack
from trnbench.calibration.training_stack import RankOrder, TrainingEfficiency
from trnbench.hardware.instance import Platform
from trnbench.mapping.rank_groups import MEGATRON, NXD_TRN1, AxisOrder, groups_along
from trnbench.memo import Memo
from trnbench.program.legality import Reason
from trnbench.program.ops import CollectiveOp, Send
from trnbench.program.slot_times import Lane
from trnbench.program.step import StepProgram
from trnbench.program.tensor import ONE, Dim, array

ORDERS: Mapping[RankOrder, AxisOrder] = {"megatron": MEGATRON, "nxd-trn1": NXD_TRN1}

_NO_BYTES = Dim(name="nothing", size=array(0), whole=array(0))


def along(values: FloatArray, samples: int | None) -> FloatArray:
    """Return an array over layouts with room for the axis of samples, if there is one."""
    return values if samples is None else values[..., np.newaxis]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchanges:
    """The exchanges of a program; `refused` collects those that the stack cannot serve.

    `known`: seconds and refusals of what was asked for, for all programs on the same grid.
    """

    program: StepProgram
    efficiency: TrainingEfficiency
    prices: CollectivePrices
    samples: int | None
    refused: list[Reason] = field(default_factory=list)
    known: Memo[Hashable, tuple[FloatArray, tuple[Reason, ...]]] = field(
        default_factory=Memo, repr=False
    )

    def of(self, program: StepProgram) -> Exchanges:
        """Return the exchanges of another program on the same grid of layouts."""
        return replace(self, program=program, refused=[])

    def seconds(self, op: CollectiveOp) -> FloatArray:
        """Return the seconds of a collective in one run of its block."""
        key = (op.op, op.axis, *map(_numbers, (op.ranks, op.size_bytes, op.count)), op.copies)
        return self._known(key, lambda: self._seconds(op))

    def message_s(self) -> FloatArray:
        """Return the seconds of a micro-batch's messages from one chunk to the next stage."""
        sent = self._sent()
        key = tuple(
            (_numbers(send.size_bytes), _numbers(send.count), "tp" in send.tensor.axes)
            for send in sent
        )
        return self._known(key, lambda: self._message_s(sent))

    def latency_s(self) -> FloatArray:
        """Return the time of the same messages between stages without their bytes, s."""
        empty = (
            self._factored(self.prices.message(_cut(send, _NO_BYTES))) for send in self._sent()
        )
        return sum(empty, start=NOTHING)

    def crosses(self, op: CollectiveOp) -> FloatArray:
        """Return 1 where the groups of a collective span nodes, 0 where they do not."""
        return along(array(self._spans_nodes(op.axis, op.ranks)), self.samples)

    def lane(self, axis: str, ranks: FloatArray | None = None) -> Lane:
        """Return the lane of a scalar program's groups along an axis."""
        return "network" if self._spans_nodes(axis, ranks) else "links"

    def lanes(self) -> Mapping[Purpose, Lane]:
        """Return each purpose's lane in a scalar program: the network if any group spans nodes."""
        lanes: dict[Purpose, Lane] = {}
        for block in self.program.blocks.values():
            for op in block.collectives:
                if op.phase != "optimizer" and op.count > 0:
                    lane = self.lane(op.axis, op.ranks)
                    if lanes.get(purpose_of(op.axis)) != "network":
                        lanes[purpose_of(op.axis)] = lane
        return lanes

    def _spans_nodes(self, axis: str, ranks: FloatArray | None) -> BoolArray:
        groups = groups_along(axis, self.program.grid, self.prices.order, ranks)
        return groups.nodes(self.prices.ranks_per_node) > 1

    def _once_a_node(self, op: CollectiveOp) -> PricedExchange:
        per_node = self.prices.ranks_per_node
        groups = groups_along(op.axis, self.program.grid, self.prices.order, op.ranks)
        nodes, inside = groups.nodes(per_node), groups.ranks_in_node(per_node)
        spread = (nodes > 1) & (nodes * inside == groups.ranks)
        reached = nodes * (1 - (1 - 1 / np.maximum(nodes, 1)) ** op.copies)
        crossing = op.size_bytes * np.where(spread, reached / op.copies, 1.0)
        handing = np.where(spread, inside, 1)
        local = replace(groups, ranks=handing, period=handing * groups.stride)
        runs = op.count > 0
        across = self.prices.price(op.op, groups, crossing, runs=runs)
        within = self.prices.price(op.op, local, op.size_bytes, runs=runs & spread)
        return PricedExchange(
            time_s=np.maximum(across.time_s, within.time_s),
            refused=(*across.refused, *within.refused),
        )

    def _sent(self) -> tuple[Send, ...]:
        """Return one message for each tensor that stages hand on."""
        found = {
            send.tensor: send
            for stage in self.program.stages
            for send in stage.messages
            if send.phase == "F" and send.direction == "send" and stage.role != "last"
        }
        return tuple(found.values())

    def _seconds(self, op: CollectiveOp) -> FloatArray:
        once = op.copies > 1 and self.efficiency.stack.expert_tokens == "once-a-node"
        priced = self._once_a_node(op) if once else self.prices.collective(op)
        return self._factored(priced, op.count)

    def _message_s(self, sent: Sequence[Send]) -> FloatArray:
        slices = (
            self._factored(self.prices.message(_slice(send, self.program.grid.tp))) for send in sent
        )
        whole = (self._gathered(send) for send in sent if "tp" not in send.tensor.axes)
        return sum([*slices, *whole], start=NOTHING)

    def _gathered(self, send: Send) -> FloatArray:
        grid = self.program.grid
        groups = groups_along("tp", grid, self.prices.order)
        piped = (send.count > 0) & (grid.pp > 1)
        return self._factored(self.prices.price("all-gather", groups, send.size_bytes, runs=piped))

    def _factored(self, priced: PricedExchange, count: FloatArray = ONE) -> FloatArray:
        self.refused.extend(priced.refused)
        stack = self.efficiency.stack
        # Counts span few axes: they take the factor before they meet the times, which span many.
        times = along(count, self.samples) * (stack.communication * stack.whole_factor)
        return np.asarray(along(priced.time_s, self.samples) * times)

    def _known(self, key: Hashable, price: Callable[[], FloatArray]) -> FloatArray:
        """Return the seconds priced under a key, and collect what was refused on the way."""

        def priced() -> tuple[FloatArray, tuple[Reason, ...]]:
            before = len(self.refused)
            seconds = price()
            refused = tuple(self.refused[before:])
            del self.refused[before:]
            return seconds, refused

        seconds, refused = self.known.of(key, priced)
        self.refused.extend(refused)
        return seconds


def exchanges_of(
    program: StepProgram,
    platform: Platform,
    efficiency: TrainingEfficiency,
    collectives: CollectiveStack,
    *,
    logical_size: int | None = None,
    wanted: BoolArray | None = None,
    engines: Engines | None = None,
) -> Exchanges:
    """Return the exchanges of a program, to be priced when asked for; as in `step_prices`."""
    prices = CollectivePrices(
        platform=platform,
        stack=collectives,
        grid=program.grid,
        order=ORDERS[efficiency.stack.order],
        logical_size=logical_size,
        wanted=program.legal if wanted is None else wanted,
        engines={} if engines is None else engines,
    )
    return Exchanges(
        program=program, efficiency=efficiency, prices=prices, samples=efficiency.samples
    )


def _slice(send: Send, ranks: FloatArray) -> Send:
    """Return the slice of a tensor that one of the ranks which hold it alike sends."""
    if "tp" in send.tensor.axes:
        return send
    return _cut(send, Dim(name="slice", size=array(1 / ranks), whole=ONE, axes=("tp",)))


def _cut(send: Send, dim: Dim) -> Send:
    return replace(send, tensor=replace(send.tensor, dims=(*send.tensor.dims, dim)))


def _numbers(values: FloatArray) -> Hashable:
    """Return a key by which equal arrays are found again."""
    return values.shape, values.tobytes()
