"""Seconds of a step's exchanges over grids of layouts, from the collective engine.

Groups of a grid that have equal positions on their nodes are placed once. All groups run side by
side on as many nodes as it takes until their pattern repeats; farther nodes share no link with
these. Sizes are then priced as arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnbench.engines.analytic.step.engines import Engines, ExchangeSite, site_of
from trnbench.engines.analytic.step.kept_forms import EngineKey
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, numbered, spread
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.rank_groups import (
    AxisOrder,
    GroupPlace,
    RankGroups,
    groups_along,
    neighbours,
    places_of,
)
from trnbench.program.grid import Grid
from trnbench.program.ops import CollectiveOp, Send
from trnbench.program.reasons import Reason


class PricedExchange(Record, eq=False):
    """Seconds of one run of an exchange, and the groups that the stack cannot serve."""

    time_s: FloatArray
    """0 where nothing runs; NaN where groups were refused or belong only to layouts left out. A
    size that some wanted layout has on such groups is known everywhere."""
    refused: tuple[Reason, ...]


class _Kinds(Record, eq=False):
    """The distinct groups of ranks along an axis."""

    key: Hashable  # Tells these groups from others
    alone: BoolArray  # Layouts where a group is one rank
    kinds: IntArray  # number of each layout's place; behind the last where it has none
    places: tuple[GroupPlace, ...]


class _Asked(Record, eq=False):
    """A request: an operation of groups for sizes that broadcast with them, and where it runs."""

    op: Op
    groups: _Kinds
    size_bytes: FloatArray
    present: BoolArray
    key: Hashable


class _Pairs(Record, eq=False):
    """Pairs of a kind of groups and a size that wanted layouts need."""

    kind: IntArray
    size: IntArray
    values: FloatArray  # Distinct sizes in bytes, numbered by `size`
    pairs: IntArray  # Number of each layout's pair
    refused: tuple[Reason, ...]


class CollectivePrices(Record, eq=False):
    """Prices of exchanges on a platform with a stack, for some layouts of a grid.

    A group is placed on the first request and remembered as long as `engines` lives; prices are
    remembered as long as this record does.
    """

    platform: Platform
    stack: CollectiveStack
    grid: Grid
    order: AxisOrder
    logical_size: int | None = None
    node_ranks: int | None = None  # Ranks of each node in use, the first ones; None for all
    wanted: BoolArray = field(default_factory=lambda: np.array(True))  # Layouts that need prices
    engines: Engines = field(default_factory=dict)
    kinds: Memo[Hashable, _Kinds] = field(default_factory=Memo)
    priced: Memo[Hashable, PricedExchange] = field(default_factory=Memo)
    within: Memo[tuple[int, ...], BoolArray] = field(default_factory=Memo)
    groups: Memo[Hashable, RankGroups] = field(default_factory=Memo)  # by what `groups_key` tells

    @property
    def ranks_per_node(self) -> int:
        return self.node_ranks or self.platform.ranks(self.logical_size)

    @cached_property
    def site(self) -> ExchangeSite:
        """Groups placed on this platform so far."""
        sizes = self.logical_size, self.ranks_per_node
        return site_of(self.engines, self.platform, self.stack, sizes)

    def collectives(self, ops: Sequence[CollectiveOp]) -> list[PricedExchange]:
        """Seconds of one run of each of a program's collectives, priced together."""
        return self._together([self._asked_for(op) for op in ops])

    def _together(self, asked: Sequence[_Asked]) -> list[PricedExchange]:
        # Requests are keyed by what they ask, not by the operation: layers exchange alike.
        fresh = {request.key: request for request in asked if request.key not in self.priced}
        times = self._times([*fresh.values()]) if fresh else ()
        prices = dict(zip(fresh, times, strict=True))
        return [
            self.priced.of(request.key, partial(prices.__getitem__, request.key))
            for request in asked
        ]

    def _asked_for(self, op: CollectiveOp) -> _Asked:
        key = groups_key(op.axis, op.ranks)

        def found() -> _Kinds:
            return self._kinds_of(self.along(op.axis, op.ranks), key)

        return _asked(op.op, self.kinds.of(key, found), op.size_bytes, runs=op.count > 0)

    def along(self, axis: str, ranks: FloatArray | None = None) -> RankGroups:
        """Groups along an axis of the grid; `kv_copies` needs the `ranks` of a group."""
        key = groups_key(axis, ranks)
        return self.groups.of(key, lambda: groups_along(axis, self.grid, self.order, ranks))

    def message(self, send: Send) -> PricedExchange:
        """Seconds of one message to the next stage, while every stage sends one."""
        key = "message"

        def found() -> _Kinds:
            return self._kinds_of(neighbours(self.along("pp"), self.ranks_per_node), key)

        kinds = self.kinds.of(key, found)
        asked = _asked("send-receive", kinds, send.size_bytes, runs=send.count > 0)
        return self._together([asked])[0]

    def price(
        self, op: Op, groups: RankGroups, size_bytes: FloatArray, *, runs: BoolArray
    ) -> PricedExchange:
        """Seconds of an operation of groups for sizes that broadcast with them."""
        return self.prices([op], groups, size_bytes, runs=runs)[0]

    def prices(
        self, ops: Sequence[Op], groups: RankGroups, size_bytes: FloatArray, *, runs: BoolArray
    ) -> list[PricedExchange]:
        """The same of several operations, priced together."""
        numbers = (groups.ranks, groups.stride, groups.width, groups.period)
        key = tuple(map(numbers_key, numbers))
        kinds = self.kinds.of(key, lambda: self._kinds_of(groups, key))
        return self._together([_asked(op, kinds, size_bytes, runs=runs) for op in ops])

    def _times(self, each: Sequence[_Asked]) -> list[PricedExchange]:
        """Seconds of each request over its layouts, and refusals."""
        # Kinds and sizes are few: each requested pair of them is priced once.
        # All requests become one list of (closed form, size): one call prices them together.
        tables = [self._pairs(request) for request in each]
        numbers: dict[EngineKey, int] = {}
        which: list[int] = []
        for request, table in zip(each, tables, strict=True):
            keys = ((request.op, request.groups.places[kind]) for kind in table.kind.tolist())
            which += [numbers.setdefault(key, len(numbers)) for key in keys]
        if which:
            sizes = np.concatenate([table.values[table.size] for table in tables])
            times_s = self.site.times_s([*numbers], np.array(which), sizes)
        priced, start = [], 0
        for request, table in zip(each, tables, strict=True):
            seconds = np.full((len(request.groups.places) + 1, len(table.values) + 1), np.nan)
            if len(table.kind):
                seconds[table.kind, table.size] = times_s[start : start + len(table.kind)]
                start += len(table.kind)
            times = seconds.take(table.pairs)
            if not request.present.all():
                times = np.where(request.present, times, 0.0)
            priced.append(PricedExchange(time_s=times, refused=table.refused))
        return priced

    def _pairs(self, asked: _Asked) -> _Pairs:
        groups, none = asked.groups, len(asked.groups.places)
        values, size_of = self._sizes(asked.size_bytes)
        columns = len(values) + 1
        pairs = groups.kinds * columns + size_of
        # NaN at unwanted layouts is never read, so only pairs of wanted layouts cost a closed form.
        shape = np.broadcast_shapes(pairs.shape, asked.present.shape)
        wanted = self.wanted_in(shape) & asked.present
        pairs = spread(pairs, shape)
        seen = np.zeros((none + 1, columns), dtype=np.bool_)
        seen.reshape(-1)[pairs[wanted]] = True
        kind, size = np.nonzero(seen[:none])
        refused: list[Reason] = []
        for number in dict.fromkeys(kind.tolist()):
            engine = self.site.engine(asked.op, groups.places[number])
            if isinstance(engine, Refusal):
                refused.append(_reason(engine, groups.kinds == number))
                kind, size = kind[kind != number], size[kind != number]
        return _Pairs(kind=kind, size=size, values=values, pairs=pairs, refused=tuple(refused))

    def _sizes(self, size_bytes: FloatArray) -> tuple[FloatArray, IntArray]:
        """Distinct sizes of wanted layouts, and the number of each one; unwanted come last."""
        wanted = self.wanted_in(size_bytes.shape)
        if wanted.all():
            return numbered(size_bytes)
        values, number = numbered(size_bytes[wanted])
        places = np.full(size_bytes.shape, len(values), dtype=np.int64)
        places[wanted] = number
        return values, places

    def wanted_in(self, shape: tuple[int, ...]) -> BoolArray:
        """Mask of an array of this shape: true where some wanted layout has the number."""
        return self.within.of(shape, lambda: _within(self.wanted, shape))

    def _kinds_of(self, groups: RankGroups, key: Hashable) -> _Kinds:
        """The distinct groups."""
        # Layouts that agree in all five numbers of a place are one kind, numbered in order of
        # appearance.
        per_node = self.ranks_per_node
        world = self.grid.ranks("world").astype(np.int64)
        # A job smaller than a node is placed on its own ranks only; otherwise whole nodes are full.
        if not np.any((world < per_node) & self.wanted):
            world = np.asarray(per_node)
        columns = places_of(groups, per_node, world)
        asked = self.wanted_in(columns[0].shape) & (columns[0] > 1)
        numbers: dict[tuple[int, ...], int] = {}
        rows = zip(*(column[asked].tolist() for column in columns), strict=True)
        found = [numbers.setdefault(row, len(numbers)) for row in rows]
        kinds = np.full(asked.shape, len(numbers), dtype=np.int64)
        kinds[asked] = found
        places = tuple((a, b, c, d, e) for a, b, c, d, e in numbers)
        return _Kinds(key=key, alone=groups.ranks == 1, kinds=kinds, places=places)


