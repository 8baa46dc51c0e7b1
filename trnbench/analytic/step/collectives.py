"""The time of a step's exchanges over grids of layouts, from the collective engine.

Groups of a grid that lie alike on their nodes are placed once, all of them running side by side on
as many nodes as it takes until their pattern repeats; nodes further on share no link with these.
Sizes are then priced as arrays.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnbench.analytic.step.engines import Engines, ExchangeSite, site_of
from trnbench.arrays import BoolArray, FloatArray, IntArray, numbered, spread
from trnbench.calibration.collective_stack import CollectiveStack
from trnbench.hardware.instance import Platform
from trnbench.mapping.group_places import GroupPlace, neighbours, places_of
from trnbench.mapping.message_plan.algorithm import Refusal
from trnbench.mapping.rank_groups import AxisOrder, RankGroups, groups_along
from trnbench.memo import Memo
from trnbench.program.grid import Grid
from trnbench.program.ops import CollectiveOp, Send
from trnbench.program.reasons import Reason
from trnbench.records import dataclass
from trnbench.workload.operation import Op


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedExchange:
    """Seconds of one run, and which groups the stack cannot serve.

    0 where nothing runs; not a number where groups were refused, or are only those of layouts that
    were left out (a size that some wanted layout has on such groups is known everywhere).
    """

    time_s: FloatArray
    refused: tuple[Reason, ...]


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
    was priced is remembered as long as this record does. `node_ranks`: how many ranks of each node
    are in use, the first ones; unasked all.
    """

    platform: Platform
    stack: CollectiveStack
    grid: Grid
    order: AxisOrder
    logical_size: int | None = None
    node_ranks: int | None = None
    wanted: BoolArray = field(default_factory=lambda: np.array(True))
    engines: Engines = field(default_factory=dict, repr=False)
    kinds: Memo[Hashable, _Kinds] = field(default_factory=Memo, repr=False)
    priced: Memo[Hashable, PricedExchange] = field(default_factory=Memo, repr=False)
    within: Memo[tuple[int, ...], BoolArray] = field(default_factory=Memo, repr=False)

    @property
    def ranks_per_node(self) -> int:
        """Ranks in use on one instance."""
        return self.node_ranks or self.platform.ranks(self.logical_size)

    @property
    def site(self) -> ExchangeSite:
        """What was placed on this platform so far."""
        return site_of(
            self.engines,
            self.platform,
            self.stack,
            logical_size=self.logical_size,
            ranks_per_node=self.ranks_per_node,
        )

    def collective(self, op: CollectiveOp) -> PricedExchange:
        """Return the time of one run of a program's collective."""
        key = groups_key(op)

        def found() -> _Kinds:
            return self._kinds_of(groups_along(op.axis, self.grid, self.order, op.ranks), key)

        return self._price(op.op, self.kinds.of(key, found), op.size_bytes, runs=op.count > 0)

    def message(self, send: Send) -> PricedExchange:
        """Return the time of one message to the next stage, while every stage sends one."""
        key = "message"

        def found() -> _Kinds:
            stages = groups_along("pp", self.grid, self.order)
            return self._kinds_of(neighbours(stages, self.ranks_per_node), key)

        kinds = self.kinds.of(key, found)
        return self._price("send-receive", kinds, send.size_bytes, runs=send.count > 0)

    def price(
        self, op: Op, groups: RankGroups, size_bytes: FloatArray, *, runs: BoolArray
    ) -> PricedExchange:
        """Return the time of an operation of groups for sizes that broadcast with them."""
        numbers = (groups.ranks, groups.stride, groups.width, groups.period)
        key = tuple(map(numbers_key, numbers))
        kinds = self.kinds.of(key, lambda: self._kinds_of(groups, key))
        return self._price(op, kinds, size_bytes, runs=runs)

    def _price(
        self, op: Op, groups: _Kinds, size_bytes: FloatArray, *, runs: BoolArray
    ) -> PricedExchange:
        present = np.asarray(_thin(runs) & ~groups.alone)
        key = (op, groups.key, numbers_key(size_bytes), numbers_key(present))
        return self.priced.of(key, lambda: self._times(op, groups, size_bytes, present))

    def _times(
        self, op: Op, groups: _Kinds, size_bytes: FloatArray, present: BoolArray
    ) -> PricedExchange:
        """Return the time of each kind of groups where it stands, and which are refused.

        Kinds and sizes are few: each pair of them that is asked for is priced once.
        """
        none = len(groups.places)
        kinds = np.where(groups.kinds < 0, none, groups.kinds)
        values, size_of = numbered(size_bytes)
        pairs = kinds * len(values) + size_of
        shape = np.broadcast_shapes(pairs.shape, present.shape)
        asked = self._asked(shape) & present
        seen = np.zeros((none + 1, len(values)), dtype=np.bool_)
        seen.reshape(-1)[spread(pairs, shape)[asked]] = True
        table = np.full(seen.shape, np.nan)
        refused: list[Reason] = []
        for number in np.flatnonzero(seen[:none].any(axis=1)).tolist():
            engine = self.site.engine(op, groups.places[number])
            if isinstance(engine, Refusal):
                refused.append(_reason(engine, groups.kinds == number))
                seen[number] = False
        kind, size = np.nonzero(seen[:none])
        if len(kind):
            table[kind, size] = self.site.times_s(op, groups.places, kind, values[size])
        times = table.take(spread(pairs, shape))
        if not present.all():
            times = np.where(present, times, 0.0)
        return PricedExchange(time_s=times, refused=tuple(refused))

    def _asked(self, shape: tuple[int, ...]) -> BoolArray:
        """Return where in an array of this shape there is something of a layout that is wanted."""
        return self.within.of(shape, lambda: _within(self.wanted, shape))

    def _kinds_of(self, groups: RankGroups, key: Hashable) -> _Kinds:
        """Return the distinct groups.

        Layouts that agree in all five numbers are one kind, numbered as they come.
        """
        per_node = self.ranks_per_node
        world = self.grid.ranks("world").astype(np.int64)
        if not np.any((world < per_node) & self.wanted):
            world = np.asarray(per_node)
        columns = places_of(groups, per_node, world)
        asked = self._asked(columns[0].shape) & (columns[0] > 1)
        kinds = np.full(asked.shape, -1, dtype=np.int64)
        numbers: dict[tuple[int, ...], int] = {}
        rows = zip(*(column[asked].tolist() for column in columns), strict=True)
        kinds[asked] = [numbers.setdefault(row, len(numbers)) for row in rows]
        places = tuple((a, b, c, d, e) for a, b, c, d, e in numbers)
        return _Kinds(key=key, alone=groups.ranks == 1, kinds=kinds, places=places)


