"""A step's exchanges as messages on the links of a few nodes, with all like groups beside them.

A group is placed with all groups of its kind on as many nodes as it takes until they repeat, and
played there: groups of a node share its links, those over nodes its adapters.

Mutual delay of two kinds of exchange. Both are played at once, each with all groups of its kind:
groups of tensor ranks beside replicas that reduce gradients, on the links and adapters that they
share. 0: they take as long as the longer one alone; 1: as long as one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import numpy as np

from trnbench.engines.emulate.collective.streams import ChunkStream, play_selected, play_together
from trnbench.engines.emulate.step.rank import NO_RUN, BusyRun, in_turn, side_by_side
from trnbench.errors import InputError
from trnbench.facts.arrays import IntArray
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.costs.instructions import EXCHANGED, LINK
from trnbench.machine.gradient_buckets import bucket_bytes, in_buckets
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.members import Members
from trnbench.machine.message_plan.plan import chunks_of
from trnbench.machine.message_plan.ring_orders import neighbour_pairs
from trnbench.machine.message_plan.select import Selected, selected_for
from trnbench.machine.placement import Placement
from trnbench.machine.rank_groups import (
    ORDERS,
    AxisOrder,
    GroupPlace,
    RankGroups,
    groups_along,
    handed_on,
    members_at,
    neighbours,
    places_of,
)
from trnbench.program.block import Block
from trnbench.program.grid import Grid
from trnbench.program.ops import CollectiveOp, Send
from trnbench.program.slots import Lane, Purpose, ending_of, purpose_of
from trnbench.program.step import StepProgram, messages_of, slice_of

Chooser = Callable[[CollectiveStack, Members, Op, IntArray | None], tuple[Selected, ...] | Refusal]
"""Algorithms by size that groups in place run, so that both engines take the same."""


ALL_REDUCE: Op = "all-reduce"


class PlayedSite(Record, eq=False):
    """The nodes of a platform under a communication stack, with the groups placed and played there.

    `node_ranks` of each node's ranks are in use, the first ones.
    """

    stack: CollectiveStack
    node: Placement
    node_ranks: int
    choose: Chooser
    members: Memo[tuple[GroupPlace, bool], Members] = field(default_factory=Memo)
    selected: Memo[tuple[Op, GroupPlace], tuple[Selected, ...]] = field(default_factory=Memo)
    runs: Memo[Hashable, BusyRun] = field(default_factory=Memo)

    def choice(self, op: Op, where: GroupPlace) -> tuple[Selected, ...]:
        return self.selected.of((op, where), lambda: self._choice(op, where))

    def _choice(self, op: Op, where: GroupPlace) -> tuple[Selected, ...]:
        plain = op == "send-receive"
        members = self.members.of(
            (where, plain), lambda: members_at(self.node, where, self.node_ranks, plain=plain)
        )
        pairs = None
        if op == "permute":
            pairs = neighbour_pairs(members.placement.fabric, members.first)
        found = self.choose(self.stack, members, op, pairs)
        if isinstance(found, Refusal):
            raise InputError(found.reason)
        return found

    def run(self, op: Op, where: GroupPlace, size_bytes: float) -> BusyRun:
        return self.runs.of((op, where, size_bytes), lambda: self._run(op, where, size_bytes))

    def _run(self, op: Op, where: GroupPlace, size_bytes: float) -> BusyRun:
        _, played = play_selected(self.choice(op, where), size_bytes)
        carrying_s = float(played.link_busy.max(initial=0.0)) * played.time_s
        return BusyRun(time_s=played.time_s, busy={LINK: carrying_s, EXCHANGED: played.time_s})


class PlayedExchanges(Record, eq=False):
    """The exchanges of a scalar program on a site, by the software shares of a stack."""

    program: StepProgram
    site: PlayedSite
    efficiency: TrainingEfficiency

    @property
    def grid(self) -> Grid:
        return self.program.grid

    def collective(self, op: CollectiveOp) -> BusyRun:
        """A collective in one run of its block."""
        if not float(op.count):
            return NO_RUN
        groups = self._along(op)
        size = float(op.size_bytes)
        stack = self.efficiency.stack
        sent_by = stack.dispatcher_of(op.sent_by)
        if op.copies > 1 and sent_by != "alltoall":
            # Crossing the network and handing on inside nodes use different links: side by side.
            crossing, local = handed_on(groups, self.site.node_ranks, op.copies)
            run = side_by_side(
                self._run(op.op, groups, size * float(crossing)), self._run(op.op, local, size)
            )
        elif in_buckets(op, self.efficiency.buckets):
            run = self._in_bucket(op, groups)
        else:
            run = self._run(op.op, groups, size)
        if op.copies and stack.efa is not None and self._lane(groups) == "network":
            run = run.times(float(stack.efa.exchange(sent_by)))
        # Routers do not share tokens evenly: the fullest expert ends the exchange. With a capacity
        # factor, tokens above an expert's share are dropped instead.
        experts = stack.experts
        if op.axis == "ep" and experts is not None and self.grid.capacity_factor is None:
            run = run.times(1 + float(experts.imbalance))
        return run.times(self._factor * float(op.count))

    def _in_bucket(self, op: CollectiveOp, groups: RankGroups) -> BusyRun:
        """A block's part of a message that carries many layers, the quicker of two ways."""
        assert self.efficiency.buckets is not None
        whole = float(bucket_bytes(self.program, op, self.efficiency.buckets))
        runs = [self._run(way, groups, whole) for way in dict.fromkeys((op.op, ALL_REDUCE))]
        return min(runs, key=lambda run: run.time_s).times(float(op.size_bytes) / whole)

    def message(self) -> BusyRun:
        """A micro-batch's messages from one chunk to the next stage, with their bytes."""
        sent = messages_of(self.program)
        runs = [self._sent(slice_of(send, self.grid.tp)) for send in sent]
        # Tensor-parallel ranks hold copies of the stream unless it is cut over them: each sends its
        # slice, and the receivers gather the slices over faster links.
        groups = groups_along("tp", self.grid, self._order)
        runs += [
            self._run("all-gather", groups, float(send.size_bytes))
            for send in sent
            if "tp" not in send.tensor.axes and int(self.grid.pp) > 1
        ]
        return in_turn(runs).times(self._factor)

    def latency_s(self) -> float:
        """Seconds of the same messages between stages without their bytes."""
        sent = messages_of(self.program)
        return self._factor * sum(self._sent(send, size=0.0).time_s for send in sent)

    def overlap(self, purpose: Purpose) -> float:
        """Stack's overlap of exchanges of a purpose with compute."""
        stack = self.efficiency.stack
        if purpose == "expert" and stack.experts is not None and self.experts_cross:
            return float(stack.overlap_of_experts(self.grid.dispatcher, self.grid.overlapped))
        return float(getattr(stack.overlaps, purpose))

    @property
    def experts_cross(self) -> bool:
        """True where the experts of a token are on several nodes."""
        groups = groups_along("ep", self.grid, self._order)
        return int(self.grid.ep) > 1 and self._lane(groups) == "network"

    def lane(self, op: CollectiveOp) -> Lane:
        """The lane of a collective: inside nodes, or between them."""
        return self._lane(self._along(op))

    def where(self, op: CollectiveOp) -> GroupPlace:
        return self._where(self._along(op))

    def message_lane(self) -> Lane:
        """The lane of messages between stages: inside nodes, or between them."""
        return self._lane(groups_along("pp", self.grid, self._order))

    @property
    def _factor(self) -> float:
        return float(self.efficiency.whole_factor * self.efficiency.stack.communication)

    @property
    def _order(self) -> AxisOrder:
        return ORDERS[self.efficiency.stack.order]

    def _along(self, op: CollectiveOp) -> RankGroups:
        return groups_along(op.axis, self.grid, self._order, op.ranks)

    def _lane(self, groups: RankGroups) -> Lane:
        return "network" if int(groups.nodes(self.site.node_ranks)) > 1 else "links"

    def _where(self, groups: RankGroups) -> GroupPlace:
        world = self.grid.ranks("world").astype(np.int64)
        a, b, c, d, e = (int(n) for n in places_of(groups, self.site.node_ranks, world))
        return a, b, c, d, e

    def _run(self, op: Op, groups: RankGroups, size_bytes: float) -> BusyRun:
        where = self._where(groups)
        # A group of one rank exchanges nothing.
        return NO_RUN if where[0] <= 1 else self.site.run(op, where, size_bytes)

    def _sent(self, send: Send, size: float | None = None) -> BusyRun:
        if not float(send.count):
            return NO_RUN
        groups = neighbours(groups_along("pp", self.grid, self._order), self.site.node_ranks)
        return self._run("send-receive", groups, float(send.size_bytes) if size is None else size)


