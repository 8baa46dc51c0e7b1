"""Claims on speed, and on cost at the prices of every day with a price change."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TypeAlias

from trnbench.errors import unhandled
from trnbench.evidence.claims.claim import (
    Case,
    ClaimedRun,
    ClaimVerdict,
    CostCheck,
    Finding,
    Gain,
    Move,
    PriceCheck,
    SpeedCheck,
    listed,
    of_interval,
    threshold,
    together,
)
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform, PurchaseOption
from trnbench.facts.hardware.library import load_platform, load_reliability
from trnbench.facts.prices.price import find_prices
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import significant
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.checkpoint import checkpoint_bytes
from trnbench.money.cost import RunPhase, TrainingJob, training_cost
from trnbench.money.price_terms import PriceTerms
from trnbench.money.purchase import Offers, load_offers
from trnbench.predict.ranges import Range

Costs = tuple[float, float, float]
Rates = tuple[float | None, ...]


class Pace(Record):
    """Speed of a run in its fastest layout, with an interval; or reasons against one."""

    tokens_per_s: float
    low_tokens_per_s: float
    high_tokens_per_s: float
    reasons: tuple[str, ...] = ()


PaceOf: TypeAlias = Callable[[ClaimedRun, str, str], Pace]
"""Speed of a run on an instance in a precision."""


class Machines(Record, eq=False):
    """Instances by name, and the speeds of runs on them, each run timed once by `timed`."""

    catalog: Catalog
    timed: PaceOf
    paces: dict[tuple[ClaimedRun, str, str], Pace] = field(default_factory=dict)
    checkpoints: dict[ClaimedRun, float] = field(default_factory=dict)

    def platform(self, instance: str) -> Platform:
        return load_platform(self.catalog, instance)

    def pace(self, run: ClaimedRun, instance: str, precision: str | None = None) -> Pace:
        """Tokens/s of a run on its number of nodes, in its own precision unless given."""
        key = (run, instance, precision or run.precision)
        if key not in self.paces:
            self.paces[key] = self.timed(*key)
        return self.paces[key]

    def checkpoint_bytes(self, run: ClaimedRun) -> float:
        """Size of the run's checkpoint, bytes."""
        if run not in self.checkpoints:
            self.checkpoints[run] = checkpoint_bytes(
                load_model(self.catalog, run.model),
                PartialLayout(precision=run.precision, sequence=run.sequence),
            )
        return self.checkpoints[run]


