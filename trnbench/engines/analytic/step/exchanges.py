"""Seconds of a program's exchanges on a platform, with a stack's factors and its samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from trnbench.engines.analytic.step.blocks import NOTHING
from trnbench.engines.analytic.step.collectives import (
    CollectivePrices,
    PricedExchange,
    groups_key,
    numbers_key,
)
from trnbench.engines.analytic.step.engines import Engines
from trnbench.facts.arrays import BoolArray, FloatArray, slowest_node
from trnbench.facts.calibration.buckets import GradientBuckets
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.gradient_buckets import bucket_bytes, in_buckets
from trnbench.machine.rank_groups import ORDERS, handed_on
from trnbench.program.ops import CollectiveOp, Send
from trnbench.program.reasons import Reason
from trnbench.program.step import StepProgram, messages_of, slice_of
from trnbench.program.tensor import ONE, array


def along(values: FloatArray, samples: int | None) -> FloatArray:
    """An array over layouts with room for the axis of samples, if there is one."""
    return values if samples is None else values[..., np.newaxis]


class Exchanges(Record, eq=False):
    """The exchanges of a program on a platform, priced on request."""

    program: StepProgram
    efficiency: TrainingEfficiency
    prices: CollectivePrices
    samples: int | None
    refused: list[Reason] = field(default_factory=list)  # what the stack cannot serve
    known: Memo[Hashable, tuple[FloatArray, tuple[Reason, ...]]] = field(default_factory=Memo)
    """Seconds and refusals of earlier requests, for all programs on the same grid."""
    buckets: Memo[tuple[StepProgram, CollectiveOp], FloatArray] = field(default_factory=Memo)
    """Bytes of messages that several blocks share."""

    def of(self, program: StepProgram) -> Exchanges:
        return replace(self, program=program, refused=[])

    def seconds(self, op: CollectiveOp) -> FloatArray:
        return self.seconds_of([op])[op]

    def seconds_of(self, ops: Iterable[CollectiveOp]) -> Mapping[CollectiveOp, FloatArray]:
        """Seconds of many collectives, priced together."""
        keys = {op: self._key(op) for op in ops}
        fresh = {key: op for op, key in keys.items() if key not in self.known}
        buckets = self.efficiency.buckets
        plain = {
            key: op
            for key, op in fresh.items()
            if not (self._is_once_a_node(op) or in_buckets(op, buckets))
        }
        priced = dict(zip(plain, self.prices.collectives([*plain.values()]), strict=True))
        return {
            op: self._known(key, partial(self._seconds, op, priced.get(key)))
            for op, key in keys.items()
        }

    def message_s(self) -> FloatArray:
        """Seconds of a micro-batch's messages from one chunk to the next stage."""
        sent = messages_of(self.program)
        key = tuple(
            (numbers_key(send.size_bytes), numbers_key(send.count), "tp" in send.tensor.axes)
            for send in sent
        )
        return self._known(key, lambda: self._message_s(sent))

    def crosses(self, op: CollectiveOp) -> FloatArray:
        """1 where the groups of a collective span nodes, 0 where they do not."""
        key = "crosses", groups_key(op.axis, op.ranks)
        return self._known(
            key, lambda: along(array(self._spans_nodes(op.axis, op.ranks)), self.samples)
        )

    def experts_cross(self) -> FloatArray:
        """1 where experts of a token are on several nodes, 0 where they are on one."""
        spread = (self.program.grid.ep > 1) & self._spans_nodes("ep", None)
        return along(array(spread), self.samples)

    def pipelines_cross(self) -> FloatArray:
        """1 where messages between stages leave the node, 0 where none does."""
        piped = self.program.grid.pp > 1
        return along(array(piped & self._spans_nodes("pp", None)), self.samples)

    def _spans_nodes(self, axis: str, ranks: FloatArray | None) -> BoolArray:
        groups = self.prices.along(axis, ranks)
        return groups.nodes(self.prices.ranks_per_node) > 1

    def slowest_node(self) -> FloatArray:
        """Time of the slowest of a layout's nodes over a typical one's."""
        scatter = self.efficiency.stack.node_scatter
        per_node = self.prices.ranks_per_node / self.prices.platform.joined_nodes

        def found() -> FloatArray:
            # The slowest of n nodes gets slower with n, so this depends on the layout's world.
            nodes = np.ceil(self.program.grid.ranks("world") / per_node)
            nodes = np.where(self.prices.wanted_in(nodes.shape), nodes, 1.0)
            return slowest_node(scatter, along(nodes, self.samples))

        return self._known("slowest node", found)

    def _is_once_a_node(self, op: CollectiveOp) -> bool:
        """True of tokens sent to a node once, not a copy for each of its experts."""
        return op.copies > 1 and self.efficiency.stack.dispatcher_of(op.sent_by) != "alltoall"

    def _once_a_node(self, op: CollectiveOp) -> PricedExchange:
        per_node = self.prices.ranks_per_node
        groups = self.prices.along(op.axis, op.ranks)
        crossing, local = handed_on(groups, per_node, op.copies)
        runs = op.count > 0
        across = self.prices.price(op.op, groups, op.size_bytes * crossing, runs=runs)
        within = self.prices.price(op.op, local, op.size_bytes, runs=runs & (local.ranks > 1))
        # Tokens cross the network once per node and are handed on inside: both run at the same
        # time.
        return PricedExchange(
            time_s=np.maximum(across.time_s, within.time_s),
            refused=(*across.refused, *within.refused),
        )

    def _in_bucket(self, op: CollectiveOp, buckets: GradientBuckets) -> PricedExchange:
        """A block's part of the messages in which the layers of a chunk travel together."""
        groups = self.prices.along(op.axis, op.ranks)
        size_bytes, runs = self._message_bytes(op, buckets), op.count > 0
        # A sum over all ranks holds either half of it: of tiny messages it is the quicker way.
        ways: tuple[Op, Op] = (op.op, "all-reduce")
        found, whole = self.prices.prices(ways, groups, size_bytes, runs=runs)
        share = op.size_bytes / size_bytes
        return replace(found, time_s=np.fmin(found.time_s, whole.time_s) * share)

    def _message_bytes(self, op: CollectiveOp, buckets: GradientBuckets) -> FloatArray:
        key = self.program, op
        return self.buckets.of(key, lambda: bucket_bytes(self.program, op, buckets))

    def _price(self, op: CollectiveOp) -> PricedExchange:
        buckets = self.efficiency.buckets
        if buckets is not None and in_buckets(op, buckets):
            return self._in_bucket(op, buckets)
        return self._once_a_node(op)

    def _key(self, op: CollectiveOp) -> Hashable:
        buckets = self.efficiency.buckets
        held = None
        if buckets is not None and in_buckets(op, buckets):
            held = numbers_key(self._message_bytes(op, buckets))
        sizes = map(numbers_key, (op.size_bytes, op.count))
        return (op.op, groups_key(op.axis, op.ranks), *sizes, op.copies, op.sent_by, held)

    def _seconds(self, op: CollectiveOp, priced: PricedExchange | None) -> FloatArray:
        seconds = self._factored(priced or self._price(op), op.count)
        stack, experts = self.efficiency.stack, self.efficiency.stack.experts
        if stack.efa is not None and op.copies:
            between = self.crosses(op) > 0
            factor = stack.efa.exchange(stack.dispatcher_of(op.sent_by))
            seconds = np.asarray(seconds * np.where(between, factor, 1.0))
        even = self.program.grid.capacity_factor is not None
        if experts is None or even or op.axis != "ep":
            return seconds
        return np.asarray(seconds * (1 + experts.imbalance))

    def expert_overlap(self) -> FloatArray | None:
        """Overlap of experts' exchanges where it differs by layout, else None."""
        stack, grid = self.efficiency.stack, self.program.grid
        between = stack.overlap_of_experts(grid.dispatcher, grid.overlapped)
        if stack.experts is None or between is stack.overlaps.expert:
            return None
        across = along(array(self._spans_nodes("ep", None)), self.samples) > 0
        return np.where(across, between, stack.overlaps.expert)

    def _message_s(self, sent: Sequence[Send]) -> FloatArray:
        slices = (
            self._factored(self.prices.message(slice_of(send, self.program.grid.tp)))
            for send in sent
        )
        whole = (self._gathered(send) for send in sent if "tp" not in send.tensor.axes)
        return sum([*slices, *whole], start=NOTHING)

    def _gathered(self, send: Send) -> FloatArray:
        grid = self.program.grid
        groups = self.prices.along("tp")
        piped = (send.count > 0) & (grid.pp > 1)
        return self._factored(self.prices.price("all-gather", groups, send.size_bytes, runs=piped))

    def _factored(self, priced: PricedExchange, count: FloatArray = ONE) -> FloatArray:
        self.refused.extend(priced.refused)
        factor = self.efficiency.whole_factor * self.efficiency.stack.communication
        # Counts span few axes: they take the factor before they meet the times, which span many.
        times = along(count, self.samples) * factor
        return np.asarray(along(priced.time_s, self.samples) * times)

    def _known(self, key: Hashable, price: Callable[[], FloatArray]) -> FloatArray:
        """Seconds priced under a key; refusals on the way are collected."""

        def priced() -> tuple[FloatArray, tuple[Reason, ...]]:
            # Refusals belong to the key, so that a second request reports them again.
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
    node_ranks: int | None = None,
    wanted: BoolArray | None = None,
    engines: Engines | None = None,
) -> Exchanges:
    """The exchanges of a program, priced on request.

    For the layouts `wanted` (None: the legal ones). `node_ranks` of each node's ranks are in use,
    the first ones (None: all). `engines` remembers groups that were placed, for programs on the
    same platform and stack.
    """
    prices = CollectivePrices(
        platform=platform,
        stack=collectives,
        grid=program.grid,
        order=ORDERS[efficiency.stack.order],
        logical_size=logical_size,
        node_ranks=node_ranks,
        wanted=program.legal if wanted is None else wanted,
        engines={} if engines is None else engines,
    )
    return Exchanges(
        program=program, efficiency=efficiency, prices=prices, samples=efficiency.samples
    )
