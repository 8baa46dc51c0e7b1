"""A fleet's question in days and nodes: jobs with their ways to run, and what limits them.

Day 0 is the first. A job that takes 3.2 days from day 5 on holds its machines on days 5 to 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from trnbench.facts.records import Record, field, replace

PoolKey = tuple[str, str, str]
"""Machines bought together: instance type, region, purchase option."""
FleetObjective = Literal["cost", "time", "pareto"]
_NEARLY = 1e-9


class JobWay(Record):
    """One way to run a job: so many nodes of an instance type in a region, bought so.

    `days` from start to end, `sure_days` what a deadline is held against. `usd` is what is paid for
    this job alone, the day it starts where `upfront`; machines of a `pool` are paid for there.
    `purchase` names the option for people, with the share that is spot.
    """

    instance: str
    region: str
    nodes: int
    option: str
    purchase: str
    days: float
    usd: float
    sure_days: float
    upfront: bool = False
    pool: PoolKey | None = None
    spot_share: float = 0.0

    @property
    def held_days(self) -> int:
        """The days on which it holds its machines."""
        return max(math.ceil(max(self.days, self.sure_days) - _NEARLY), 1)


class FleetTask(Record):
    """A job to be run: not before `earliest`, done within `deadline` days of day 0, if any."""

    name: str
    ways: tuple[JobWay, ...]
    earliest: int = 0
    deadline: float | None = None
    priority: float = 1.0


class NodeLimit(Record):
    """At most so many nodes of an instance type at once, of some options; region "" is any."""

    instance: str
    region: str
    nodes: int
    options: tuple[str, ...] = ()

    def counts(self, way: JobWay) -> bool:
        """Tell whether a way uses what is limited."""
        return (
            way.instance == self.instance
            and self.region in ("", way.region)
            and (not self.options or way.option in self.options)
        )

    @property
    def name(self) -> str:
        """It in words."""
        of = f" as {', '.join(self.options)}" if self.options else ""
        where = f" in {self.region}" if self.region else ""
        return f"quota of {self.nodes:,} x {self.instance}{where}{of}"


class HeldNodes(Record):
    """Machines of a pool that are paid for already, from one day to before another."""

    pool: PoolKey
    nodes: int
    first: int
    end: int


class TermOffer(Record):
    """A commitment to be had for a pool: what a node costs for the whole term of `days`."""

    pool: PoolKey
    days: int
    usd: float


class BlockOffer(Record):
    """A block of machines on offer for a pool: `size` for `days`, `usd` for all, on `starts`.

    At most `count` of it on each of these days.
    """

    pool: PoolKey
    size: int
    days: int
    usd: float
    starts: tuple[int, ...]
    count: int = 1


class Fleet(Record):
    """All of it. `months`: of each day its month; `budgets` are in USD, by month.

    `budget` is for everything, terms whole. `finish`: no job ends later, in days.
    """

    tasks: tuple[FleetTask, ...]
    horizon: int
    limits: tuple[NodeLimit, ...] = ()
    held: tuple[HeldNodes, ...] = ()
    terms: tuple[TermOffer, ...] = ()
    blocks: tuple[BlockOffer, ...] = ()
    months: tuple[str, ...] = ()
    budgets: Mapping[str, float] = field(default_factory=dict)
    budget: float | None = None
    finish: float | None = None

    def last_start(self, task: FleetTask, way: JobWay) -> int:
        """Return the last day on which a way may start; below `earliest` where there is none."""
        last = float(self.horizon - way.held_days)
        if task.deadline is not None:
            last = min(last, task.deadline - way.sure_days)
        if self.finish is not None:
            last = min(last, self.finish - way.days)
        return math.floor(last + _NEARLY)

    def only(self, names: Iterable[str]) -> Fleet:
        """Return the fleet with some of its jobs."""
        kept = set(names)
        return replace(self, tasks=tuple(task for task in self.tasks if task.name in kept))


class PlacedRun(Record):
    """A job in the plan: its way, and the day on which it starts."""

    task: FleetTask
    way: JobWay
    start: int

    @property
    def end(self) -> float:
        """When it ends, in days."""
        return self.start + self.way.days


class Bought(Record):
    """Something bought for a pool on a day: nodes for a term, or blocks."""

    pool: PoolKey
    start: int
    days: int
    nodes: int
    usd: float
    blocks: int = 0


class FleetPlan(Record):
    """A plan of the fleet: what runs when, and what is bought for the pools."""

    runs: tuple[PlacedRun, ...]
    bought: tuple[Bought, ...]

    @property
    def usd(self) -> float:
        """What all of it costs."""
        return sum(run.way.usd for run in self.runs) + sum(one.usd for one in self.bought)

    @property
    def finish(self) -> float:
        """When the last job ends, in days."""
        return max((run.end for run in self.runs), default=0.0)


def pools_of(fleet: Fleet) -> tuple[PoolKey, ...]:
    """Return the pools that some way could use."""
    found = {way.pool for task in fleet.tasks for way in task.ways if way.pool is not None}
    return tuple(sorted(found))


def with_best_ways(fleet: Fleet) -> Fleet:
    """Return the fleet without ways that another beats in days, cost and nodes at once.

    Only ways to the same machines are held against each other; where nothing limits how many
    there are, fewer nodes are no merit.
    """
    limited = {limit.instance for limit in fleet.limits}
    tasks = []
    for task in fleet.tasks:
        groups: dict[tuple[object, bool], list[JobWay]] = {}
        for way in task.ways:
            if fleet.last_start(task, way) >= task.earliest:
                tight = way.instance in limited or way.pool is not None
                at = (way.instance, way.region, way.option, way.pool) if tight else None
                groups.setdefault((at, way.upfront), []).append(way)
        ways: list[JobWay] = []
        for (place, _), group in groups.items():
            ways += _unbeaten(group, by_nodes=place is not None)
        tasks.append(replace(task, ways=tuple(ways)))
    return replace(fleet, tasks=tuple(tasks))


def _unbeaten(ways: list[JobWay], *, by_nodes: bool) -> list[JobWay]:
    def figures(way: JobWay) -> tuple[float, ...]:
        return way.usd, way.days, way.sure_days, float(way.nodes) if by_nodes else 0.0

    kept: list[JobWay] = []
    for way in sorted(ways, key=figures):
        mine = figures(way)
        if not any(all(a <= b for a, b in zip(figures(one), mine, strict=True)) for one in kept):
            kept.append(way)
    return kept


def daily_usd(fleet: Fleet, way: JobWay, start: int) -> dict[str, float]:
    """Return what a way costs in each month."""
    days = 1 if way.upfront else way.held_days
    return _spread(fleet, start, days, way.usd)


def bought_usd(fleet: Fleet, pool: PoolKey, start: int, days: int, usd: float) -> dict[str, float]:
    """Return what something bought costs in each month: blocks at once, terms by the day."""
    return _spread(fleet, start, 1 if pool[2] == "capacity-block" else days, usd)


def _spread(fleet: Fleet, start: int, days: int, usd: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for day in range(start, min(start + days, len(fleet.months))):
        found[fleet.months[day]] = found.get(fleet.months[day], 0.0) + usd / days
    return found
