"""Certainty of a fleet's plan: every run in the same common draws, spot machines played."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, median
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S, HOUR_S
from trnbench.money.decision import regret_usd
from trnbench.money.draws import (
    DrawnPurchase,
    Purchase,
    cheapest_probabilities,
    outcome,
    rates_usd_per_hour,
)
from trnbench.money.failures import Estimate
from trnbench.money.fleet.problem import FleetPlan, JobWay, PlacedRun
from trnbench.money.goodput import goodput
from trnbench.money.market import Market
from trnbench.money.purchase import Tariff
from trnbench.money.spot_play import SpotOutcome, SpotRun, play
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import TAIL, Range
from trnbench.show.row import Interval
from trnbench.verbs.fleet.answer import SpotRisk
from trnbench.verbs.fleet.jobs import JobWays
from trnbench.verbs.quotes.draws import drawn_work_s
from trnbench.verbs.quotes.lead import RISKED, Pilot
from trnbench.verbs.quotes.markets import Explored
from trnbench.verbs.quotes.pilots import Undecided, worth_measuring
from trnbench.verbs.quotes.rivals import bills


class TypeChoice(Record):
    """How sure a job's instance type is: its chance of being the cheapest, and the mean regret.

    `pilots` would cut the regret by more than they cost, the best one first.
    """

    cheapest: float
    regret_usd: float
    pilots: tuple[Pilot, ...] = ()


class FleetRisk(Record, eq=False):
    """Outcome of the draws of a plan: how often each deadline holds, and the cost."""

    in_time: Mapping[str, float]
    mean_usd: Mapping[str, float]
    """Mean bill of each job; of machines that jobs share, their part of it."""
    together: float | None
    own_usd: FloatArray
    expected_usd: float
    spot: tuple[SpotRisk, ...]
    choices: Mapping[str, TypeChoice]
    draws: int
    seed: int

    def cost(self, usd: float) -> Interval:
        """Return the whole cost with its interval; what pools cost is sure."""
        total = self.own_usd + (usd - self.expected_usd)
        low, high = np.quantile(total, (TAIL, 1 - TAIL)).tolist() if usd else (usd, usd)
        return Interval(value=usd, low=min(low, usd), high=max(high, usd))

    def within(self, budget: float | None, usd: float) -> float | None:
        if budget is None:
            return None
        return float(np.mean(self.own_usd + (usd - self.expected_usd) <= budget))


def risk_of(plan: FleetPlan, jobs: Mapping[str, JobWays]) -> FleetRisk:
    """Return the certainty of a plan; each job is taken to start on its day."""
    draws = CommonDraws()
    own = np.zeros(draws.count)
    held: dict[str, BoolArray] = {}
    mean_usd: dict[str, float] = {}
    choices: dict[str, TypeChoice] = {}
    spot = []
    for run in plan.runs:
        name, way = run.task.name, run.way
        choice = jobs[name].choice(way)
        if way.spot_share:
            drawn, found = on_spot(choice, way.nodes, way.spot_share, name, draws)
            spot.append(found)
        else:
            drawn = _drawn(run, choice, draws)
            if (choice_of := _choice(run, jobs[name], drawn, draws)) is not None:
                choices[name] = choice_of
        ends = run.start + drawn.elapsed_s / DAY_S
        if run.task.deadline is not None:
            held[name] = ends <= run.task.deadline
        paid = np.full(draws.count, way.usd) if way.pool else drawn.cost_usd
        mean_usd[name], own = float(np.mean(paid)), own + paid
    together = np.all([*held.values()], axis=0) if held else None
    return FleetRisk(
        in_time={name: float(np.mean(kept)) for name, kept in held.items()},
        mean_usd=mean_usd,
        together=None if together is None else float(np.mean(together)),
        own_usd=own,
        expected_usd=sum(run.way.usd for run in plan.runs),
        spot=tuple(spot),
        choices=choices,
        draws=draws.count,
        seed=draws.seed,
    )


def _choice(
    run: PlacedRun, job: JobWays, drawn: DrawnPurchase, draws: CommonDraws
) -> TypeChoice | None:
    """The choice of a job's type beside the cheapest way on each other type that is in time.

    None for machines that jobs share, and where no other type would do.
    """
    best: dict[str, JobWay] = {}
    for way in job.ways:
        late = run.task.deadline is not None and run.start + way.sure_days > run.task.deadline
        if late or way.pool or way.spot_share or way.instance == run.way.instance:
            continue
        if way.instance not in best or way.usd < best[way.instance].usd:
            best[way.instance] = way
    if run.way.pool or not best:
        return None
    others = [_drawn(replace(run, way=way), job.choice(way), draws) for way in best.values()]
    costs = np.array([bills(one) for one in (drawn, *others)])
    risked = max(regret_usd(costs, costs[0]), 0.0)
    made: tuple[Pilot, ...] = ()
    if risked >= RISKED * float(np.mean(costs[0])):
        ways = (run.way, *best.values())
        tried = [_undecided(job.choice(way), way.nodes) for way in ways]
        made = worth_measuring([one for one in tried if one is not None], costs, risked, draws)
    return TypeChoice(
        cheapest=cheapest_probabilities([*costs], [True] * len(costs))[0],
        regret_usd=risked,
        pilots=made,
    )


def _undecided(choice: Explored, nodes: int) -> Undecided | None:
    """The cluster of a way with the layout that the job would run."""
    layouts, part = choice.layouts(nodes), choice.main(nodes)
    if layouts is None:
        return None
    return Undecided(explored=choice, nodes=nodes, layout=layouts[part], part=part)


def _tariff(market: Market, option: str) -> Tariff | None:
    return next((one for one in market.offers.tariffs if one.option == option), None)


def _market(choice: Explored) -> Market:
    if choice.market is None:
        raise ValueError(f"no clusters of {choice.name}")
    return choice.market


def _work_s(choice: Explored, nodes: int, draws: CommonDraws) -> FloatArray:
    layouts = choice.layouts(nodes)
    if layouts is None:
        raise ValueError(f"no layout on {nodes} nodes of {choice.name}")
    return drawn_work_s(choice, nodes, layouts, draws)


def _drawn(run: PlacedRun, choice: Explored, draws: CommonDraws) -> DrawnPurchase:
    way = run.way
    purchase = Purchase(
        name=f"{way.nodes} x {way.instance} for {run.task.name}",
        market=_market(choice),
        nodes=way.nodes,
        tariff=None if way.pool else _tariff(_market(choice), way.option),
        work_s=_work_s(choice, way.nodes, draws),
    )
    return outcome(purchase, draws)


def on_spot(
    choice: Explored, nodes: int, share: float, name: str, draws: CommonDraws
) -> tuple[DrawnPurchase, SpotRisk]:
    """Return a run of which a share is spot, played once for each draw, and what came of it."""
    market = _market(choice)
    rules, tariff = market.offers.rules, _tariff(market, "spot")
    if rules is None or tariff is None:
        raise ValueError(f"no spot price of {market.instance.name}")
    known = market.operations(nodes, rules)
    work_s = _work_s(choice, nodes, draws)
    typical = goodput(
        known,
        work_s=median(work_s),
        nodes=nodes,
        checkpoint_bytes=market.checkpoint_bytes,
        interval_s=market.interval_s,
        ranges=False,
    )
    spot = rules.spot
    spot_nodes = round(share * nodes)
    played = play(
        SpotRun(
            nodes=nodes,
            spot_nodes=spot_nodes,
            work_s=work_s,
            failures_per_node_day=_of(draws, "failures_per_node_day", known.failures_per_node_day),
            reclaims_per_node_day=_of(
                draws, "interruptions_per_node_day", known.interruptions_per_node_day
            ),
            zone_losses_per_day=_of(draws, "zone_losses_per_day", known.zone_losses_per_day),
            wait_s=spot.wait_s,
            zone_wait_s=spot.zone_wait_s if spot.zone_wait_s is not None else spot.wait_s,
            notice_s=spot.notice_s,
            recovery_s=known.recovery_s.value,
            launch_s=known.launch_s,
            start_s=known.start_s.value,
            interval_s=float(typical.interval_s),
            dump_s=float(typical.dump_s),
            write_s=float(typical.write_s),
        ),
        name=f"{nodes} x {market.instance.name} for {name}",
        seed=draws.seed,
    )
    base = _tariff(market, "on-demand")
    base_usd = base.usd_per_hour if base is not None else 0.0
    cost = played.spot_s / HOUR_S * spot_nodes * rates_usd_per_hour(tariff, draws)
    cost = cost + played.base_s / HOUR_S * (nodes - spot_nodes) * base_usd
    drawn = DrawnPurchase(elapsed_s=played.elapsed_s, cost_usd=cost)
    return drawn, _spot_risk(name, share, drawn, played)


def _of(draws: CommonDraws, name: str, known: Estimate) -> FloatArray:
    if known.low == known.high:
        return np.full(draws.count, known.value)
    linear = known.low <= 0
    return draws.of(name, Range(value=known.value, low=known.low, high=known.high, linear=linear))


def _spot_risk(name: str, share: float, drawn: DrawnPurchase, played: SpotOutcome) -> SpotRisk:
    return SpotRisk(
        name=name,
        spot_share=share,
        days=_interval(drawn.elapsed_s / DAY_S),
        cost_usd=_interval(drawn.cost_usd),
        reclaims=float(np.mean(played.reclaims)),
        zones=float(np.mean(played.zones)),
    )


def _interval(values: FloatArray) -> Interval:
    low, high = np.quantile(values, (TAIL, 1 - TAIL)).tolist()
    return Interval(value=float(np.mean(values)), low=low, high=high)