NODES_AT_ONCE = 64  # Kinds that repeat together only after more are not played at once


def gradient_traffic(exchanges: PlayedExchanges, blocks: tuple[Block, ...]) -> dict[Purpose, float]:
    """Share of each purpose's exchanges in slots that holds up the reduction of gradients.

    The largest exchange of each purpose meets the reduction. Exchanges that cannot be played
    together take turns where both run between nodes, and do not meet otherwise.
    """
    ops = [op for block in blocks for op in block.collectives if float(op.count)]
    reduced = [op for op in ops if op.phase == "optimizer" and ending_of(op) == "reduce"]
    if not reduced:
        return {}
    # Sorted by size, so the last one kept of each purpose is its largest exchange.
    gradients = max(reduced, key=_size)
    inside: dict[Purpose, CollectiveOp] = {}
    for op in sorted(ops, key=_size):
        if op.phase != "optimizer":
            inside[purpose_of(op.axis)] = op
    return {purpose: _meeting(exchanges, gradients, op) for purpose, op in inside.items()}


def _size(op: CollectiveOp) -> float:
    return float(op.size_bytes)


def _meeting(exchanges: PlayedExchanges, one: CollectiveOp, other: CollectiveOp) -> float:
    both = exchanges.lane(one) == exchanges.lane(other) == "network"
    places = [exchanges.where(op) for op in (one, other)]
    site = exchanges.site
    used = math.lcm(*(place[4] for place in places))
    if min(place[0] for place in places) <= 1:
        return 0.0
    if used > NODES_AT_ONCE * site.node_ranks:
        return float(both)
    streams = [
        _stream(site, op.op, (*place[:4], used), _size(op))
        for op, place in zip((one, other), places, strict=True)
    ]
    if len({(one.placed.of_one_node, one.placed.link_count) for one in streams}) > 1:
        return float(both)
    alone = [play_together([stream]).end_s[0] for stream in streams]
    # Of the longer one, as much as goes on beside the shorter one.
    short, long = sorted((0, 1), key=lambda number: alone[number])
    whole = streams[long]
    streams[long] = replace(whole, size_bytes=whole.size_bytes * alone[short] / alone[long])
    alone[long] = play_together([streams[long]]).end_s[0]
    together = max(play_together(streams).end_s)
    return float(np.clip((together - max(alone)) / min(alone), 0.0, 1.0))


def _stream(site: PlayedSite, op: Op, where: GroupPlace, size_bytes: float) -> ChunkStream:
    choices, size = site.choice(op, where), np.array([size_bytes])
    found = choices[int(selected_for(choices, size)[0])]
    return ChunkStream(
        placed=found.placed,
        tuning=found.tuning,
        size_bytes=size_bytes,
        chunks=int(chunks_of(found.tuning, len(found.placed.steps), size)[0]),
    )
