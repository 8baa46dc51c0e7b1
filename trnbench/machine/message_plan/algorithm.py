"""Algorithms by name, refusals of one, and the stages that a plan is made of."""

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
    """Algorithm by name; `hierarchical` runs `inner` in the node and `outer` between nodes."""

    name: str
    inner: str | None = None
    outer: str | None = None
    one_way: bool = False  # only one direction of one ring
    by_level: bool = False  # direct goes level by level instead of straight across
    pieces: int = 16  # of the data, so that steps of trees, chains and switches overlap

    @property
    def label(self) -> str:
        """Name as shown, such as "hierarchical (kangaring, ring)"."""
        parts = [part for part in (self.inner, self.outer) if part]
        return f"{self.name} ({', '.join(parts)})" if parts else self.name


class Refusal(Record):
    """Reason that an algorithm cannot serve a group."""

    reason: str


class AlgorithmStage(Record, eq=False):
    """One level of a plan: lines of ranks, and the patterns they run."""

    axes: tuple[int, ...]  # of the grid, joined to one line
    make: Callable[[CollectivePart], MessagePattern | Refusal]
    order: IntArray | None = None  # of the ranks on a line


class Site(Record):
    """Setting in which stages are made: the cluster, the group's grid, the algorithm."""

    placement: Placement
    grid: RankGrid
    algorithm: Algorithm

    def size(self, axes: Sequence[int]) -> int:
        """Number of ranks along these grid axes."""
        return math.prod(self.grid.ranks.shape[axis] for axis in axes)

    def only(self, *levels: int) -> tuple[int, ...]:
        """Grid axes of these levels."""
        return tuple(i for i, level in enumerate(self.grid.levels) if level in levels)

    @property
    def inside(self) -> tuple[int, ...]:
        """Grid axes inside a node."""
        from trnbench.machine.placement import NODES

        return tuple(i for i, level in enumerate(self.grid.levels) if level != NODES)
