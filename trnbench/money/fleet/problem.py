"""Problem of a fleet in days and nodes: jobs with their ways to run, and their limits.

Day 0 is the first. A job that takes 3.2 days from day 5 on holds its machines on days 5 to 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from trnbench.facts.records import Record, field, replace

PoolKey = tuple[str, str, str]
"""Machines bought together: instance type, region, purchase option."""
_NEARLY = 1e-9


class JobWay(Record):
    """One way to run a job: `nodes` of an instance type in a region, under a purchase option."""

    instance: str
    region: str
    nodes: int
    option: str
    purchase: str
    """Purchase option for people, with its share of spot."""
    days: float
    """Days from start to end."""
    usd: float
    """USD for this job alone; machines of a `pool` are paid for there."""
    sure_days: float
    """Days to compare with a deadline."""
    upfront: bool = False
    """True where `usd` is due on the day of the start."""
    pool: PoolKey | None = None
    spot_share: float = 0.0

    @property
    def held_days(self) -> int:
        # A job that ends exactly at midnight does not hold the next day.
        return max(math.ceil(max(self.days, self.sure_days) - _NEARLY), 1)


class FleetTask(Record):
    """A job to be run."""

    name: str
    ways: tuple[JobWay, ...]
    earliest: int = 0
    """First day on which the job may start."""
    deadline: float | None = None
    """Days after day 0 by which the job must end, if any."""
    priority: float = 1.0


class NodeLimit(Record):
    """Most nodes of an instance type at once, for some options; region "" is any region."""

    instance: str
    region: str
    nodes: int
    options: tuple[str, ...] = ()

    def counts(self, way: JobWay) -> bool:
        """True where a way uses the limited nodes."""
        return (
            way.instance == self.instance
            and self.region in ("", way.region)
            and (not self.options or way.option in self.options)
        )

    @property
    def name(self) -> str:
        """The limit for people, such as "quota of 16 x p5 in us-east-1"."""
        of = f" as {', '.join(self.options)}" if self.options else ""
        where = f" in {self.region}" if self.region else ""
        return f"quota of {self.nodes:,} x {self.instance}{where}{of}"


class HeldNodes(Record):
    """Machines of a pool that are paid for already, from day `first` to before day `end`."""

    pool: PoolKey
    nodes: int
    first: int
    end: int


class TermOffer(Record):
    """A commitment on offer for a pool; `usd` for one node and the whole term of `days`."""

    pool: PoolKey
    days: int
    usd: float


class BlockOffer(Record):
    """A block on offer for a pool: `size` machines for `days`, `usd` in all."""

    pool: PoolKey
    size: int
    days: int
    usd: float
    starts: tuple[int, ...]
    """Days on which the block may start."""
    count: int = 1
    """Most blocks on each of these days."""


class Fleet(Record):
    """Jobs of a fleet, its offers and limits."""

    tasks: tuple[FleetTask, ...]
    horizon: int
    limits: tuple[NodeLimit, ...] = ()
    held: tuple[HeldNodes, ...] = ()
    terms: tuple[TermOffer, ...] = ()
    blocks: tuple[BlockOffer, ...] = ()
    months: tuple[str, ...] = ()
    """Month of each day."""
    budgets: Mapping[str, float] = field(default_factory=dict)
    """Month -> USD."""
    budget: float | None = None
    """USD for everything, with whole terms."""
    finish: float | None = None
    """Days after day 0 by which every job must end."""

    def last_start(self, task: FleetTask, way: JobWay) -> int:
        """Last day on which a way may start; below `earliest` where there is none."""
        last = float(self.horizon - way.held_days)
        if task.deadline is not None:
            last = min(last, task.deadline - way.sure_days)
        if self.finish is not None:
            last = min(last, self.finish - way.days)
        return math.floor(last + _NEARLY)

    def only(self, names: Iterable[str]) -> Fleet:
        kept = set(names)
        return replace(self, tasks=tuple(task for task in self.tasks if task.name in kept))


class PlacedRun(Record):
    """A job in the plan: its way, and the day on which it starts."""

    task: FleetTask
    way: JobWay
    start: int

    @property
    def end(self) -> float:
        return self.start + self.way.days


class Bought(Record):
    """A purchase for a pool on a day: nodes for a term, or blocks."""

    pool: PoolKey
    start: int
    days: int
    nodes: int
    usd: float
    blocks: int = 0


class FleetPlan(Record):
    """Plan of a fleet: runs with their days, and purchases for the pools."""

    runs: tuple[PlacedRun, ...]
    bought: tuple[Bought, ...]

    @property
    def usd(self) -> float:
        """Total cost of the plan: all runs and all purchases, USD."""
        return sum(run.way.usd for run in self.runs) + sum(one.usd for one in self.bought)

    @property
    def finish(self) -> float:
        """Days from day 0 to the end of the last job."""
        return max((run.end for run in self.runs), default=0.0)


def pools_of(fleet: Fleet) -> tuple[PoolKey, ...]:
    pools = {way.pool for task in fleet.tasks for way in task.ways if way.pool is not None}
    return tuple(sorted(pools))


def with_best_ways(fleet: Fleet) -> Fleet:
    """The fleet without ways that another beats in days, cost and nodes at once.

    Only ways to the same machines compete. Where nothing limits the number of machines, fewer nodes
    are no advantage.
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
    days = 1 if way.upfront else way.held_days
    return _spread(fleet, start, days, way.usd)


def bought_usd(fleet: Fleet, pool: PoolKey, start: int, days: int, usd: float) -> dict[str, float]:
    """USD of a purchase in each month: blocks at once, terms by the day."""
    return _spread(fleet, start, 1 if pool[2] == "capacity-block" else days, usd)


def _spread(fleet: Fleet, start: int, days: int, usd: float) -> dict[str, float]:
    by_month: dict[str, float] = {}
    for day in range(start, min(start + days, len(fleet.months))):
        by_month[fleet.months[day]] = by_month.get(fleet.months[day], 0.0) + usd / days
    return by_month