def advantage(ours: Sequence[float], theirs: Sequence[float], *, same: bool = False) -> Range:
    """Ours over theirs, each (low, expected, high); log errors add in squares.

    On the `same` machine the common error cancels.
    """
    value = ours[1] / theirs[1]
    if same:
        return Range(value=value, low=value, high=value)
    down = math.hypot(math.log(ours[1] / ours[0]), math.log(theirs[2] / theirs[1]))
    up = math.hypot(math.log(ours[2] / ours[1]), math.log(theirs[1] / theirs[0]))
    return Range(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def gain_of(gain: Gain, times: float) -> float:
    """An advantage in a claim's own terms: a share saved or gained, or a multiple."""
    match gain:
        case "saving":
            return 1 - 1 / times if times else -math.inf
        case "better":
            return times - 1
        case "times":
            return times
        case _:
            unhandled(gain, "terms")


def gain_text(gain: Gain, found: Range) -> str:
    """An advantage and its interval as text."""
    ends = [gain_of(gain, times) for times in (found.value, found.low, found.high)]
    shown = [significant(end, 3) if gain == "times" else f"{100 * end:.0f}" for end in ends]
    unit = "x" if gain == "times" else " %"
    if found.low == found.high:
        return f"{shown[0]}{unit}"
    return f"{shown[0]}{unit} ({shown[1]} to {shown[2]})"


def gain_case(gain: Gain, claimed: str, what: str, found: Range) -> Case:
    """Verdict of a case by its advantage."""
    return Case(
        what=what,
        verdict=of_interval(found.low, found.high, threshold(gain, claimed)),
        says=gain_text(gain, found),
        value=gain_of(gain, found.value),
        low=gain_of(gain, found.low),
        high=gain_of(gain, found.high),
    )


def unknown(what: str, reasons: Sequence[str]) -> Case:
    return Case(what=what, verdict="undecided", says="; ".join(reasons))


def known(cases: Sequence[Case]) -> tuple[Case, ...]:
    return tuple(case for case in cases if case.value is not None)


def best(cases: Sequence[Case]) -> Case:
    """The case most in favour of a claim."""
    return max(cases, key=lambda case: (case.verdict == "holds", case.value or 0.0))


def speed_finding(check: SpeedCheck, runs: Sequence[ClaimedRun], machines: Machines) -> Finding:
    """Finding on a speed check."""
    cases = tuple(
        _speed_case(check, *which, machines) for which in product(runs, check.of, check.to)
    )
    told = known(cases)
    verdict = together(case.verdict for case in told)
    if not told:
        return Finding(verdict=verdict, says="", reason=listed([c.says for c in cases], 1))
    top, least = best(told), min(told, key=lambda case: case.value or 0.0)
    says = f"at best {top.says}: {top.what}"
    if len(told) > 1:
        says += f"; at worst {least.says}: {least.what}"
    held = [case.what for case in told if case.verdict == "holds"]
    reason = {
        "holds": "in every case looked at",
        "holds only if": f"only {listed(held)}",
        "undecided": f"the best case may be below {check.times} or above",
        "does not": f"even the best case stays below {check.times}",
    }[verdict]
    return Finding(verdict=verdict, says=says, reason=reason, cases=cases)


def _speed_case(
    check: SpeedCheck, run: ClaimedRun, ours: str, theirs: str, machines: Machines
) -> Case:
    what = f"{run.name} over {theirs}"
    if ours == theirs:
        what = f"{run.name}, {check.precision} over {check.than_precision or run.precision}"
    paces = (
        machines.pace(run, ours, check.precision),
        machines.pace(run, theirs, check.than_precision),
    )
    reasons = [reason for pace in paces for reason in pace.reasons]
    if reasons:
        return unknown(what, reasons)
    low_mid_high = [(p.low_tokens_per_s, p.tokens_per_s, p.high_tokens_per_s) for p in paces]
    found = advantage(*low_mid_high, same=ours == theirs)
    return gain_case("times", check.times, what, found)


class PriceBook(Record, eq=False):
    """Prices of machines and costs of runs, each computed once."""

    machines: Machines
    region: str | None
    """None: the provider's default regions."""
    price_date: datetime.date | None
    """None: every day of a change."""
    costs: dict[tuple[ClaimedRun, str, PurchaseOption, float], Costs | None] = field(
        default_factory=dict
    )

    def offers(
        self, instance: str, option: PurchaseOption, on: datetime.date, region: str | None
    ) -> Offers:
        record = self.machines.platform(instance).instance
        terms = PriceTerms(on=on, region=region, options=(option,))
        return load_offers(self.machines.catalog, record, terms)

    def cost(self, run: ClaimedRun, instance: str, offers: Offers) -> Costs | None:
        """(Low, expected, high) USD of a run on these offers; None if not on sale."""
        if not offers.tariffs:
            return None
        tariff = offers.tariffs[0]
        key = (run, instance, tariff.option, tariff.usd_per_hour)
        if key not in self.costs:
            self.costs[key] = self._priced(run, instance, offers)
        return self.costs[key]

    def _priced(self, run: ClaimedRun, instance: str, offers: Offers) -> Costs | None:
        pace, chip = self.machines.pace(run, instance), self.machines.platform(instance).chip.name
        if pace.reasons:
            return None
        phase = RunPhase(
            tokens=run.length,
            tokens_per_s=pace.tokens_per_s,
            low_tokens_per_s=pace.low_tokens_per_s,
            high_tokens_per_s=pace.high_tokens_per_s,
        )
        size = self.machines.checkpoint_bytes(run)
        job = TrainingJob(phases=(phase,), nodes=run.nodes, checkpoint_bytes=size)
        cost = training_cost(job, offers, load_reliability(self.machines.catalog, chip))
        if cost.bought() is None:
            return None
        return float(cost.low_cost_usd), float(cost.cost_usd), float(cost.high_cost_usd)


def cost_finding(
    check: CostCheck, runs: Sequence[ClaimedRun], since: datetime.date, book: PriceBook
) -> Finding:
    """Finding on a cost check, with the days on which the verdict's prices changed.

    `since` is the day of the claim, the first day tried.
    """
    moves: list[Move] = []
    elsewhere = () if book.region else check.also_in
    for region in (None, *check.also_in) if book.region is None else (book.region,):
        before: Rates | None = None
        for day in _days(check, since, region, book):
            trial = _Trial(check=check, runs=runs, book=book, day=day, region=region)
            rates = trial.rates()
            usual = replace(trial, region=None).rates() if region in elsewhere else None
            # Unchanged rates, or those of the default regions, repeat a known verdict.
            if rates not in (before, usual):
                moves.append(trial.move())
            before = rates
    moves.sort(key=lambda move: (move.price_date, move.region or ""))
    told = [case for move in moves for case in known(move.cases)]
    verdict = together(case.verdict for case in told)
    says, reason = "", listed([case.says for move in moves for case in move.cases], 1)
    if told:
        says, reason = _says(moves), _reason(verdict, check, moves)
    return Finding(verdict=verdict, says=says, reason=reason, moves=tuple(moves))


def _days(
    check: CostCheck, since: datetime.date, region: str | None, book: PriceBook
) -> tuple[datetime.date, ...]:
    """Days since a claim with possible price changes, ascending."""
    if book.price_date is not None:
        return (book.price_date,)
    lists = [find_prices(book.machines.catalog, name) for name in (*check.of, *check.to)]
    days = {
        row.applies_from
        for prices in lists
        for row in (prices.price if prices else ())
        if row.option in check.options and region in (None, row.region)
    }
    if region not in check.also_in:
        days.add(since)
    return tuple(sorted(day for day in days if day >= since))


class _Trial(Record, eq=False):
    """A claim at the prices of a day; `region` None: the default regions."""

    check: CostCheck
    runs: Sequence[ClaimedRun]
    book: PriceBook
    day: datetime.date
    region: str | None

    def offers(self, instance: str, option: PurchaseOption) -> Offers:
        found = self.book.offers(instance, option, self.day, self.region)
        usual = self.region not in self.check.also_in or self.book.region is not None
        return (
            found if found.tariffs or usual else self.book.offers(instance, option, self.day, None)
        )

    def rates(self) -> Rates:
        """USD/h of each machine under each purchase option."""
        return tuple(
            next((tariff.usd_per_hour for tariff in self.offers(name, option).tariffs), None)
            for option in self.check.options
            for name in (*self.check.of, *self.check.to)
        )

    def move(self) -> Move:
        """Verdict on the day."""
        tried = tuple(self._cases())
        told = known(tried)
        return Move(
            price_date=self.day,
            region=self.region,
            verdict=together(case.verdict for case in told),
            best=best(told) if told else None,
            cases=tried,
        )

    def _cases(self) -> Iterator[Case]:
        check = self.check
        for option, ours, theirs in product(check.options, check.of, check.to):
            offers = [self.offers(name, option) for name in (ours, theirs)]
            reasons = [reason for offer in offers for reason in _unpriced(offer)]
            for run in self.runs:
                what = f"{run.name} against {theirs}, {option}"
                yield unknown(what, reasons) if reasons else self._case(run, what, offers)

    def _case(self, run: ClaimedRun, what: str, offers: Sequence[Offers]) -> Case:
        names = [offer.instance.name for offer in offers]
        ours, theirs = (
            self.book.cost(run, name, offer) for name, offer in zip(names, offers, strict=True)
        )
        if ours is None or theirs is None:
            paces = [self.book.machines.pace(run, name) for name in names]
            why = [reason for pace in paces for reason in pace.reasons]
            return unknown(what, why or ("it cannot be bought so",))
        return gain_case(self.check.gain, self.check.claimed, what, advantage(theirs, ours))


def _says(moves: Sequence[Move]) -> str:
    bests = [(move.price_date, move.best) for move in moves if move.best is not None]
    (day, top), (last, newest) = max(bests, key=lambda one: one[1].value or 0.0), bests[-1]
    text = f"at best {top.says} at the prices of {day}, {top.what}"
    return text if last == day else f"{text}; {newest.says} at those of {last}, {newest.what}"


def _reason(verdict: ClaimVerdict, check: CostCheck, moves: Sequence[Move]) -> str:
    claimed = check.claimed
    if verdict == "holds":
        return "in every case, at every price"
    if verdict == "holds only if":
        held = [
            (f"{move.price_date}", case.what)
            for move in moves
            for case in move.cases
            if case.verdict == "holds"
        ]
        days, what = zip(*held, strict=True)
        return f"only {listed(what, 2)}, at the prices of {listed(days)}"
    if verdict == "undecided":
        return f"the best case may be below {claimed} or above"
    return f"no case reaches {claimed}, even at the favourable end of its interval"


def _unpriced(offers: Offers) -> tuple[str, ...]:
    return tuple(
        f"no price of {one.instance} as {one.option}" + (f": {one.known}" if one.known else "")
        for one in offers.refused
    )


def price_finding(check: PriceCheck, rounding: float, book: PriceBook) -> Finding:
    """Finding on a price check."""
    wanted = threshold("saving", check.saving) * (1 - rounding)
    cases = []
    for name in check.instances:
        now = book.offers(name, check.option, check.on, book.region)
        then = book.offers(
            name, check.than_option or check.option, check.than_on or check.on, book.region
        )
        reasons = (*_unpriced(now), *_unpriced(then))
        if reasons:
            cases.append(unknown(name, reasons))
            continue
        rates = [offers.tariffs[0].usd_per_hour for offers in (then, now)]
        times = rates[0] / rates[1]
        found = Range(value=times, low=times, high=times)
        text = " to ".join(significant(rate, 5) for rate in rates)
        cases.append(
            Case(
                what=name,
                verdict=of_interval(times, times, wanted),
                says=f"{gain_text('saving', found)} ({text} USD/h)",
                value=1 - 1 / times,
                low=1 - 1 / times,
                high=1 - 1 / times,
            )
        )
    told = known(cases)
    verdict = together(case.verdict for case in told)
    days = "" if check.than_on is None else f"from {check.than_on} to {check.on}: "
    says = days + "; ".join(f"{case.what} {case.says}" for case in told)
    held = [case.what for case in told if case.verdict == "holds"]
    reason = {
        "holds": f"{check.saving} or more, up to rounding",
        "holds only if": f"only {listed(held)}",
        "undecided": listed([case.says for case in cases], 1),
        "does not": f"no price fell by {check.saving}",
    }[verdict]
    return Finding(verdict=verdict, says=says, reason=reason, cases=tuple(cases))
