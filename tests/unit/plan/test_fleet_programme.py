"""A fleet's programme: against every plan there is, by hand, and at its size."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from trnbench.facts.records import replace
from trnbench.money.fleet.greedy import greedy, moved_earlier
from trnbench.money.fleet.problem import (
    BlockOffer,
    Fleet,
    FleetPlan,
    FleetTask,
    HeldNodes,
    JobWay,
    NodeLimit,
    TermOffer,
)
from trnbench.money.fleet.programme import Effort, solve
from trnbench.money.fleet.relax import binding, limit_costs

EXACT = Effort(gap=1e-9)
TRN1, TRN2 = "trn1", "trn2"


def way(instance=TRN1, nodes=1, days=1.0, usd=1.0, option="on-demand", **more):
    pool = (instance, "r", option) if option in ("reserved", "capacity-block") else None
    known = {"pool": pool, "purchase": option, "sure_days": days, "region": "r"} | more
    return JobWay(instance=instance, nodes=nodes, option=option, days=days, usd=usd, **known)


def task(name, *ways, **more):
    return FleetTask(name=name, ways=ways, **more)


def fleet(*tasks, horizon=10, **more):
    months = tuple("ab"[day >= horizon // 2] for day in range(horizon))
    return Fleet(tasks=tasks, horizon=horizon, months=months, **more)


def cost(one, **more):
    solved = solve(one, effort=EXACT, **more)
    return None if solved.schedule is None else solved.schedule.usd


# --- every plan there is ---------------------------------------------------------------------


def everything(one: Fleet) -> float | None:
    """Return the least cost by trying every way of every job on every day, and every purchase."""
    places = [
        [(w, s) for w in t.ways for s in range(t.earliest, one.horizon) if in_days(one, t, w, s)]
        for t in one.tasks
    ]
    pieces = [(block, day) for block in one.blocks for day in block.starts]
    least = math.inf
    for counts in itertools.product(*(range(block.count + 1) for block, _ in pieces)):
        for chosen in itertools.product(*places):
            least = min(least, usd_of(one, chosen, list(zip(pieces, counts, strict=True))))
    return None if math.isinf(least) else least


def in_days(one, t, w, start):
    held = max(math.ceil(w.days), 1)
    ends = start + w.sure_days
    return start + held <= one.horizon and (t.deadline is None or ends <= t.deadline + 1e-9)


def usd_of(one, chosen, bought) -> float:
    """Return what a plan costs, infinite where it breaks something."""
    days = range(one.horizon)

    def running(keeps, day):
        return sum(w.nodes for w, s in chosen if keeps(w) and s <= day < s + math.ceil(w.days))

    for limit in one.limits:
        if any(running(limit.counts, day) > limit.nodes for day in days):
            return math.inf
    total = sum(w.usd for w, _ in chosen)
    spent = dict.fromkeys(one.budgets, 0.0)

    def spend(start, length, usd):
        for day in range(start, min(start + length, one.horizon)):
            if one.months[day] in spent:
                spent[one.months[day]] += usd / length

    for w, s in chosen:
        spend(s, 1 if w.upfront else math.ceil(w.days), w.usd)
    for (block, day), count in bought:
        total += count * block.usd
        spend(day, 1, count * block.usd)
    for pool in {w.pool for w, _ in chosen if w.pool}:
        there = [
            sum(h.nodes for h in one.held if h.pool == pool and h.first <= day < h.end)
            + sum(
                count * b.size
                for (b, start), count in bought
                if b.pool == pool and start <= day < start + b.days
            )
            for day in days
        ]
        lacks = [max(running(lambda w, p=pool: w.pool == p, d) - there[d], 0) for d in days]
        term = next((t for t in one.terms if t.pool == pool), None)
        if max(lacks):
            if term is None:
                return math.inf
            total += max(lacks) * term.usd  # a term here outlasts the days
            spend(0, term.days, max(lacks) * term.usd)
    over = any(usd > one.budgets[month] * (1 + 1e-9) for month, usd in spent.items())
    over = over or (one.budget is not None and total > one.budget)
    return math.inf if over else float(total)


def at_random(seed):
    """Return a small fleet of every kind of limit."""
    draw = random.Random(seed)
    options = ["on-demand", "reserved", "capacity-block"][: draw.choice([1, 2, 3])]
    horizon = draw.randint(4, 6)

    def some_way():
        option = draw.choice(options)
        free = option == "on-demand"
        days = draw.choice([1.0, 1.5, 2.0, 2.7, 4.0])
        instance, nodes = draw.choice([TRN1, TRN2]), draw.randint(1, 4)
        usd = float(draw.randint(1, 40)) if free else 0.0
        return way(instance, nodes, days, usd, option, upfront=free and draw.random() < 0.3)

    tasks = [
        task(
            f"job{number}",
            *(some_way() for _ in range(draw.randint(1, 3))),
            earliest=draw.choice([0, 0, 1]),
            deadline=draw.choice([None, 3.0, 4.5, 6.0]),
        )
        for number in range(draw.randint(1, 3))
    ]
    pools = [(instance, "r", "reserved") for instance in (TRN1, TRN2)]
    return fleet(
        *tasks,
        horizon=horizon,
        limits=tuple(
            NodeLimit(instance=instance, region="r", nodes=draw.randint(1, 6))
            for instance in (TRN1, TRN2)
            if draw.random() < 0.5
        ),
        terms=tuple(
            TermOffer(pool=pool, days=365, usd=float(draw.randint(2, 20)))
            for pool in pools
            if draw.random() < 0.6
        ),
        held=tuple(
            HeldNodes(pool=pool, nodes=draw.randint(1, 3), first=draw.randint(-1, 1), end=4)
            for pool in pools
            if draw.random() < 0.4
        ),
        blocks=tuple(
            BlockOffer(
                pool=(TRN1, "r", "capacity-block"),
                size=draw.choice([1, 2, 4]),
                days=draw.randint(1, 4),
                usd=float(draw.randint(2, 20)),
                starts=(draw.randint(0, 1),),
                count=draw.choice([1, 2]),
            )
            for _ in range(draw.randint(0, 2))
        ),
        budgets={"a": float(draw.randint(5, 60))} if draw.random() < 0.3 else {},
        budget=float(draw.randint(10, 90)) if draw.random() < 0.3 else None,
    )


@pytest.mark.slow
def test_the_programme_finds_what_trying_everything_finds():
    found = [(everything(at_random(seed)), cost(at_random(seed))) for seed in range(80)]
    assert sum(least is not None for least, _ in found) >= 50
    assert sum(least is None for least, _ in found) >= 5
    for seed, (least, solved) in enumerate(found):
        assert solved == (None if least is None else pytest.approx(least, rel=1e-6)), seed


@pytest.mark.slow
def test_a_greedy_plan_keeps_every_limit_and_is_never_cheaper_than_the_least():
    made = 0
    for seed in range(80):
        one = at_random(seed)
        plan = greedy(one)
        if plan is not None:
            made += 1
            least = everything(one)
            assert least is not None
            assert plan.usd >= least - 1e-9
            assert usd_with(one, plan) <= plan.usd * (1 + 1e-9)
    assert made >= 30


def usd_with(one: Fleet, plan: FleetPlan) -> float:
    """Return what the runs of a plan cost at least: infinite where they break a limit."""
    return usd_of(one, [(run.way, run.start) for run in plan.runs], [])


def test_moving_runs_earlier_keeps_every_limit_and_the_cost():
    for seed in range(40):
        one = at_random(seed)
        solved = solve(one, effort=EXACT)
        if solved.schedule is None:
            continue
        moved = moved_earlier(one, solved.schedule)
        assert moved.usd == solved.schedule.usd
        starts = zip(moved.runs, solved.schedule.runs, strict=True)
        assert all(new.start <= old.start for new, old in starts)
        chosen = [(run.way, run.start) for run in moved.runs]
        fixed = replace(
            one,
            tasks=tuple(
                replace(t, ways=(w,), earliest=s)
                for t, (w, s) in zip(one.tasks, chosen, strict=True)
            ),
        )
        assert cost(fixed) == pytest.approx(moved.usd)


# --- worked by hand ----------------------------------------------------------------------------


def test_a_commitment_pays_only_when_it_is_shared():
    # Alone a job costs 60 on demand; a node for a year costs 100 and could do both, in turn.
    pool = (TRN1, "r", "reserved")
    term = TermOffer(pool=pool, days=365, usd=100.0)

    def job(name):
        return task(name, way(usd=60.0, days=4.0), way(option="reserved", usd=0.0, days=4.0))

    assert cost(fleet(job("a"), terms=(term,))) == pytest.approx(60)
    both = solve(fleet(job("a"), job("b"), terms=(term,)), effort=EXACT)
    assert both.schedule is not None
    assert both.schedule.usd == pytest.approx(100)
    assert [bought.nodes for bought in both.schedule.bought] == [1]
    starts = sorted(run.start for run in both.schedule.runs)
    assert starts[1] - starts[0] >= 4


def test_a_block_that_must_be_split():
    # 10 days are sold only as 6 and as 4, two nodes each: one of either, in a row.
    pool = (TRN1, "r", "capacity-block")
    job = task("a", way(nodes=2, days=9.5, usd=0.0, option="capacity-block"))
    six = BlockOffer(pool=pool, size=2, days=6, usd=6.0, starts=(0, 4))
    four = BlockOffer(pool=pool, size=2, days=4, usd=5.0, starts=(0, 6))
    solved = solve(fleet(job, blocks=(six, four)), effort=EXACT)
    assert solved.schedule is not None
    assert solved.schedule.usd == pytest.approx(11)
    bought = {(one.start, one.days) for one in solved.schedule.bought}
    assert bought in ({(0, 6), (6, 4)}, {(0, 4), (4, 6)})
    assert cost(fleet(job, blocks=(replace(six, starts=(0,)),))) is None


def test_a_quota_that_forces_the_other_machine():
    def job(name):
        return task(name, way(TRN2, 4, 5.0, 10.0), way(TRN1, 8, 6.0, 15.0), deadline=6.0)

    quota = NodeLimit(instance=TRN2, region="r", nodes=4)
    assert cost(fleet(job("a"), job("b"))) == pytest.approx(20)
    one = fleet(job("a"), job("b"), limits=(quota,))
    assert cost(one) == pytest.approx(25)
    # With time for both in turn the quota costs nothing.
    later = fleet(*(replace(t, deadline=None) for t in one.tasks), limits=(quota,))
    assert cost(later) == pytest.approx(20)


def test_a_months_budget_moves_a_job_into_the_next():
    def job(name):
        return task(name, way(days=2.0, usd=10.0))

    one = fleet(job("a"), job("b"), budgets={"a": 10.0})
    solved = solve(one, effort=EXACT)
    assert solved.schedule is not None
    assert sorted(run.start for run in moved_earlier(one, solved.schedule).runs) == [0, 5]
    assert cost(replace(one, budgets={"a": 10.0, "b": 9.0})) is None


def test_held_machines_are_used_before_others_are_bought():
    held = HeldNodes(pool=(TRN1, "r", "reserved"), nodes=2, first=0, end=5)
    ways = (way(nodes=2, days=4.0, usd=20.0), way(nodes=2, days=4.0, usd=0.0, option="reserved"))
    one = fleet(task("a", *ways), task("b", *ways), held=(held,))
    solved = solve(one, effort=EXACT)
    assert solved.schedule is not None
    assert solved.schedule.usd == pytest.approx(20)  # held for one of the two only: 5 days


def test_the_earliest_end_then_the_least_cost_for_it():
    fast, slow = way(days=2.0, usd=30.0), way(days=5.0, usd=10.0)
    one = fleet(task("a", fast, slow), task("b", way(days=4.0, usd=5.0), way(days=3.9, usd=50.0)))
    assert solve(one, aim="finish", effort=EXACT).bound == pytest.approx(3.9)
    bounded = replace(one, budget=40.0)
    assert solve(bounded, aim="finish", effort=EXACT).bound == pytest.approx(4.0)


# --- what stands in the way --------------------------------------------------------------------


def test_limits_that_make_a_fleet_impossible_are_named():
    one = fleet(
        task("a", way(nodes=4, days=4.0), deadline=5.0),
        task("b", way(nodes=4, days=4.0), deadline=5.0),
        limits=(NodeLimit(instance=TRN1, region="r", nodes=4),),
    )
    assert solve(one).state == "impossible"
    assert binding(one, EXACT) == (
        "deadline of a",
        "deadline of b",
        "quota of 4 x trn1 in r",
    )


def test_limits_that_only_together_make_a_fleet_impossible():
    quota = NodeLimit(instance=TRN1, region="r", nodes=2)
    one = fleet(task("a", way(nodes=4, days=4.0, usd=5.0), deadline=3.0), limits=(quota,))
    assert binding(one, EXACT) == ("deadline of a and quota of 2 x trn1 in r",)


def test_what_limits_cost_is_found_without_them():
    ways = (way(TRN2, 4, 5.0, 10.0), way(TRN1, 8, 4.0, 15.0))
    quota = NodeLimit(instance=TRN2, region="r", nodes=4)
    one = fleet(task("a", *ways, deadline=5.0), task("b", *ways, deadline=5.0), limits=(quota,))
    plan = solve(one, effort=EXACT).schedule
    assert plan is not None
    costs = {found.what: found.usd for found in limit_costs(one, plan, EXACT)}
    assert costs["quota of 4 x trn2 in r"] == pytest.approx(5)
    assert max(usd for what, usd in costs.items() if "deadline" in what) == pytest.approx(5)


def test_the_important_jobs_are_kept_where_not_all_can_be():
    quota = NodeLimit(instance=TRN1, region="r", nodes=4)
    one = fleet(
        task("a", way(nodes=4, days=8.0), priority=1.0),
        task("b", way(nodes=4, days=8.0), priority=5.0),
        limits=(quota,),
    )
    assert solve(one, aim="most", effort=EXACT).missing == ("a",)


def test_nothing_to_do_costs_nothing():
    assert cost(fleet()) == 0
    assert solve(fleet(task("a"))).state == "impossible"
    assert greedy(fleet(task("a"))) is None
    none = fleet(task("a", way(nodes=1)), limits=(NodeLimit(instance=TRN1, region="", nodes=0),))
    assert solve(none).state == "impossible"


# --- at its size -------------------------------------------------------------------------------


def large(seed=0, jobs=20, types=6, days=90):
    """Return jobs on machine types under quotas that not all of them fit into at once."""
    random_ = np.random.default_rng(seed)
    names = [f"type{number}" for number in range(types)]
    tasks = []
    for number in range(jobs):
        work = random_.uniform(20, 200)
        ways = []
        for place, name in enumerate(names):
            for nodes in (1, 2, 4, 8, 16):
                length = work / nodes**0.9 / (1 + 0.3 * place)
                if length < days:
                    usd = length * nodes * (1 + 0.25 * place) * random_.uniform(0.9, 1.1) * 500
                    ways.append(way(name, nodes, length, usd))
        deadline = float(random_.integers(30, days))
        tasks.append(task(f"job{number}", *ways, deadline=deadline))
    limits = tuple(NodeLimit(instance=name, region="r", nodes=8) for name in names)
    return fleet(*tasks, horizon=days, limits=limits)


@pytest.mark.slow
def test_twenty_jobs_on_six_types_over_ninety_days_come_within_the_gap():
    one = large()
    start = greedy(one)
    solved = solve(one, effort=Effort(gap=0.02), below=start.usd if start else None)
    assert solved.state == "optimal"
    assert solved.schedule is not None
    assert solved.gap <= 0.02
    assert solved.schedule.usd >= solved.bound * (1 - 1e-6)
