"""An algorithm by name, why one may be refused, and what a level of a plan is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trnbench.facts.arrays import IntArray
from trnbench.facts.calibration.collective_stack import ALGORITHM_NAMES
from trnbench.facts.records import Record

if TYPE_CHECKING:
    from trnbench.machine.message_plan.pattern import CollectivePart, MessagePattern
    from trnbench.machine.placement import Placement, RankGrid

ALGORITHMS: tuple[str, ...] = ALGORITHM_NAMES


class Algorithm(Record):
    """An algorithm by name; `hierarchical` runs `inner` in the node and `outer` between nodes.

    `one_way` uses one direction of one ring only; `by_level` makes direct go level by level instead
    of straight across. `pieces`: how finely trees, chains and switches
    cut the data to overlap its steps.
    """

    name: str
    inner: str | None = None
    outer: str | None = None
    one_way: bool = False
    by_level: bool = False
    pieces: int = 16

    @property
    def label(self) -> str:
        """The name as shown, such as "hierarchical (kangaring, ring)"."""
        parts = [part for part in (self.inner, self.outer) if part]
        return f"{self.name} ({', '.join(parts)})" if parts else self.name


class Refusal(Record):
    """Why an algorithm cannot serve a group."""

    reason: str


class AlgorithmStage(Record, eq=False):
    """One level of a plan: the grid axes it joins, their order on a line, and its patterns."""

    axes: tuple[int, ...]
    make: Callable[[CollectivePart], MessagePattern | Refusal]
    order: IntArray | None = None


class Site(Record):
    """Where stages are made: the cluster, the group's grid, the algorithm asked for."""

    placement: Placement
    grid: RankGrid
    algorithm: Algorithm

    def size(self, axes: Sequence[int]) -> int:
        """Return the ranks along these grid axes."""
        return math.prod(self.grid.ranks.shape[axis] for axis in axes)

    def only(self, *levels: int) -> tuple[int, ...]:
        """Return the grid axes of these levels."""
        return tuple(i for i, level in enumerate(self.grid.levels) if level in levels)

    @property
    def inside(self) -> tuple[int, ...]:
        """The grid axes inside a node."""
        from trnbench.machine.placement import NODES

        return tuple(i for i, level in enumerate(self.grid.levels) if level != NODES)
