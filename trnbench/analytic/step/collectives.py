"""The time of a step's exchanges over grids of layouts, from the collective engine.

Groups of a grid that lie alike on their nodes are placed once, all of them running side by side on
as many nodes as it takes until their pattern repeats; nodes further on share no link with these.
Sizes are then priced as arrays.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from trnbench.analytic.collective.profile import profile
from trnbench.analytic.collective.rounds import PhaseMemo
from trnbench.analytic.collective.time import ClosedForm, closed_form
from trnbench.arrays import BoolArray, FloatArray, IntArray
from trnbench.calibration.collective_stack import CollectiveStack
from trnbench.hardware.instance import Platform
from trnbench.mapping.message_plan.algorithm import Refusal
from trnbench.mapping.message_plan.members import Members, even_members, members_of, plain_members
from trnbench.mapping.message_plan.ring_orders import neighbour_pairs
from trnbench.mapping.message_plan.select import Selected, select_for, selected_for
from trnbench.mapping.placement import Placement, place
from trnbench.mapping.rank_groups import AxisOrder, RankGroups, groups_along
from trnbench.memo import Memo
from trnbench.program.grid import Grid
from trnbench.program.legality import Reason
from trnbench.program.ops import CollectiveOp, Send
from trnbench.workload.operation import Op

GroupPlace: TypeAlias = tuple[int, int, int, int, int]
"""A group's ranks, stride, width and period, and the ranks over which groups are placed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedExchange:
    """Seconds of one run, and which groups the stack cannot serve.

    0 where nothing runs; not a number where groups were refused, or are only those of layouts that
    were left out.
    """

    time_s: FloatArray
    refused: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Engine:
    """The algorithms selected by size for one group, and the closed forms of those asked for."""

    selected: tuple[Selected, ...]
    memo: PhaseMemo
    forms: Memo[int, ClosedForm] = field(default_factory=Memo, repr=False)

    def time_s(self, size_bytes: FloatArray) -> FloatArray:
        """Return seconds for a flat array of sizes."""
        if len(self.selected) == 1:
            return self._form(0).time_s(size_bytes)
        chosen = selected_for(self.selected, size_bytes)
        first, last = int(chosen.min()), int(chosen.max())
        if first == last:
            return self._form(first).time_s(size_bytes)
        times = np.empty_like(size_bytes)
        for number in range(first, last + 1):
            at = np.flatnonzero(chosen == number)
            if len(at):
                times[at] = self._form(number).time_s(size_bytes[at])
        return times

    def _form(self, number: int) -> ClosedForm:
        choice = self.selected[number]
        return self.forms.of(
            number, lambda: closed_form(profile(choice.placed, self.memo), choice.tuning)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Site:
    """One node of a platform, and the groups, phases and engines worked out on it so far."""

    node: Placement
    members: Memo[tuple[GroupPlace, bool], Members] = field(default_factory=Memo, repr=False)
    memo: PhaseMemo = field(default_factory=dict, repr=False)
    engines: Memo[tuple[Op, GroupPlace], _Engine | Refusal] = field(
        default_factory=Memo, repr=False
    )


Engines: TypeAlias = dict[tuple[str, str, int | None], _Site]
"""What was placed so far, by platform, stack and logical size; programs may share it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kinds:
    """The distinct groups along an axis: `kinds` says which one each layout has (-1: none).

    `alone` are layouts where a group is one rank. `key` tells these groups from others.
    """

    key: Hashable
    alone: BoolArray
    kinds: IntArray
    places: tuple[GroupPlace, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectivePrices:
    """Prices of exchanges on a platform with a stack, for the layouts `wanted` of a grid.

    A group is placed when it is first asked for and remembered as long as `engines` lives; what
    was priced is remembered as long as this record does.
    """

    platform: Platform
    stack: CollectiveStack
    grid: Grid
    order: AxisOrder
    logical_size: int | None = None
    wanted: BoolArray = field(default_factory=lambda: np.array(True))
    engines: Engines = field(default_factory=dict, repr=False)
    kinds: Memo[Hashable, _Kinds] = field(default_factory=Memo, repr=False)
    priced: Memo[Hashable, PricedExchange] = field(default_factory=Memo, repr=False)

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one instance."""
        return self.platform.instance.chips * self.platform.chip.ranks(self.logical_size)

    @property
    def site(self) -> _Site:
        """What was placed on this platform so far."""
        key = (self.platform.instance.name, self.stack.name, self.logical_size)
        if key not in self.engines:
            node = place(self.platform, logical_size=self.logical_size)
            self.engines[key] = _Site(node=node)
        return self.engines[key]

    def collective(self, op: CollectiveOp) -> PricedExchange:
        """Return the time of one run of a program's collective."""
        key = (op.axis, op.ranks.shape, op.ranks.tobytes())

        def found() -> _Kinds:
            return self._kinds_of(groups_along(op.axis, self.grid, self.order, op.ranks), key)

        return self._price(op.op, self.kinds.of(key, found), op.size_bytes, runs=op.count > 0)

    def message(self, send: Send) -> PricedExchange:
        """Return the time of one message to the next stage, while every stage sends one."""
        key = "message"

        def found() -> _Kinds:
            stages = groups_along("pp", self.grid, self.order)
            return self._kinds_of(_neighbours(stages, self.ranks_per_node), key)

        kinds = self.kinds.of(key, found)
        return self._price("send-receive", kinds, send.size_bytes, runs=send.count > 0)

    def price(
        self, op: Op, groups: RankGroups, size_bytes: FloatArray, *, runs: BoolArray
    ) -> PricedExchange:
        """Return the time of an operation of groups for sizes that broadcast with them."""
        numbers = (groups.ranks, groups.stride, groups.width, groups.period)
        key = tuple((number.shape, number.tobytes()) for number in numbers)
        kinds = self.kinds.of(key, lambda: self._kinds_of(groups, key))
        return self._price(op, kinds, size_bytes, runs=runs)

    def _price(
        self, op: Op, groups: _Kinds, size_bytes: FloatArray, *, runs: BoolArray
    ) -> PricedExchange:
        present = np.asarray(runs & ~groups.alone)
        sizes, where = (size_bytes.shape, size_bytes.tobytes()), (present.shape, present.tobytes())
        key = (op, groups.key, sizes, where)
        return self.priced.of(key, lambda: self._times(op, groups, size_bytes, present))

    def _times(
        self, op: Op, groups: _Kinds, size_bytes: FloatArray, present: BoolArray
    ) -> PricedExchange:
        """Return the time of each kind of groups where it stands, and which are refused."""
        kinds = groups.kinds
        shape = np.broadcast_shapes(kinds.shape, size_bytes.shape, present.shape)
        asked = np.flatnonzero(_within(self.wanted, shape) & present)
        kind = np.broadcast_to(kinds, shape).ravel()[asked]
        sizes = np.broadcast_to(size_bytes, shape).ravel()[asked]
        found = np.full(len(asked), np.nan)
        refused: list[Reason] = []
        for number, at in enumerate(_where_each(kind, len(groups.places))):
            if not len(at):
                continue
            engine = self._engine(op, groups.places[number])
            if isinstance(engine, Refusal):
                refused.append(_reason(engine, kinds == number))
            else:
                found[at] = engine.time_s(sizes[at])
        times = np.empty(shape)
        times[...] = np.where(present, np.nan, 0.0)
        times.reshape(-1)[asked] = found
        return PricedExchange(time_s=times, refused=tuple(refused))

    def _kinds_of(self, groups: RankGroups, key: Hashable) -> _Kinds:
        """Return the distinct groups; whole nodes apart is one node apart.

        A group is ranks first + k * stride, for k below `ranks`, and repeats after `period` ranks.
        With `same`, stride and width are whole nodes: each rank of a group is on a node of its own,
        at the same place of it. How many nodes lie between does not matter to a network that joins
        all nodes alike, so the stride becomes one node and the period `ranks` nodes.

        Groups are placed over `used` ranks, the least number after which both groups and nodes
        begin anew, lcm(period, ranks of a node): what lies further on repeats it and shares no link
        with it. A cluster smaller than one node is placed as it is.

        Layouts that agree in all five numbers are one kind, numbered as they come.
        """
        per_node = self.ranks_per_node
        same = (groups.stride % per_node == 0) & (groups.width % per_node == 0)
        period = np.where(same, groups.ranks * per_node, groups.period)
        used = np.lcm(np.maximum(period, 1), per_node)
        world = self.grid.ranks("world").astype(np.int64)
        if np.any((world < per_node) & self.wanted):
            used = np.where(world < per_node, world, used)
        columns = np.broadcast_arrays(
            groups.ranks,
            np.where(same, per_node, groups.stride),
            np.where(same, per_node, groups.width),
            period,
            used,
        )
        asked = _within(self.wanted, columns[0].shape) & (columns[0] > 1)
        kinds = np.full(asked.shape, -1, dtype=np.int64)
        numbers: dict[tuple[int, ...], int] = {}
        rows = zip(*(column[asked].tolist() for column in columns), strict=True)
        kinds[asked] = [numbers.setdefault(row, len(numbers)) for row in rows]
        places = tuple((a, b, c, d, e) for a, b, c, d, e in numbers)
        return _Kinds(key=key, alone=groups.ranks == 1, kinds=kinds, places=places)

    def _engine(self, op: Op, where: GroupPlace) -> _Engine | Refusal:
        site = self.site
        return site.engines.of((op, where), lambda: self._placed(site, op, where))

    def _placed(self, site: _Site, op: Op, where: GroupPlace) -> _Engine | Refusal:
        plain = op == "send-receive"
        members = site.members.of((where, plain), lambda: _members(site.node, where, plain=plain))
        pairs = None
        if op == "permute":
            pairs = neighbour_pairs(members.placement.fabric, members.first)
        selected = select_for(self.stack, members, op, pairs=pairs)
        if isinstance(selected, Refusal):
            ranks, stride = where[:2]
            return Refusal(
                reason=f"{op} of {ranks} ranks, each {stride} from the next: {selected.reason}"
            )
        return _Engine(selected=selected, memo=site.memo)


def _neighbours(stages: RankGroups, per_node: int) -> RankGroups:
    """Return other stages between which messages take the same links as between these.

    Between like nodes it only matters at which place of a node a message leaves and arrives. So
    stages a whole number of nodes apart are as good as two on neighbouring nodes; others come as
    near as they can, and are as many as it takes until the first one's place comes again (on three
    nodes at least, as the last stage's messages go to the first).
    """
    ranks, stride = stages.ranks, stages.stride
    pair = (stride % per_node == 0) & (ranks > 1)
    spread = ~pair & (ranks > 1) & (stages.period == ranks * stride) & (stages.width == stride)
    spread &= (stages.period > per_node) & (stages.period % per_node == 0)
    near = np.where(stride > per_node, per_node + stride % per_node, np.maximum(stride, 1))
    # `turn` steps of `near` come back to the first place of a node; so many whole turns that three
    # nodes are filled.
    turn = np.lcm(near, per_node) // near
    again = turn * -(-3 * per_node // (turn * near))
    ranks = np.where(pair, 2, np.where(spread, again, ranks))
    stride = np.where(spread, near, stride)
    return RankGroups(
        ranks=ranks,
        stride=stride,
        width=np.where(spread, near, stages.width),
        period=np.where(pair | spread, ranks * stride, stages.period),
    )


def _members(node: Placement, where: GroupPlace, *, plain: bool) -> Members:
    """Return the groups of one kind on as many nodes as it takes until they repeat.

    `plain` ones only send from rank to rank.
    """
    ranks, stride, width, period, used = where
    per_node = node.ranks
    nodes = -(-used // per_node)
    if nodes == 1:
        return even_members(node, _listed(where), 1)
    several = node.of(nodes)
    if period == used == ranks * stride and width == stride and per_node % stride == 0:
        # Every node holds a like part of every group.
        local = np.arange(stride)[:, None] + np.arange(per_node // stride) * stride
        return even_members(several, local, nodes)
    members = _listed(where)
    # Algorithms are chosen by the first group: one that spans most nodes speaks for all.
    widest = np.argmax(np.ptp(members // per_node, axis=1))
    members = np.roll(members, -widest, axis=0)
    return (
        plain_members(several, members) if plain else members_of(several, members, symmetric=True)
    )


def _listed(where: GroupPlace) -> IntArray:
    ranks, stride, width, period, used = where
    groups = RankGroups(
        ranks=np.asarray(ranks),
        stride=np.asarray(stride),
        width=np.asarray(width),
        period=np.asarray(period),
    )
    return groups.members(used)


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


def _where_each(kind: IntArray, count: int) -> list[IntArray]:
    """Return for each kind where it stands."""
    # Short numbers are sorted digit by digit, far faster than by comparing.
    short = kind.astype(np.int16) if count < np.iinfo(np.int16).max else kind
    order = np.argsort(short, kind="stable")
    starts = np.searchsorted(kind[order], np.arange(count + 1))
    return [order[a:b] for a, b in pairwise(starts)]
