"""Greedy plan, job by job, each as cheaply as the remaining machines allow: start and fallback.

Several orders are tried; the cheapest plan is kept. Blocks on offer are left to the programme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import State, field
from trnbench.money.fleet.problem import (
    Bought,
    Fleet,
    FleetPlan,
    FleetTask,
    JobWay,
    PlacedRun,
    PoolKey,
    TermOffer,
    bought_usd,
    daily_usd,
    with_best_ways,
)

_NEARLY = 1e-9


def greedy(fleet: Fleet) -> FleetPlan | None:
    """The cheapest of a few plans made job by job; None where none of them fits."""
    plans = [plan for order in _orders(fleet) if (plan := _in_order(fleet, order)) is not None]
    return min(plans, key=lambda plan: plan.usd, default=None)


def _orders(fleet: Fleet) -> list[list[FleetTask]]:
    tasks = list(with_best_ways(fleet).tasks)
    if any(not task.ways for task in tasks):
        return []

    def deadline(task: FleetTask) -> float:
        return float(fleet.horizon) if task.deadline is None else task.deadline

    def slack(task: FleetTask) -> float:
        return deadline(task) - min(way.days for way in task.ways) - task.earliest

    keys: list[Callable[[FleetTask], float]] = [
        lambda task: -task.priority,
        deadline,
        slack,
        lambda task: -min(way.usd for way in task.ways),
        lambda task: -max(way.nodes for way in task.ways),
    ]
    return [sorted(tasks, key=key) for key in keys]


class _Left(State):
    """Limits, pools and budgets that remain while jobs are placed."""

    fleet: Fleet
    nodes: list[FloatArray]
    pools: dict[PoolKey, FloatArray]
    months: dict[str, float]
    budget: float
    bought: list[Bought] = field(default_factory=list)


def _all_of(fleet: Fleet) -> _Left:
    left = _Left(
        fleet=fleet,
        nodes=[np.full(fleet.horizon, float(limit.nodes)) for limit in fleet.limits],
        pools={},
        months=dict(fleet.budgets),
        budget=float("inf") if fleet.budget is None else fleet.budget,
    )
    for held in fleet.held:
        there = left.pools.setdefault(held.pool, np.zeros(fleet.horizon))
        there[max(held.first, 0) : max(held.end, 0)] += held.nodes
    return left


def moved_earlier(fleet: Fleet, plan: FleetPlan) -> FleetPlan:
    """The plan with runs moved to earlier days where its purchases allow, the first runs first."""
    left = _all_of(fleet)
    _buy(left, plan.bought)
    for run in plan.runs:
        _take(left, run.way, run.start)
    moved = {}
    for run in sorted(plan.runs, key=lambda one: (one.start, one.task.name)):
        _take(left, run.way, run.start, times=-1)
        start = next(
            (
                start
                for start in range(run.task.earliest, run.start)
                if _free(left, run.way, start)
                and _wanting(left, run.way, start) == ()
                and _affordable(left, run.way, start, ())
            ),
            run.start,
        )
        _take(left, run.way, start)
        moved[run.task.name] = PlacedRun(task=run.task, way=run.way, start=start)
    return FleetPlan(runs=tuple(moved[run.task.name] for run in plan.runs), bought=plan.bought)


def _in_order(fleet: Fleet, tasks: Sequence[FleetTask]) -> FleetPlan | None:
    left = _all_of(fleet)
    original = {task.name: task for task in fleet.tasks}
    runs: dict[str, PlacedRun] = {}
    for task in tasks:
        best: tuple[float, float, JobWay, int, tuple[Bought, ...]] | None = None
        for way in task.ways:
            placed = _earliest(left, task, way)
            if placed is not None:
                start, more = placed
                usd = way.usd + sum(one.usd for one in more)
                if best is None or (usd, start + way.days) < best[:2]:
                    best = (usd, start + way.days, way, start, more)
        if best is None:
            return None
        _, _, way, start, more = best
        _buy(left, more)
        left.bought += more
        _take(left, way, start)
        runs[task.name] = PlacedRun(task=original[task.name], way=way, start=start)
    order = [task.name for task in fleet.tasks]
    return FleetPlan(runs=tuple(runs[name] for name in order), bought=tuple(left.bought))


def _earliest(left: _Left, task: FleetTask, way: JobWay) -> tuple[int, tuple[Bought, ...]] | None:
    """Cheapest start day of a way, and the purchases that this day needs."""
    best: tuple[float, int, tuple[Bought, ...]] | None = None
    for start in range(task.earliest, left.fleet.last_start(task, way) + 1):
        if not _free(left, way, start):
            continue
        more = _wanting(left, way, start)
        if more is None or not _affordable(left, way, start, more):
            continue
        usd = sum(one.usd for one in more)
        if best is None or usd < best[0]:
            best = (usd, start, more)
        if usd == 0:
            break
    return None if best is None else (best[1], best[2])


def _wanting(left: _Left, way: JobWay, start: int) -> tuple[Bought, ...] | None:
    """Purchases for whole terms that fill a pool for a way; None where no term is on offer."""
    if way.pool is None:
        return ()
    there = left.pools.get(way.pool, np.zeros(left.fleet.horizon)).copy()
    term: TermOffer | None = next((t for t in left.fleet.terms if t.pool == way.pool), None)
    more = []
    for day in range(start, start + way.held_days):
        lacking = round(way.nodes - float(there[day]))
        if lacking > 0:
            if term is None:
                return None
            usd = lacking * term.usd
            more.append(Bought(pool=way.pool, start=day, days=term.days, nodes=lacking, usd=usd))
            there[day : day + term.days] += lacking
    return tuple(more)


def _affordable(left: _Left, way: JobWay, start: int, more: Sequence[Bought]) -> bool:
    total = way.usd + sum(one.usd for one in more)
    if total > left.budget * (1 + _NEARLY):
        return False
    spent = _by_month(left.fleet, way, start, more)
    return all(spent.get(month, 0.0) <= usd * (1 + _NEARLY) for month, usd in left.months.items())


def _by_month(fleet: Fleet, way: JobWay, start: int, more: Sequence[Bought]) -> dict[str, float]:
    spent = daily_usd(fleet, way, start)
    for one in more:
        for month, usd in bought_usd(fleet, one.pool, one.start, one.days, one.usd).items():
            spent[month] = spent.get(month, 0.0) + usd
    return spent


def _free(left: _Left, way: JobWay, start: int) -> bool:
    """True where every limit allows a way on the days from `start`."""
    days = slice(start, start + way.held_days)
    return not any(
        limit.counts(way) and float(there[days].min()) < way.nodes
        for limit, there in zip(left.fleet.limits, left.nodes, strict=True)
    )


def _take(left: _Left, way: JobWay, start: int, *, times: int = 1) -> None:
    """Take a way's needs from what is left; `times=-1` gives them back."""
    days = slice(start, start + way.held_days)
    for limit, there in zip(left.fleet.limits, left.nodes, strict=True):
        if limit.counts(way):
            there[days] -= times * way.nodes
    _spend(left, times * way.usd, _by_month(left.fleet, way, start, ()), times)
    if way.pool is not None:
        pool = left.pools.setdefault(way.pool, np.zeros(left.fleet.horizon))
        pool[days] -= times * way.nodes


def _buy(left: _Left, more: Sequence[Bought]) -> None:
    """Add purchases to the pools and take their cost from the budgets."""
    for one in more:
        pool = left.pools.setdefault(one.pool, np.zeros(left.fleet.horizon))
        pool[one.start : one.start + one.days] += one.nodes
        months = bought_usd(left.fleet, one.pool, one.start, one.days, one.usd)
        _spend(left, one.usd, months, 1)


def _spend(left: _Left, usd: float, months: dict[str, float], times: int) -> None:
    left.budget -= usd
    for month, part in months.items():
        if month in left.months:
            left.months[month] -= times * part