def groups_key(op: CollectiveOp) -> Hashable:
    """Return what tells the groups of a collective from others of its grid of layouts."""
    return op.axis if op.axis != "kv_copies" else (op.axis, numbers_key(op.ranks))


def numbers_key(values: NDArray[Any]) -> Hashable:
    """Return a key by which equal arrays are found again."""
    return values.shape, values.tobytes()


def _reason(refusal: Refusal, broken: BoolArray) -> Reason:
    return Reason(rule="collective", broken=broken, words=lambda _: refusal.reason)


def _thin(mask: BoolArray) -> BoolArray:
    """Return a mask with one place along the axes along which it does not change."""
    for axis, length in enumerate(mask.shape):
        first = mask.take([0], axis=axis)
        if length > 1 and (mask == first).all():
            mask = first
    return mask


def _within(mask: BoolArray, shape: tuple[int, ...]) -> BoolArray:
    """Return a mask over this shape: whether it holds anywhere along axes that the shape lacks."""
    extra = max(mask.ndim - len(shape), 0)
    mask = np.asarray(mask.any(axis=tuple(range(extra))))
    offset = len(shape) - mask.ndim
    thin = tuple(
        axis for axis in range(mask.ndim) if shape[axis + offset] == 1 and mask.shape[axis] > 1
    )
    return spread(np.asarray(mask.any(axis=thin, keepdims=True)) if thin else mask, shape)
