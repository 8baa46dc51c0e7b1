"""Mixed-integer programme of a fleet: one binary variable for each job, way and day of start.

A job takes one of its ways on one day. On every day the running jobs keep the limits, and machines
of a pool are there: held already, committed to for a term, or in blocks. Whole terms and whole
blocks are bought. Days matter only for shared or limited machines and monthly budgets; all other
jobs start on their earliest day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record, State, field, replace
from trnbench.money.fleet.problem import (
    BlockOffer,
    Bought,
    Fleet,
    FleetPlan,
    FleetTask,
    JobWay,
    NodeLimit,
    PlacedRun,
    PoolKey,
    TermOffer,
    bought_usd,
    daily_usd,
    pools_of,
    with_best_ways,
)

Aim = Literal["cost", "finish", "most", "any"]
"""Least cost; earliest end of the last job; most priority placed; any plan."""
_THOUSAND = 1e3
"""The solver gets thousands of USD: its tolerances are made for numbers near 1."""
_SLACK = 1e-6


class Effort(Record):
    """Limits of the search: a relative `gap`, `branches` nodes, or `time_s` seconds."""

    gap: float = 1e-3
    branches: int = 20_000
    time_s: float | None = None


class Solved(Record):
    """Result of a programme: the best plan found, if any, and its proved distance from the best."""

    state: Literal["optimal", "stopped", "impossible"]
    """`optimal` within the gap, `stopped` before, or `impossible`."""
    schedule: FleetPlan | None
    bound: float
    """Lower bound of all plans, in the unit of the aim."""
    gap: float
    branches: int
    columns: int
    missing: tuple[str, ...] = ()
    """Jobs left out, where the aim allows that."""


def solve(
    fleet: Fleet, *, aim: Aim = "cost", effort: Effort | None = None, below: float | None = None
) -> Solved:
    """The best plan of a fleet; `below` is the cost in USD of a plan that is already known."""
    effort = effort or Effort()
    whole = fleet
    fleet = with_best_ways(fleet)
    leaves_out = aim == "most"
    if not leaves_out and any(not task.ways for task in fleet.tasks):
        return _none("impossible", 0)
    model = _Model(fleet=fleet, aim=aim)
    model.add_runs(_cut(fleet, below) if aim == "cost" else None, leaves_out=leaves_out)
    model.add_purchases()
    model.add_limits()
    return model.answer(effort, whole)


def _none(state: Literal["stopped", "impossible"], columns: int) -> Solved:
    return Solved(
        state=state,
        schedule=None,
        bound=float("nan"),
        gap=float("inf"),
        branches=0,
        columns=columns,
    )


def _cut(fleet: Fleet, below: float | None) -> dict[str, float] | None:
    """Most USD that each job may cost in a better plan: all others cost their least."""
    if below is None:
        return None
    least = {task.name: min(way.usd for way in task.ways) for task in fleet.tasks}
    spare = below * (1 + _SLACK) - sum(least.values())
    return {name: usd + spare for name, usd in least.items()}


class _Model(State):
    """The programme under construction; columns of runs first, then of purchases."""

    fleet: Fleet
    aim: Aim
    ways: list[tuple[FleetTask, JobWay, IntArray, int]] = field(default_factory=list)
    columns: int = 0
    cost: list[FloatArray] = field(default_factory=list)
    whole: list[FloatArray] = field(default_factory=list)
    upper: list[FloatArray] = field(default_factory=list)
    rows: list[tuple[IntArray, FloatArray, float, float]] = field(default_factory=list)
    terms: list[tuple[TermOffer, IntArray, int]] = field(default_factory=list)
    blocks: list[tuple[BlockOffer, IntArray, int]] = field(default_factory=list)
    absent: dict[str, int] = field(default_factory=dict)
    last: int | None = None

    def add_runs(self, most: dict[str, float] | None, *, leaves_out: bool) -> None:
        """Add a column for each job, way and day, and a row that picks one for every job."""
        for task in self.fleet.tasks:
            mine: list[IntArray] = []
            for way in task.ways:
                if most is not None and way.usd > most[task.name]:
                    continue
                starts = self._starts(task, way)
                first = self._add(np.full(len(starts), self._usd(way.usd)))
                self.ways.append((task, way, starts, first))
                mine.append(np.arange(first, self.columns))
            if leaves_out:
                self.absent[task.name] = self._add(np.array([task.priority]))
                mine.append(np.array([self.absent[task.name]]))
            columns = np.concatenate(mine) if mine else np.zeros(0, int)
            self.rows.append((columns, np.ones(len(columns)), 1.0, 1.0))
        if self.aim == "finish":
            # A free variable at or above every job's end; its minimum is the end of the last job.
            self.last = self._add(np.ones(1), whole=False, upper=float(self.fleet.horizon) * 2)
            for task in self.fleet.tasks:
                found = [(w, s, f) for t, w, s, f in self.ways if t is task]
                mine = [np.arange(first, first + len(starts)) for _, starts, first in found]
                ends = [starts + way.days for way, starts, _ in found]
                self.rows.append(
                    (
                        np.concatenate([*mine, np.array([self.last])]),
                        np.concatenate([*ends, np.array([-1.0])]),
                        -np.inf,
                        0.0,
                    )
                )

    def _starts(self, task: FleetTask, way: JobWay) -> IntArray:
        last = self.fleet.last_start(task, way)
        if last < task.earliest:
            return np.zeros(0, int)
        return np.arange(task.earliest, (last if self._tied(way) else task.earliest) + 1)

    def _tied(self, way: JobWay) -> bool:
        if way.pool is not None or self.fleet.budgets:
            return True
        return any(limit.counts(way) and not self._ample(limit) for limit in self.fleet.limits)

    def _ample(self, limit: NodeLimit) -> bool:
        """True where a limit holds even with all jobs at once."""
        most = sum(
            max((way.nodes for way in task.ways if limit.counts(way)), default=0)
            for task in self.fleet.tasks
        )
        return most <= limit.nodes

    def add_purchases(self) -> None:
        """Add purchases for the pools: terms by the node, blocks by the piece."""
        needs = self._needs()
        horizon = self.fleet.horizon
        for term in self.fleet.terms:
            if term.pool in needs:
                # A term that outlasts the horizon may as well begin on day 0.
                starts = np.arange(1 if term.days >= horizon else horizon)
                first = self._add(np.full(len(starts), self._usd(term.usd)), upper=needs[term.pool])
                self.terms.append((term, starts, first))
        for block in self.fleet.blocks:
            starts = np.array([day for day in block.starts if 0 <= day < horizon], int)
            if block.pool in needs and len(starts):
                first = self._add(np.full(len(starts), self._usd(block.usd)), upper=block.count)
                self.blocks.append((block, starts, first))

    def _usd(self, usd: float) -> float:
        return usd / _THOUSAND if self.aim == "cost" else 0.0

    def _needs(self) -> dict[PoolKey, float]:
        """Most nodes of each pool that could run together."""
        most: dict[PoolKey, dict[str, int]] = {}
        for task, way, _, _ in self.ways:
            if way.pool is not None:
                of = most.setdefault(way.pool, {})
                of[task.name] = max(of.get(task.name, 0), way.nodes)
        return {pool: float(sum(of.values())) for pool, of in most.items()}

    def add_limits(self) -> None:
        """Add rows for the limits of every day and the budgets of every month."""
        days = self.fleet.horizon
        for limit in self.fleet.limits:
            if not self._ample(limit):
                found = [one for one in self.ways if limit.counts(one[1])]
                self._by_day(found, np.full(days, float(limit.nodes)), ())
        for pool in pools_of(self.fleet):
            there = np.zeros(days)
            for held in self.fleet.held:
                if held.pool == pool:
                    there[max(held.first, 0) : max(held.end, 0)] += held.nodes
            supply = [
                (starts, first, offer.days, 1.0)
                for offer, starts, first in self.terms
                if offer.pool == pool
            ]
            supply += [
                (starts, first, block.days, float(block.size))
                for block, starts, first in self.blocks
                if block.pool == pool
            ]
            self._by_day([one for one in self.ways if one[1].pool == pool], there, supply)
        self._add_budgets()

    def _by_day(
        self,
        found: Sequence[tuple[FleetTask, JobWay, IntArray, int]],
        most: FloatArray,
        supply: Sequence[tuple[IntArray, int, int, float]],
    ) -> None:
        """Add a row for each day on which a job could run: nodes in use are at most those there."""
        parts = [
            (starts, first, way.held_days, float(way.nodes)) for _, way, starts, first in found
        ]
        parts += [(starts, first, days, -size) for starts, first, days, size in supply]
        columns: list[list[IntArray]] = [[] for _ in most]
        weights: list[list[FloatArray]] = [[] for _ in most]
        for starts, first, held, size in parts:
            if not len(starts):
                continue
            for day in range(int(starts[0]), min(int(starts[-1]) + held, len(most))):
                running = np.flatnonzero((starts <= day) & (day < starts + held))
                if len(running):
                    columns[day].append(first + running)
                    weights[day].append(np.full(len(running), size))
        for day, mine in enumerate(columns):
            if mine:
                self.rows.append(
                    (np.concatenate(mine), np.concatenate(weights[day]), -np.inf, float(most[day]))
                )

    def _add_budgets(self) -> None:
        fleet = self.fleet
        spent: dict[str, dict[int, float]] = {month: {} for month in fleet.budgets}
        total: dict[int, float] = {}

        def note(column: int, usd: float, months: dict[str, float]) -> None:
            total[column] = usd / _THOUSAND
            for month, part in months.items():
                if month in spent:
                    spent[month][column] = part / _THOUSAND

        if not fleet.budgets and fleet.budget is None:
            return
        for _, way, starts, first in self.ways:
            for number, start in enumerate(starts.tolist()):
                months = daily_usd(fleet, way, start) if fleet.budgets else {}
                note(first + number, way.usd, months)
        offers: list[tuple[TermOffer | BlockOffer, IntArray, int]] = [*self.terms, *self.blocks]
        for offer, starts, first in offers:
            for number, start in enumerate(starts.tolist()):
                months = bought_usd(fleet, offer.pool, start, offer.days, offer.usd)
                note(first + number, offer.usd, months)
        budgets = {month: (spent[month], usd) for month, usd in fleet.budgets.items()}
        if fleet.budget is not None:
            budgets[""] = (total, fleet.budget)
        for by_column, usd in budgets.values():
            if by_column:
                columns = np.array(list(by_column), int)
                parts = np.array(list(by_column.values()))
                self.rows.append((columns, parts, -np.inf, usd / _THOUSAND))

    def _add(self, cost: FloatArray, *, whole: bool = True, upper: float = 1.0) -> int:
        first = self.columns
        self.cost.append(cost)
        self.whole.append(np.full(len(cost), float(whole)))
        self.upper.append(np.full(len(cost), upper))
        self.columns += len(cost)
        return first

    def answer(self, effort: Effort, whole: Fleet) -> Solved:
        """The solver's result."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        if not self.columns:
            solved = _none("impossible", 0)
            if self.fleet.tasks:
                return solved
            nothing = FleetPlan(runs=(), bought=())
            return replace(solved, state="optimal", schedule=nothing, bound=0, gap=0)
        counts = [len(columns) for columns, _, _, _ in self.rows]
        matrix = csr_array(
            (
                np.concatenate([weights for _, weights, _, _ in self.rows]),
                np.concatenate([columns for columns, _, _, _ in self.rows]),
                np.concatenate([[0], np.cumsum(counts)]),
            ),
            shape=(len(self.rows), self.columns),
        )
        options: dict[str, float] = {"mip_rel_gap": effort.gap, "node_limit": effort.branches}
        if effort.time_s is not None:
            options["time_limit"] = effort.time_s
        solution = milp(
            np.concatenate(self.cost),
            integrality=np.concatenate(self.whole),
            bounds=Bounds(0, np.concatenate(self.upper)),
            constraints=LinearConstraint(
                matrix, [row[2] for row in self.rows], [row[3] for row in self.rows]
            ),
            options=options,
        )
        scale = _THOUSAND if self.aim == "cost" else 1.0
        if solution.status == 2:
            return _none("impossible", self.columns)
        bound = getattr(solution, "mip_dual_bound", None)
        if solution.x is None:
            stopped = _none("stopped", self.columns)
            return stopped if bound is None else replace(stopped, bound=float(bound) * scale)
        taken = np.rint(np.asarray(solution.x)).astype(int)
        return Solved(
            state="optimal" if solution.status == 0 else "stopped",
            schedule=self._schedule(taken, whole),
            bound=float(bound if bound is not None else solution.fun) * scale,
            gap=float(solution.mip_gap or 0.0),
            branches=int(solution.mip_node_count or 0),
            columns=self.columns,
            missing=tuple(name for name, column in self.absent.items() if taken[column]),
        )

    def _schedule(self, taken: IntArray, whole: Fleet) -> FleetPlan:
        runs: list[PlacedRun] = []
        original = {task.name: task for task in whole.tasks}
        for task, way, starts, first in self.ways:
            runs += [
                PlacedRun(task=original[task.name], way=way, start=int(starts[number]))
                for number in np.flatnonzero(taken[first : first + len(starts)]).tolist()
            ]
        order = {task.name: number for number, task in enumerate(whole.tasks)}
        runs.sort(key=lambda run: order[run.task.name])
        bought = []
        offers: list[tuple[TermOffer | BlockOffer, IntArray, int]] = [*self.blocks, *self.terms]
        for offer, starts, first in offers:
            size = offer.size if isinstance(offer, BlockOffer) else 1
            for number in np.flatnonzero(taken[first : first + len(starts)]).tolist():
                count, start = int(taken[first + number]), int(starts[number])
                bought.append(
                    Bought(
                        pool=offer.pool,
                        start=self._first_use(offer, start, runs),
                        days=offer.days,
                        nodes=size * count,
                        usd=offer.usd * count,
                        blocks=count if isinstance(offer, BlockOffer) else 0,
                    )
                )
        return FleetPlan(
            runs=tuple(runs), bought=tuple(sorted(bought, key=lambda b: (b.start, b.pool)))
        )

    def _first_use(
        self, offer: TermOffer | BlockOffer, start: int, runs: Sequence[PlacedRun]
    ) -> int:
        """First day of a purchase; a term that outlasts the horizon begins with its first run."""
        if isinstance(offer, BlockOffer) or offer.days < self.fleet.horizon:
            return start
        using = [run.start for run in runs if run.way.pool == offer.pool]
        return max(start, min(using, default=start))