def _asked(op: Op, groups: _Kinds, size_bytes: FloatArray, *, runs: BoolArray) -> _Asked:
    present = np.asarray(_thin(runs) & ~groups.alone)
    key = (op, groups.key, numbers_key(size_bytes), numbers_key(present))
    return _Asked(op=op, groups=groups, size_bytes=size_bytes, present=present, key=key)


def groups_key(axis: str, ranks: FloatArray | None) -> Hashable:
    """Key that tells groups along an axis from others of their grid of layouts."""
    return axis if axis != "kv_copies" or ranks is None else (axis, numbers_key(ranks))


def numbers_key(values: NDArray[Any]) -> Hashable:
    return values.shape, values.tobytes()


def _reason(refusal: Refusal, broken: BoolArray) -> Reason:
    return Reason("collective", broken, refusal.reason)


def _thin(mask: BoolArray) -> BoolArray:
    """The mask cut to one place along axes on which it does not change."""
    # Short keys: masks that differ only by broadcasting become one request.
    for axis, length in enumerate(mask.shape):
        if length > 1 and (mask == (first := mask.take([0], axis=axis))).all():
            mask = first
    return mask


def _within(mask: BoolArray, shape: tuple[int, ...]) -> BoolArray:
    """The mask in this shape: True where any place along the missing axes is True."""
    extra = max(mask.ndim - len(shape), 0)
    mask = np.asarray(mask.any(axis=tuple(range(extra))))
    offset = len(shape) - mask.ndim
    thin = tuple(
        axis for axis in range(mask.ndim) if shape[axis + offset] == 1 and mask.shape[axis] > 1
    )
    return spread(np.asarray(mask.any(axis=thin, keepdims=True)) if thin else mask, shape)
