"""Binding limits of a fleet and their cost, found by solving again without each limit."""

from __future__ import annotations

from collections.abc import Iterator

from trnbench.facts.records import Record, replace
from trnbench.money.fleet.problem import Fleet, FleetPlan
from trnbench.money.fleet.programme import Effort, solve

MOST = 24
"""Most limits whose cost is found by solving again."""
LONGER = 4
"""Factor on the number of days where the horizon is lifted."""


class Lifted(Record):
    """A limit in words, and the fleet without it."""

    what: str
    fleet: Fleet
    task: str = ""
    """The job that the limit concerns, if a single one."""


class LimitCost(Record):
    """Cost of a limit: USD saved without it."""

    what: str
    usd: float
    sure: bool
    """True where the saving is larger than the solver's gap."""


def liftable(fleet: Fleet) -> Iterator[Lifted]:
    """Yield every limit of a fleet but its number of days."""
    for number, task in enumerate(fleet.tasks):

        def changed(number: int = number, **keys: object) -> Fleet:
            one = replace(fleet.tasks[number], **keys)
            tasks = (*fleet.tasks[:number], one, *fleet.tasks[number + 1 :])
            return replace(fleet, tasks=tasks)

        if task.deadline is not None:
            yield Lifted(
                what=f"deadline of {task.name}", fleet=changed(deadline=None), task=task.name
            )
        if task.earliest:
            yield Lifted(
                what=f"earliest start of {task.name}", fleet=changed(earliest=0), task=task.name
            )
    for number, limit in enumerate(fleet.limits):
        rest = (*fleet.limits[:number], *fleet.limits[number + 1 :])
        yield Lifted(what=limit.name, fleet=replace(fleet, limits=rest))
    for month in fleet.budgets:
        others = {name: usd for name, usd in fleet.budgets.items() if name != month}
        yield Lifted(what=f"budget of {month}", fleet=replace(fleet, budgets=others))
    if fleet.budget is not None:
        yield Lifted(what="budget", fleet=replace(fleet, budget=None))


def longer(fleet: Fleet) -> Lifted:
    """The fleet with more days in an additional last month."""
    horizon = LONGER * fleet.horizon
    more = ("later",) * (horizon - fleet.horizon)
    changed = replace(fleet, horizon=horizon, months=(*fleet.months, *more))
    return Lifted(what=f"horizon of {fleet.horizon} days", fleet=changed)


def binding(fleet: Fleet, effort: Effort) -> tuple[str, ...]:
    """Limits that each alone make a fleet impossible; else the fewest found together.

    Empty, where the fleet is impossible without any limit too.
    """

    def possible(one: Fleet) -> bool:
        return solve(one, aim="any", effort=effort).schedule is not None

    lifts = [*liftable(fleet), longer(fleet)]
    alone = [one.what for one in lifts if possible(one.fleet)]
    if alone:
        return tuple(alone)
    free = _without(fleet, {one.what for one in lifts})
    if not possible(free):
        return ()
    needed = {one.what for one in lifts}
    for one in lifts:
        rest = needed - {one.what}
        if possible(_without(fleet, rest)):
            needed = rest
    return (" and ".join(one.what for one in lifts if one.what in needed),)


def _without(fleet: Fleet, names: set[str]) -> Fleet:
    for name in sorted(names):
        lifts = [*liftable(fleet), longer(fleet)]
        lifted = next((one for one in lifts if one.what == name), None)
        if lifted is not None:
            fleet = lifted.fleet
    return fleet


def limit_costs(fleet: Fleet, plan: FleetPlan, effort: Effort) -> tuple[LimitCost, ...]:
    """Cost of each limit that may have one, by solving again without it, dearest first.

    A deadline or start of a job that already has its cheapest way costs nothing, and is skipped.
    """
    cheapest = {task.name: min((way.usd for way in task.ways), default=0.0) for task in fleet.tasks}
    at_least = {run.task.name for run in plan.runs if run.way.usd <= cheapest[run.task.name]}
    pooled = {run.task.name for run in plan.runs if run.way.pool is not None}
    costs = []
    asked = [one for one in liftable(fleet) if one.task not in at_least - pooled]
    for one in asked[:MOST]:
        solved = solve(one.fleet, effort=effort, below=plan.usd)
        if solved.schedule is not None:
            saved = plan.usd - solved.schedule.usd
            if saved > 0:
                sure = saved > effort.gap * plan.usd
                costs.append(LimitCost(what=one.what, usd=saved, sure=sure))
    return tuple(sorted(costs, key=lambda cost: -cost.usd))
