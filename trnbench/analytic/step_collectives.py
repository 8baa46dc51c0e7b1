"""The time of a step's exchanges over grids of layouts, from the collective engine.

Groups of a grid that lie alike on their nodes are placed once, all of them running side by side on
as many nodes as it takes until their pattern repeats; nodes further on share no link with these.
Sizes are then priced as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trnbench.analytic.collective import collective_time
from trnbench.analytic.collective_profile import Profile, profile
from trnbench.mapping.message_plan.algorithm import Refusal
from trnbench.mapping.message_plan.ring_orders import neighbour_pairs
from trnbench.mapping.message_plan.select import Selected, select, selected_for
from trnbench.mapping.placement import Placement, place
from trnbench.mapping.rank_groups import AxisOrder, RankGroups, groups_along
from trnbench.program.collective import Op
from trnbench.program.grid import Grid
from trnbench.program.legality import BoolArray, Reason
from trnbench.program.ops import CollectiveOp, Send
from trnbench.program.tensor import FloatArray
from trnbench.spec.collective_efficiency import CollectiveStack
from trnbench.spec.instance import Platform

IntArray: TypeAlias = NDArray[np.int64]
Place: TypeAlias = tuple[int, int, int, int, int]
"""A group's ranks, stride, width and period, and the ranks over which groups are placed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """Seconds of one run, and which groups the stack cannot serve.

    0 where nothing runs; not a number where a layout was left out or refused.
    """

    time_s: FloatArray
    refused: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Engine:
    """What runs at which sizes for one group, ready to be priced."""

    selected: tuple[Selected, ...]
    profiles: tuple[Profile, ...]

    def time_s(self, size_bytes: FloatArray) -> FloatArray:
        """Return seconds for a flat array of sizes."""
        if len(self.selected) == 1:
            return collective_time(self.profiles[0], self.selected[0].tuning, size_bytes).time_s
        times = np.empty_like(size_bytes)
        chosen = selected_for(self.selected, size_bytes)
        for number, choice in enumerate(self.selected):
            at = np.flatnonzero(chosen == number)
            if len(at):
                found = collective_time(self.profiles[number], choice.tuning, size_bytes[at])
                times[at] = found.time_s
        return times


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectivePrices:
    """Prices of exchanges on a platform with a stack, for the layouts `wanted` of a grid.

    A group is placed when it is first asked for and remembered as long as this record lives.
    """

    platform: Platform
    stack: CollectiveStack
    grid: Grid
    order: AxisOrder
    logical_size: int | None = None
    wanted: BoolArray = field(default_factory=lambda: np.array(True))
    engines: dict[tuple[Op, Place], _Engine | Refusal] = field(default_factory=dict, repr=False)
    placements: dict[int, Placement] = field(default_factory=dict, repr=False)

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one instance."""
        return self.platform.instance.chips * self.platform.chip.ranks(self.logical_size)

    def collective(self, op: CollectiveOp) -> Priced:
        """Return the time of one run of a program's collective."""
        groups = groups_along(op.axis, self.grid, self.order, op.ranks)
        return self.price(op.op, groups, op.size_bytes, runs=op.count > 0)

    def message(self, send: Send) -> Priced:
        """Return the time of one message to the next stage, while every stage sends one."""
        groups = groups_along("pp", self.grid, self.order)
        # Between like nodes every pair of neighbours is as good as the next.
        pair = (groups.stride % self.ranks_per_node == 0) & (groups.ranks > 1)
        ranks = np.where(pair, 2, groups.ranks)
        period = np.where(pair, 2 * groups.stride, groups.period)
        neighbours = RankGroups(
            ranks=ranks, stride=groups.stride, width=groups.width, period=period
        )
        return self.price("send-receive", neighbours, send.size_bytes, runs=send.count > 0)

    def price(
        self, op: Op, groups: RankGroups, size_bytes: FloatArray, *, runs: BoolArray
    ) -> Priced:
        """Return the time of an operation of groups for sizes that broadcast with them."""
        columns = np.broadcast_arrays(groups.ranks, *self._places(groups))
        present = runs & (groups.ranks != 1)
        asked = _within(present & self.wanted, columns[0].shape)
        kinds, first = _kinds(columns, asked & (groups.ranks > 1))
        shape = np.broadcast_shapes(kinds.shape, size_bytes.shape)
        kind = np.broadcast_to(kinds, shape).ravel()
        sizes = np.broadcast_to(size_bytes, shape).ravel()
        times = np.full(len(sizes), np.nan)
        refused: list[Reason] = []
        for number, at in enumerate(_where_each(kind, len(first))):
            here = int(first[number])
            ranks, stride, width, period, used = (int(column.flat[here]) for column in columns)
            engine = self._engine(op, (ranks, stride, width, period, used))
            if isinstance(engine, Refusal):
                refused.append(_reason(engine, kinds == number))
            else:
                times[at] = engine.time_s(sizes[at])
        return Priced(time_s=np.where(present, times.reshape(shape), 0.0), refused=tuple(refused))

    def _places(self, groups: RankGroups) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return stride, width, period and ranks placed; whole nodes apart is one node apart."""
        per_node = self.ranks_per_node
        same = (groups.stride % per_node == 0) & (groups.width % per_node == 0)
        period = np.where(same, groups.ranks * per_node, groups.period)
        used = np.lcm(np.maximum(period, 1), per_node)
        world = self.grid.ranks("world").astype(np.int64)
        if np.any((world < per_node) & self.wanted):
            used = np.where(world < per_node, world, used)
        return (
            np.where(same, per_node, groups.stride),
            np.where(same, per_node, groups.width),
            period,
            used,
        )

    def _engine(self, op: Op, where: Place) -> _Engine | Refusal:
        if (op, where) not in self.engines:
            self.engines[op, where] = self._placed(op, where)
        return self.engines[op, where]

    def _placed(self, op: Op, where: Place) -> _Engine | Refusal:
        ranks, stride, width, period, used = (np.asarray(number) for number in where)
        groups = RankGroups(ranks=ranks, stride=stride, width=width, period=period)
        members = groups.members(int(used))
        # Algorithms are chosen by the first group: one that spans most nodes speaks for all.
        widest = np.argmax(np.ptp(members // self.ranks_per_node, axis=1))
        members = np.roll(members, -widest, axis=0)
        placement = self._placement(-(-int(used) // self.ranks_per_node))
        pairs = neighbour_pairs(placement.fabric, members[0]) if op == "permute" else None
        selected = select(self.stack, placement, op, members, pairs=pairs)
        if isinstance(selected, Refusal):
            return Refusal(
                reason=f"{op} of {ranks} ranks, each {stride} from the next: {selected.reason}"
            )
        profiles = tuple(profile(choice.placed) for choice in selected)
        return _Engine(selected=selected, profiles=profiles)

    def _placement(self, nodes: int) -> Placement:
        if nodes not in self.placements:
            self.placements[nodes] = place(
                self.platform, nodes=nodes, logical_size=self.logical_size
            )
        return self.placements[nodes]


def _reason(refusal: Refusal, broken: BoolArray) -> Reason:
    return Reason(rule="collective", broken=broken, words=lambda _: refusal.reason)


def _within(mask: BoolArray, shape: tuple[int, ...]) -> BoolArray:
    """Return a mask over this shape: whether it holds anywhere along axes that the shape lacks."""
    extra = max(mask.ndim - len(shape), 0)
    mask = np.asarray(mask.any(axis=tuple(range(extra))))
    offset = len(shape) - mask.ndim
    thin = tuple(
        axis for axis in range(mask.ndim) if shape[axis + offset] == 1 and mask.shape[axis] > 1
    )
    return np.broadcast_to(mask.any(axis=thin, keepdims=True) if thin else mask, shape)


def _kinds(columns: tuple[IntArray, ...], asked: BoolArray) -> tuple[IntArray, IntArray]:
    """Return which of the distinct groups each is (-1: not asked for), and where each kind is."""
    kinds = np.full(asked.shape, -1, dtype=np.int64)
    here = np.flatnonzero(asked)
    code = np.zeros(len(here), dtype=np.int64)
    for column in columns:
        values, inverse = np.unique(column.ravel()[here], return_inverse=True)
        # Codes are made dense again at each column, so that they never overflow.
        code = np.unique(code * len(values) + inverse, return_inverse=True)[1]
    _, first, numbers = np.unique(code, return_index=True, return_inverse=True)
    kinds.flat[here] = numbers
    return kinds, here[first]


def _where_each(kind: IntArray, count: int) -> list[IntArray]:
    """Return for each kind where it stands."""
    order = np.argsort(kind, kind="stable")
    starts = np.searchsorted(kind[order], np.arange(count + 1))
    return [order[a:b] for a, b in pairwise(starts)]
