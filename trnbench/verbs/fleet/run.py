"""The fleet use case: many jobs and one purchase, as a mixed-integer programme."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence

from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.fleet import FleetFile
from trnbench.money.billing import Bill, added
from trnbench.money.fleet.greedy import greedy, moved_earlier
from trnbench.money.fleet.problem import Bought, Fleet, FleetPlan, JobWay, PlacedRun
from trnbench.money.fleet.programme import Solved, solve
from trnbench.money.fleet.relax import LimitCost, binding, limit_costs
from trnbench.money.market import cost_of
from trnbench.predict.assumption import Assumption
from trnbench.show.row import Cell
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.fleet.answer import (
    FleetAnswer,
    FleetPurchase,
    FleetRow,
    FoundBy,
    FrontPoint,
    MonthBill,
)
from trnbench.verbs.fleet.jobs import JobWays, WaysFinder
from trnbench.verbs.fleet.problem import fleet_problem, refuse_unknown
from trnbench.verbs.fleet.question import FleetQuestion
from trnbench.verbs.fleet.risk import FleetRisk, risk_of
from trnbench.verbs.quotes.answer import bill_cells

FRONT_POINTS = 5
RATE_CELLS = (
    *("purchase", "region", "usd_per_hour", "price_date", "price_origin", "discount"),
    "price_source",
)
_NEARLY = 1e-6


def fleet_run(
    catalog: Catalog, question: FleetQuestion, *, watch: Watch | None = None
) -> FleetAnswer:
    """Return machines and start of every job of a fleet, and the purchases of each day.

    `file` is a path or the name of a shipped fleet. The search ends within `gap` of the least
    cost, or, if given, after `time_limit`. `limit_costs` solves again without each limit;
    `max_price_age` warns of older rates.

    >>> from trnbench import fleet
    >>> answer = fleet("two-jobs", limit_costs=False)
    >>> answer.feasible
    True
    """
    watch = watch or Watch()
    file = question.fleet
    refuse_unknown(catalog, file)
    finder = WaysFinder(
        catalog=catalog, fleet=file, watch=watch, max_price_age_s=question.max_price_age_s
    )
    found = []
    for number, job in enumerate(file.job):
        watch.progress(number, len(file.job), f"jobs searched, {job.name}")
        found.append(finder.ways_of(job))
    return _Planning(
        catalog=catalog, question=question, jobs={one.job.name: one for one in found}
    ).answer(fleet_problem(catalog, file, found))


fleet = verb_of("fleet", FleetQuestion, fleet_run)


def _assumed(ways: JobWays, way: JobWay) -> tuple[Assumption, ...]:
    choice = next(one for key, one in ways.choices.items() if key[0] == way.instance)
    return choice.assumed(way.nodes)


class _Planning(Record):
    catalog: Catalog
    question: FleetQuestion
    jobs: Mapping[str, JobWays]

    @property
    def file(self) -> FleetFile:
        return self.question.fleet

    def answer(self, problem: Fleet) -> FleetAnswer:
        """Return the plan."""
        effort = self.question.effort
        if not problem.tasks:
            return self._said(problem, None, None, found_by="nothing", feasible=True)
        wayless = [task.name for task in problem.tasks if not task.ways]
        start = None if wayless else greedy(problem)
        solved: Solved | None = None
        front: tuple[FrontPoint, ...] = ()
        if not wayless:
            solved, front = self._solved(problem, start)
        plan = solved.schedule if solved else None
        by_greedy = start is not None and (plan is None or start.usd < plan.usd * (1 - _NEARLY))
        if by_greedy and self.file.objective != "time":
            plan = start
        if plan is not None:
            said = self._said(
                problem,
                plan,
                solved,
                found_by="greedy" if plan is start else "programme",
                feasible=True,
            )
            costs: tuple[LimitCost, ...] = ()
            if self.question.limit_costs and self.file.objective != "time":
                costs = limit_costs(problem, plan, effort)
            return replace(said, front=front, limit_costs=costs)
        return self._partly(problem, wayless, solved)

    def _solved(
        self, problem: Fleet, start: FleetPlan | None
    ) -> tuple[Solved, tuple[FrontPoint, ...]]:
        """Return the plan that the objective asks for, and the front if it is asked for."""
        effort, objective = self.question.effort, self.file.objective
        known = start.usd if start else None
        if objective == "cost":
            return solve(problem, effort=effort, below=known), ()
        first = solve(problem, aim="finish", effort=effort)
        if first.schedule is None:
            return first, ()
        soonest = first.schedule.finish * (1 + _NEARLY)
        fastest = solve(replace(problem, finish=soonest), effort=effort)
        if fastest.schedule is None:
            fastest = first
        if objective == "time":
            return fastest, ()
        cheapest = solve(problem, effort=effort, below=known)
        if cheapest.schedule is None or fastest.schedule is None:
            return fastest, ()
        plans = [fastest.schedule]
        last = cheapest.schedule.finish
        for number in range(1, FRONT_POINTS + 1):
            finish = soonest + (last - soonest) * number / (FRONT_POINTS + 1)
            between = solve(replace(problem, finish=finish), effort=effort)
            if between.schedule is not None:
                plans.append(between.schedule)
        plans.append(cheapest.schedule)
        front: list[FrontPoint] = []
        for plan in sorted(plans, key=lambda one: (one.finish, one.usd)):
            if not front or plan.usd < front[-1].cost_usd * (1 - _NEARLY):
                front.append(FrontPoint(finish_days=plan.finish, cost_usd=plan.usd))
        return cheapest, tuple(front)

    def _partly(self, problem: Fleet, wayless: Sequence[str], solved: Solved | None) -> FleetAnswer:
        """Return the part of a fleet that can be done where the whole cannot, by priority."""
        effort = self.question.effort
        stopped = solved is not None and solved.state == "stopped"
        words: tuple[str, ...] = tuple(
            f"{name}: {'; '.join(self.jobs[name].reasons) or 'no instance to run on'}"
            for name in wayless
        )
        able = problem.only(task.name for task in problem.tasks if task.ways)
        if not stopped and able.tasks:
            words += () if wayless else binding(problem, effort)
        most = solve(able, aim="most", effort=effort)
        kept = able.only({task.name for task in able.tasks} - set(most.missing))
        best = solve(kept, effort=effort) if kept.tasks else None
        plan = best.schedule if best else None
        said = self._said(problem, plan, best, found_by="programme", feasible=False)
        return replace(said, binding=words, stopped=stopped or said.stopped)

    def _said(
        self,
        problem: Fleet,
        plan: FleetPlan | None,
        solved: Solved | None,
        *,
        found_by: FoundBy,
        feasible: bool,
    ) -> FleetAnswer:
        """Return a plan in dates and USD."""
        plan = moved_earlier(problem, plan) if plan else FleetPlan(runs=(), bought=())
        risk = risk_of(plan, self.jobs)
        runs = {run.task.name: run for run in plan.runs}
        shares = _pool_shares(plan)
        rows = tuple(
            self._row(name, runs.get(name), shares.get(name, 0.0), risk) for name in self.jobs
        )
        priced = solved is not None and plan.usd > 0 and solved.bound == solved.bound
        by_time = self.file.objective == "time"
        bound = solved.bound if solved is not None and priced and not by_time else None
        warnings = [warning for one in self.jobs.values() for warning in one.warnings]
        spotted = any(run.way.spot_share for run in plan.runs)
        return FleetAnswer(
            name=self.file.name,
            title=self.file.title,
            starts_on=self.file.starts_on,
            horizon_days=problem.horizon,
            rows=rows,
            feasible=feasible,
            found_by=found_by if plan.runs else "nothing",
            objective=self.file.objective,
            cost_usd=risk.cost(plan.usd),
            finish_days=plan.finish,
            bound_usd=bound,
            gap=None if bound is None else max(plan.usd - bound, 0.0) / plan.usd,
            branches=solved.branches if solved else 0,
            columns=solved.columns if solved else 0,
            stopped=solved is not None and solved.state == "stopped",
            purchases=tuple(self._purchases(plan)),
            bill=tuple(self._bill(plan)),
            prices=tuple(self._prices(plan)),
            together=risk.together,
            within_budget=risk.within(problem.budget, plan.usd),
            spot=risk.spot,
            notes=(SPOT_NOTE,) if spotted else (),
            warnings=tuple(dict.fromkeys(warnings)),
            draws=risk.draws,
            seed=risk.seed,
        )

    def _row(self, name: str, run: PlacedRun | None, pooled: float, risk: FleetRisk) -> FleetRow:
        one = self.jobs[name]
        head = FleetRow(
            name=name,
            model=one.job.model,
            job=str(one.request.layout["job"] or "pretrain"),
            reasons=tuple(one.reasons),
        )
        if run is None:
            return head
        way, sure = run.way, risk.choices.get(name)
        return replace(
            head,
            instance=way.instance,
            nodes=way.nodes,
            region=way.region or None,
            purchase=way.purchase,
            starts_on=self._date(run.start),
            ends_on=self._date(run.start + _last_day(way.days)),
            days=way.days,
            cost_usd=way.usd + pooled,
            mean_cost_usd=risk.mean_usd[name] + pooled,
            on_time_probability=risk.in_time.get(name),
            cheapest_probability=sure and sure.cheapest,
            regret_usd=sure and sure.regret_usd,
            pilots=sure.pilots if sure else (),
            assumed=_assumed(one, way),
            start_day=run.start,
            deadline_day=run.task.deadline,
            reasons=(),
        )

    def _date(self, day: int) -> datetime.date:
        return self.file.starts_on + datetime.timedelta(days=day)

    def _purchases(self, plan: FleetPlan) -> list[FleetPurchase]:
        found = [self._pooled(one, plan) for one in plan.bought]
        for run in plan.runs:
            way = run.way
            if way.pool is None:
                found.append(
                    FleetPurchase(
                        on=self._date(run.start),
                        until=self._date(run.start + _last_day(way.days)),
                        what=f"{way.nodes:,} x {way.instance}"
                        + (f" in {way.region}" if way.region else "")
                        + self._block_words(run),
                        purchase=way.purchase,
                        usd=way.usd,
                        jobs=(run.task.name,),
                    )
                )
        return sorted(found, key=lambda one: (one.on, one.what, one.jobs))

    def _block_words(self, run: PlacedRun) -> str:
        """Return the blocks to buy for a run: their lengths in a row, their sizes side by side."""
        paid = self._paid(run) if run.way.option == "capacity-block" else None
        if paid is None:
            return ""
        return f" for {added(paid.blocks_days)} days, blocks of {added(paid.block_sizes)}"

    def _paid(self, run: PlacedRun) -> Bill | None:
        """Return the bill of a run by itself."""
        way = run.way
        market = self.jobs[run.task.name].choice(way).market
        assert market is not None
        cost = cost_of(market.at(way.nodes))
        bills = [
            cost.bill_under(priced, (0,))
            for priced in cost.priced
            if priced.tariff.option == way.option
        ]
        return next((bill for bill in bills if isinstance(bill, Bill)), None)

    def _prices(self, plan: FleetPlan) -> Iterator[Mapping[str, Cell]]:
        """Yield the rates of runs that are bought by themselves, each once."""
        told: set[tuple[str, str | None, str]] = set()
        for run in plan.runs:
            paid = self._paid(run) if run.way.pool is None else None
            if (
                paid is not None
                and (key := (run.way.instance, paid.tariff.region, paid.tariff.option)) not in told
            ):
                told.add(key)
                cells = bill_cells(paid)
                yield {"instance": run.way.instance} | {name: cells[name] for name in RATE_CELLS}

    def _pooled(self, one: Bought, plan: FleetPlan) -> FleetPurchase:
        blocks = f" in {one.blocks} block{'s' * (one.blocks > 1)}" if one.blocks else ""
        return FleetPurchase(
            on=self._date(one.start),
            until=self._date(one.start + one.days - 1),
            what=f"{one.nodes:,} x {one.pool[0]} in {one.pool[1]}{blocks} for {one.days} days",
            purchase=one.pool[2],
            usd=one.usd,
            jobs=tuple(run.task.name for run in plan.runs if run.way.pool == one.pool),
        )

    def _bill(self, plan: FleetPlan) -> list[MonthBill]:
        """Return each month's cost by purchase option, USD; terms by the day to their ends."""
        found: dict[tuple[str, str], float] = {}

        def spread(start: int, days: int, purchase: str, usd: float) -> None:
            for day in range(start, start + days):
                key = f"{self._date(day):%Y-%m}", purchase
                found[key] = found.get(key, 0.0) + usd / days

        for run in plan.runs:
            way = run.way
            if way.usd:
                spread(run.start, 1 if way.upfront else way.held_days, way.purchase, way.usd)
        for one in plan.bought:
            spread(one.start, 1 if one.blocks else one.days, one.pool[2], one.usd)
        return [
            MonthBill(month=month, purchase=purchase, usd=usd)
            for (month, purchase), usd in sorted(found.items())
        ]


SPOT_NOTE = (
    "spot machines are not promised: they may be interrupted, and there may be none; days and cost "
    "are expectations while there are machines"
)


def _last_day(days: float) -> int:
    """Return the number of days from the first to the end of a run of that many days."""
    whole = int(days)
    return max(whole - (days == whole), 0)


def _pool_shares(plan: FleetPlan) -> dict[str, float]:
    """Return each job's share of the pools' cost, USD, by the node-days that it uses."""
    shares: dict[str, float] = {}
    for pool in {one.pool for one in plan.bought}:
        usd = sum(one.usd for one in plan.bought if one.pool == pool)
        users = [run for run in plan.runs if run.way.pool == pool]
        used = {run.task.name: run.way.nodes * run.way.held_days for run in users}
        for name, amount in used.items():
            shares[name] = shares.get(name, 0.0) + usd * amount / sum(used.values())
    return shares
