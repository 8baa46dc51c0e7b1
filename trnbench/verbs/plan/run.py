"""The planning use case: which machines, how many, bought how, in which layout.

Every legal layout on every cluster of every instance type goes through the search; every purchase
option of every cluster is billed; what keeps the limits is ranked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, counted, show, significant
from trnbench.money.draws import DrawnPurchase
from trnbench.money.failures import Estimate
from trnbench.money.market import Market, QuotaRequest, candidates, quota_request
from trnbench.money.objective import (
    Candidate,
    Limits,
    Order,
    fastest_first,
    nearest,
    pareto,
    ranked,
)
from trnbench.money.purchase import load_offers
from trnbench.money.sensitivity import Change, sensitivity
from trnbench.predict.assumption import Assumption
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.settled import UNSAID
from trnbench.verbs.asking.command_lines import command_question, with_folders
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.plan.answer import PlanAnswer, Ways
from trnbench.verbs.plan.checks import break_even, confirmed
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.quotes.answer import Quote, quotes_assumed
from trnbench.verbs.quotes.capacity import capacity_checks
from trnbench.verbs.quotes.draws import outcomes, with_confidence
from trnbench.verbs.quotes.markets import Explored, explore_all, looked
from trnbench.verbs.quotes.pilots import with_pilots
from trnbench.verbs.quotes.question import price_terms
from trnbench.verbs.quotes.rivals import Rival, judged, rivals_of
from trnbench.verbs.quotes.run import explained, quote, quote_of_none
from trnbench.verbs.quotes.text import time_text
from trnbench.verbs.quotes.tipping import Tipping, TippingWorld, tippings

if TYPE_CHECKING:
    from trnbench.verbs.fleet.answer import SpotRisk

WORTH_A_THOUGHT = 0.5
"""Plans that train for less than this part of their time are not shown beside the chosen one."""


def plan_run(catalog: Catalog, question: PlanQuestion, *, watch: Watch | None = None) -> PlanAnswer:
    """Return the best way to run a training: machines, how many, in which layout, bought how.

    Limits are a `deadline` and a `budget` in USD; `objective` is cost, time or pareto. The model
    may be FLEET:JOB, a job of a fleet. Once `cancel` is true, what was found is answered; `workers`
    is how many processes may search at once.

    >>> from trnbench import plan
    >>> answer = plan("llama2-7b", tokens="10B", on="trn1.32xlarge", max_nodes=2, tp=8, pp=1)
    >>> answer.best.instance, answer.best.nodes
    ('trn1.32xlarge', 1)
    """
    watch = watch or Watch()
    names = [catalog.find("instances", name).name for name in question.run.instances]
    baseline = question.baseline and catalog.find("instances", question.baseline).name
    if baseline and baseline not in names:
        raise InputError(f"the baseline {baseline} is not among the instances planned with")
    explored = explore_all(catalog, question.run, top=max(question.confirm, 1), watch=watch)
    return _Planning(
        catalog=catalog, question=question, explored=explored, names=names, baseline=baseline
    ).answer(watch)


plan = verb_of("plan", PlanQuestion, plan_run)


class _Planning(Record, eq=False):
    """A plan in the making: what was asked, and what is on the market."""

    catalog: Catalog
    question: PlanQuestion
    explored: tuple[Explored, ...]
    names: Sequence[str]
    baseline: str | None

    @property
    def markets(self) -> list[Market]:
        return [one.market for one in self.explored if one.market is not None]

    @property
    def limits(self) -> Limits:
        return self.question.limits

    def answer(self, watch: Watch) -> PlanAnswer:
        """Return the plan."""
        ways = self._ways()
        asked, limits = self.question.goal, self.limits
        objective: Order = asked.objective
        best = ranked(ways, limits, objective)
        passed: tuple[Assumption, ...] = ()
        if not best and asked.assumed_deadline:
            # Nobody asked for the deadline: what comes nearest to it is a plan all the same.
            limits, objective = replace(limits, deadline_s=None), "soonest"
            best = ranked(ways, limits, objective)[:1]
            if best:
                why = "nothing ends within the usual one; this is the fastest"
                passed = (Assumption(name="deadline", value="none", why=why),)
        draws = CommonDraws()
        rivals = self._rivals(best, limits, draws)
        chosen = best[0] if best else None
        if objective in ("cost", "pareto"):
            leaders = [plans[0] for plans in rivals.values() if plans]
            least = min(leaders, key=lambda one: one.mean_usd, default=None)
            chosen = chosen if least is None else least.way
        near, binding = (None, ()) if chosen else self._nearest(ways)
        quoted = self._quote(chosen) if chosen else None
        if chosen is not None and quoted is not None:
            quoted = explained(self._explored(chosen.instance), quoted)
        front = self._front(best, quoted, [plans[0].way for plans in rivals.values() if plans])
        rows = front or tuple(one for one in (near,) if one is not None)
        by_name = {one.name: one for one in self.explored}
        known = [one for plans in rivals.values() for one in plans]
        drawn = [_drawn(one, known) or outcomes(by_name, [one], draws)[0] for one in rows]
        chosen_row = next((n for n, one in enumerate(rows) if one is quoted), None)
        by_time = objective == "time"
        found = judged(rows, drawn, rivals, limits, chosen=chosen_row, by_time=by_time)
        likely = found.quotes
        return PlanAnswer(
            model=self.question.run.model,
            asked=asked,
            best=quoted if chosen_row is None else likely[chosen_row],
            nearest=likely[0] if near is not None else None,
            binding=binding,
            front=likely if front else (),
            verdict=with_pilots(found, by_name, draws),
            sensitivity=self._tippings(limits) if self.question.sensitivity else None,
            spot=self._on_spot(chosen, draws),
            capacity=capacity_checks(self.catalog, [quoted])
            if quoted is not None and self.question.run.check_capacity
            else (),
            draws=draws.count,
            seed=draws.seed,
            left_out=self._left_out(),
            changes=self._changes(
                chosen if chosen in best[:1] else None, quoted, limits, objective
            ),
            break_even=break_even(self.explored, chosen, limits, objective, self.baseline),
            quotas=self._quotas(chosen),
            confirmed=confirmed(
                self.question.confirm, self.explored, best, limits, objective, watch=watch
            ),
            looked={one.name: looked(one) for one in self.explored},
            ways=_ways(ways, limits),
            assumed=(*passed, *self._assumed(quoted or near)),
            command=with_folders(command_question("plan", self.question).line, self.catalog),
            unseen=tuple(
                name for name in self.names if name not in {one.name for one in self.explored}
            ),
        )

    def _ways(self) -> list[Candidate]:
        """Return every way to buy, with what it does not exceed with the confidence asked for."""
        return [
            way
            for one in self.explored
            if one.market is not None
            for way in with_confidence(one, candidates(one.market), self.question.run.confidence)
        ]

    def _explored(self, name: str) -> Explored:
        return next(one for one in self.explored if one.name == name)

    def _market(self, name: str) -> Market:
        return next(one for one in self.markets if one.instance.name == name)

    def _quote(self, candidate: Candidate) -> Quote:
        explored = self._explored(candidate.instance)
        return quote(explored, candidate)

    def _on_spot(self, chosen: Candidate | None, draws: CommonDraws) -> SpotRisk | None:
        """Return a plan on spot machines as it was played; None of any other."""
        if chosen is None or chosen.option != "spot":
            return None
        market = self._market(chosen.instance)
        if market.offers.rules is None:
            return None
        from trnbench.verbs.fleet.risk import on_spot  # few plans are on spot machines

        return on_spot(
            self._explored(chosen.instance), chosen.nodes, 1.0, self.question.run.model, draws
        )[1]

    def _rivals(
        self, kept: Sequence[Candidate], limits: Limits, draws: CommonDraws
    ) -> dict[str, tuple[Rival, ...]]:
        """Plans of each instance type that keep the limits and may be its best."""
        cheapest = ranked(kept, limits, "cost")
        return {
            one.name: rivals_of(one, [way for way in cheapest if way.instance == one.name], draws)
            for one in self.explored
        }

    def _front(
        self, kept: Sequence[Candidate], chosen: Quote | None, best: Sequence[Candidate]
    ) -> tuple[Quote, ...]:
        """Plans that no other beats in both, and the best of each instance type."""
        front = pareto(kept)
        shown = fastest_first([*front, *(one for one in best if one not in front)])
        quotes = [
            (one, chosen if chosen is not None and chosen.is_of(one) else self._quote(one))
            for one in shown
        ]
        return tuple(
            made
            for one, made in quotes
            if made is chosen
            or one in best
            or (made.wall is not None and made.wall.goodput >= WORTH_A_THOUGHT)
        )

    def _nearest(self, ways: Sequence[Candidate]) -> tuple[Quote | None, tuple[str, ...]]:
        """Return the candidate nearest to a plan, and the limits that it breaks."""
        if not ways:
            return self._nothing_runs()
        on_sale = any(way.cost_usd is not None for way in ways)
        if on_sale or not (self.question.run.bought.purchase or self.question.run.bought.region):
            near = nearest(ways, self.limits)
            found = self._quote(near) if near else None
        else:
            near, found = self._bought_anyhow()
        if near is None or found is None:
            return None, ()
        reasons = () if on_sale else self._prices_wanting()
        binding = (*reasons, *self._broken(near))
        return found.refused(binding), binding

    def _nothing_runs(self) -> tuple[Quote | None, tuple[str, ...]]:
        """Return the layout that comes nearest to fitting, on whichever instance type."""
        quotes = [
            quote_of_none(one, one.nearest_nodes, headroom=self.question.run.headroom)
            for one in self.explored
        ]
        if not quotes:
            return None, ()

        def excess(found: Quote) -> float:
            memory = found.step.memory
            return memory.total_bytes / memory.available_bytes if memory else np.inf

        near = min(quotes, key=excess)
        return near, tuple(f"{near.instance}: {reason}" for reason in near.reasons)

    def _bought_anyhow(self) -> tuple[Candidate | None, Quote | None]:
        """Return the plan that another purchase option or region would allow."""
        run = self.question.run
        anyhow = run.but(bought=run.bought.but(purchase=(), region=None))
        terms = price_terms(self.catalog, anyhow)
        explored = tuple(
            replace(
                one,
                market=replace(
                    one.market, offers=load_offers(self.catalog, one.market.instance, terms)
                ),
            )
            for one in self.explored
            if one.market is not None
        )
        relaxed = replace(self, explored=explored)
        ways = relaxed._ways()
        kept = ranked(ways, self.limits, self.question.goal.objective)
        near = kept[0] if kept else nearest(ways, self.limits)
        return near, relaxed._quote(near) if near else None

    def _prices_wanting(self) -> tuple[str, ...]:
        return tuple(reason for market in self.markets for reason in market.offers.reasons)

    def _broken(self, near: Candidate) -> tuple[str, ...]:
        """Return in words the limits that a candidate breaks."""
        excess = self.limits.excess(near)
        asked, words = self.question.goal, []
        largest = near.nodes == max(self.question.run.counts_of(near.instance))
        sure = "" if asked.confidence is None else f" in {100 * asked.confidence:g}% of draws"
        end_s = near.elapsed_s if near.sure_elapsed_s is None else near.sure_elapsed_s
        cost_usd = near.cost_usd if near.sure_cost_usd is None else near.sure_cost_usd
        if not np.isfinite(near.elapsed_s):
            words.append(f"the run never ends on {near.nodes:,} x {near.instance}")
        elif "deadline" in excess and asked.deadline_s is not None:
            words.append(
                f"deadline of {time_text(asked.deadline_s)}: {time_text(end_s)}{sure} "
                f"on {near.nodes:,} x {near.instance}, {excess['deadline']:.3g}x"
            )
            if largest:
                words.append(f"no more than {counted(near.nodes, 'node')} were looked at")
        if "budget" in excess and asked.budget_usd is not None and cost_usd is not None:
            words.append(
                f"budget of {significant(asked.budget_usd)} USD: {significant(cost_usd)} USD{sure} "
                f"on {near.nodes:,} x {near.instance}, {excess['budget']:.3g}x"
            )
        return tuple(words)

    def _left_out(self) -> Mapping[str, str]:
        """Return the reasons that leave instance types out of the choice, by name."""
        reasons = {}
        for one in self.explored:
            market = one.market
            if market is None:
                empty = quote_of_none(one, one.nearest_nodes, headroom=self.question.run.headroom)
                reasons[one.name] = "; ".join(empty.reasons)
            elif not market.offers.tariffs:
                reasons[one.name] = "; ".join(market.offers.reasons)
        return reasons

    def _tippings(self, limits: Limits) -> tuple[Tipping, ...]:
        """Moves that change the type; none where limits were dropped as nothing keeps them."""
        if limits != self.limits:
            return ()
        run = self.question.run
        return tippings(TippingWorld(run=run, limits=limits, explored=tuple(self.explored)))

    def _changes(
        self, chosen: Candidate | None, quoted: Quote | None, limits: Limits, objective: Order
    ) -> tuple[Change, ...]:
        step = quoted.step.step if quoted else None
        if chosen is None or step is None:
            return ()
        ends = (step.step_time_s / step.high_step_time_s, step.step_time_s / step.low_step_time_s)
        return sensitivity(self.markets, chosen, limits, objective, speeds=ends)

    def _quotas(self, chosen: Candidate | None) -> Mapping[str, QuotaRequest | None]:
        """Return the quota that the option needs; for a block, that of the same on demand too."""
        if chosen is None or chosen.option is None:
            return {}
        market = self._market(chosen.instance)

        def of(option: PurchaseOption) -> QuotaRequest | None:
            return quota_request(market.instance, chosen.nodes, option, market.offers.rules)

        found: dict[str, QuotaRequest | None] = {chosen.option: of(chosen.option)}
        if found[chosen.option] is None:
            found["on-demand"] = of("on-demand")
        return found

    def _assumed(self, quoted: Quote | None) -> tuple[Assumption, ...]:
        """Assumptions beside what was asked."""
        asked, run = self.question.goal, self.question.run
        found = [Assumption(name=n, value=v, why=UNSAID) for n, v in self.question.assumed]
        if asked.assumed_deadline and asked.deadline_s is not None:
            usual = time_text(asked.deadline_s)
            found.append(Assumption(name="deadline", value=usual, why=UNSAID))
        if not run.nodes and not run.all_sized:
            powers = f"powers of two up to {run.max_nodes:,}"
            found.append(Assumption(name="nodes", value=powers, why=UNSAID))
        found += run.what_if.assumed
        if quoted is not None:
            found += quotes_assumed((quoted,))
            market = self._explored(quoted.instance).market
            if market is not None:
                found += _of_failures(market, quoted.nodes)
        return tuple(found)


def _drawn(quote: Quote, known: Sequence[Rival]) -> DrawnPurchase | None:
    return next((one.drawn for one in known if quote.is_of(one.way)), None)


def _of_failures(market: Market, nodes: int) -> tuple[Assumption, ...]:
    """Return the rates of failures, recovery and writing that nobody stated."""
    known, stated = market.operations(nodes), market.stated

    def told(estimate: Estimate, scale: Dimension | None = None) -> str:
        shown = [
            f"{number:.3g}" if scale is None else show(number, scale, digits=3)
            for number in (estimate.value, estimate.low, estimate.high)
        ]
        ends = f" ({shown[1]} to {shown[2]})" if estimate.low != estimate.high else ""
        return f"{shown[0]}{ends}"

    rate, recovery = known.failures_per_node_day, known.recovery_s
    write = known.write_per_node_bytes_per_s
    texts = {
        "failures per node per day": (told(rate), f"{rate.kind.word}; {market.reliability.title}"),
        "recovery": (told(recovery, Dimension.SECONDS), recovery.kind.word),
        "checkpoint writes per node": (told(write, Dimension.BYTES_PER_S), write.kind.word),
    }
    if stated.failures_per_node_day is not None:
        del texts["failures per node per day"]
    return tuple(
        Assumption(name=name, value=value, why=why) for name, (value, why) in texts.items()
    )


def _ways(ways: Sequence[Candidate], limits: Limits) -> Ways:
    rejected: dict[str, int] = {}
    for way in ways:
        for limit in limits.excess(way):
            rejected[limit] = rejected.get(limit, 0) + 1
    return Ways(looked=len(ways), kept=sum(limits.kept_by(way) for way in ways), rejected=rejected)
