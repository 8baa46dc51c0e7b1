"""The chain from tokens to money: tokens, tokens a second, goodput, wall time, bill, USD.

All over arrays of runs (layouts, numbers of nodes). Both ends of an interval are billed again, not
scaled: Capacity Blocks and terms cost in steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.hardware.library import Reliability
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S
from trnbench.money.billing import Bill, Charges, RateEnd, bill, charges, ending, single_block_usd
from trnbench.money.failures import AS_KNOWN, Estimate, Operations, Stated, operations_of
from trnbench.money.goodput import Goodput, goodput
from trnbench.money.purchase import Offers, Tariff


class RunPhase(Record, eq=False):
    """A part of a run at one speed; speeds are arrays over the runs, or single numbers."""

    tokens: float
    tokens_per_s: ArrayLike
    low_tokens_per_s: ArrayLike | None = None
    """Lower end of the speed's interval; None for the speed itself."""
    high_tokens_per_s: ArrayLike | None = None
    """Upper end of the speed's interval; None for the speed itself."""

    def __post_init__(self) -> None:
        if not 0 < self.tokens < np.inf:
            raise InputError(f"{self.tokens:g} tokens: expected a number above 0")


class TrainingJob(Record, eq=False):
    """Runs to be bought: their phases one after the other, on `nodes` instances each."""

    phases: Sequence[RunPhase]
    nodes: ArrayLike
    checkpoint_bytes: ArrayLike
    """Bytes of a whole checkpoint, weights and optimizer over all ranks."""

    @property
    def tokens(self) -> float:
        return sum(phase.tokens for phase in self.phases)

    def work_s(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(shortest, expected, longest) seconds of pure training."""
        return (
            _seconds([(p.tokens, _first(p.high_tokens_per_s, p)) for p in self.phases]),
            _seconds([(p.tokens, p.tokens_per_s) for p in self.phases]),
            _seconds([(p.tokens, _first(p.low_tokens_per_s, p)) for p in self.phases]),
        )


def _first(end: ArrayLike | None, phase: RunPhase) -> ArrayLike:
    return phase.tokens_per_s if end is None else end


def _seconds(parts: Sequence[tuple[float, ArrayLike]]) -> FloatArray:
    total = np.zeros(())
    with np.errstate(divide="ignore"):
        for tokens, tokens_per_s in parts:
            total = total + tokens / np.asarray(tokens_per_s, float)
    return total


class Priced(Record, eq=False):
    """Runs under one tariff: wall time and charges, each with both ends of its interval."""

    tariff: Tariff
    goodput: Goodput[FloatArray]
    low_wall_s: FloatArray
    high_wall_s: FloatArray
    available: float
    """Share of the time in which the machines are there; below 1 for spot alone."""
    charges: Charges[FloatArray]
    low: Charges[FloatArray]
    """Charges of the shortest wall time at the cheapest zone's rate; `charges` itself without
    ranges."""
    high: Charges[FloatArray]
    """Charges of the longest wall time at the dearest zone's rate; `charges` itself without
    ranges."""


class TrainingCost(Record, eq=False):
    """Time and cost of runs on one instance type; arrays over the runs."""

    offers: Offers
    tokens: float
    nodes: FloatArray
    checkpoint_bytes: FloatArray
    priced: tuple[Priced, ...]
    choice: IntArray
    """Place in `priced` of the cheapest tariff; -1 where nothing can be bought. Costs are NaN
    there, and times are those of machines paid by the hour."""
    unpriced: Goodput[FloatArray]
    """Goodput on machines that are not interrupted."""
    wall_s: FloatArray
    low_wall_s: FloatArray
    high_wall_s: FloatArray
    elapsed_s: FloatArray
    low_elapsed_s: FloatArray
    high_elapsed_s: FloatArray
    goodput: FloatArray
    usd_per_hour: FloatArray
    cost_usd: FloatArray
    low_cost_usd: FloatArray
    high_cost_usd: FloatArray

    @property
    def days(self) -> FloatArray:
        """Days from start to end, with the gaps between Capacity Blocks."""
        return self.elapsed_s / DAY_S

    def bought(self, index: tuple[int, ...] = ()) -> Priced | None:
        choice = int(self.choice[index])
        return self.priced[choice] if choice >= 0 else None

    def bill(self, index: tuple[int, ...] = ()) -> Bill | tuple[str, ...] | None:
        """The bill of one run, or the reasons why there is none; None without any tariff."""
        chosen = self.bought(index) or (self.priced[0] if self.priced else None)
        return None if chosen is None else self.bill_under(chosen, index)

    def bill_under(self, priced: Priced, index: tuple[int, ...] = ()) -> Bill | tuple[str, ...]:
        """The bill of one run under one of the tariffs."""
        machines = bill(
            self.offers,
            priced.tariff,
            wall_s=float(priced.goodput.wall_s[index]),
            nodes=int(self.nodes[index]),
            seam_s=float(priced.goodput.seam_s[index]),
        )
        if not isinstance(machines, Bill):
            return machines
        size = float(self.checkpoint_bytes[index])
        charged = machines.charged
        charged = replace(charged, elapsed_s=charged.elapsed_s / priced.available)
        stored, once = (
            float(storage_usd(self.offers, size, charged.elapsed_s)),
            self.offers.once_usd,
        )
        charged = replace(charged, cost_usd=charged.cost_usd + stored + once)
        return replace(machines, charged=charged, storage_usd=stored, once_usd=once)

    def reasons(self, index: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Reasons why one run has no price; empty if it has one."""
        return () if self.bought(index) is not None else (*self.unsold(index), *self.offers.reasons)

    def unsold(self, index: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Reasons why published rates cannot buy one run; empty if they can."""
        if self.bought(index) is not None:
            return ()
        bills = [self.bill_under(priced, index) for priced in self.priced]
        refused = [reason for no in bills if not isinstance(no, Bill) for reason in no]
        return tuple(dict.fromkeys(refused))


def training_cost(
    job: TrainingJob,
    offers: Offers,
    reliability: Reliability,
    *,
    stated: Stated = AS_KNOWN,
    interval_s: float | None = None,
    ranges: bool = True,
) -> TrainingCost:
    """Days and USD of runs at the cheapest of the offers, run by run.

    Of equal cost the first offer is taken. Without `ranges` the ends are the figures themselves, at
    a quarter of the computing time.
    """
    shortest, expected, longest = job.work_s()
    nodes, size, *works = np.broadcast_arrays(
        np.asarray(job.nodes, float),
        np.asarray(job.checkpoint_bytes, float),
        *(shortest, expected, longest),
    )

    def met(seller: PurchaseRules | None) -> Operations:
        starts = len(job.phases)
        return operations_of(
            reliability, offers.instance, spot=seller, stated=stated, starts=starts
        )

    def taken(seller: PurchaseRules | None) -> Goodput[FloatArray]:
        return goodput(
            met(seller),
            work_s=works[1],
            nodes=nodes,
            checkpoint_bytes=size,
            interval_s=interval_s,
            ranges=ranges,
        )

    steady = taken(None)
    priced = [
        _priced(
            offers,
            tariff,
            taken(offers.rules) if tariff.option == "spot" else steady,
            met(offers.rules if tariff.option == "spot" else None).available,
            nodes=nodes,
            size=size,
            works=works,
            ranges=ranges,
        )
        for tariff in offers.tariffs
    ]
    return _chosen(job.tokens, offers, tuple(priced), steady, nodes, size, works)


def _priced(
    offers: Offers,
    tariff: Tariff,
    taken: Goodput[FloatArray],
    available: Estimate,
    *,
    nodes: FloatArray,
    size: FloatArray,
    works: Sequence[FloatArray],
    ranges: bool,
) -> Priced:
    low_wall, high_wall = _ends(taken, works)

    def charged(wall_s: FloatArray, rate: RateEnd) -> Charges[FloatArray]:
        machines = charges(
            offers, tariff, wall_s=wall_s, nodes=nodes, seam_s=taken.seam_s, rate=rate
        )
        waited = _waited(wall_s / taken.wall_s, available, rate)
        machines = replace(machines, elapsed_s=machines.elapsed_s * waited)
        stored = storage_usd(offers, size, machines.elapsed_s) + offers.once_usd
        return replace(machines, cost_usd=machines.cost_usd + stored)

    central = charged(taken.wall_s, "used")
    low, high = (charged(low_wall, "low"), charged(high_wall, "high")) if ranges else [central] * 2
    if ranges:
        # Blocks in a row may not be on sale: the upper end allows for one block that holds the
        # whole run.
        alone = single_block_usd(offers, tariff, wall_s=ending(taken.wall_s), nodes=nodes)
        alone = alone + storage_usd(offers, size, central.elapsed_s) + offers.once_usd
        bound = np.where(central.restarts > 0, np.fmax(high.cost_usd, alone), high.cost_usd)
        high = replace(high, cost_usd=bound)
    return Priced(
        tariff=tariff,
        goodput=taken,
        low_wall_s=low_wall,
        high_wall_s=high_wall,
        available=available.value,
        charges=central,
        low=low,
        high=high,
    )


def _waited(moved: FloatArray, available: Estimate, rate: RateEnd) -> FloatArray | float:
    """Time from start to end over the time in which machines run, at an end of the interval.

    `moved` is that end of the running time over its centre. Running time and availability are
    uncertain independently: their distances add in squares, as logarithms.
    """
    share = {"used": available.value, "low": available.high, "high": available.low}[rate]
    if rate == "used" or share == available.value:
        return 1 / share
    with np.errstate(invalid="ignore"):
        ran, there = np.log(moved), np.log(available.value / share)
        both = np.copysign(np.hypot(ran, there), there)
        return np.where(np.isfinite(ran), np.exp(both - ran), 1.0) / available.value


def _ends(taken: Goodput[FloatArray], works: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Wall times at the ends of the interval: speed and failures are uncertain, independently."""
    shortest, expected, longest = works
    wall = taken.wall_s
    with np.errstate(invalid="ignore"):
        # For a fixed interval between checkpoints, all but the start is in proportion to the work.
        running = (wall - taken.start_s) / expected
        faster = np.hypot(running * (expected - shortest), wall - taken.low_wall_s)
        slower = np.hypot(running * (longest - expected), taken.high_wall_s - wall)
        return np.maximum(wall - faster, shortest), wall + slower


def _chosen(
    tokens: float,
    offers: Offers,
    priced: tuple[Priced, ...],
    steady: Goodput[FloatArray],
    nodes: FloatArray,
    size: FloatArray,
    works: Sequence[FloatArray],
) -> TrainingCost:
    nothing = np.full(nodes.shape, np.nan)
    costs = np.array([np.nan_to_num(p.charges.cost_usd, nan=np.inf) for p in priced])
    best = costs.argmin(axis=0) if priced else np.zeros(nodes.shape, int)
    choice = np.where(np.isfinite(costs.min(axis=0)), best, -1) if priced else best - 1
    low_wall, high_wall = _ends(steady, works)

    def pick(unbought: FloatArray, figures: Sequence[FloatArray]) -> FloatArray:
        # Choice -1 selects the figure without a purchase.
        return np.choose(choice + 1, [unbought, *figures])

    return TrainingCost(
        offers=offers,
        tokens=tokens,
        nodes=nodes,
        checkpoint_bytes=size,
        priced=priced,
        choice=choice,
        unpriced=steady,
        wall_s=pick(steady.wall_s, [p.goodput.wall_s for p in priced]),
        low_wall_s=pick(low_wall, [p.low_wall_s for p in priced]),
        high_wall_s=pick(high_wall, [p.high_wall_s for p in priced]),
        elapsed_s=pick(ending(steady.wall_s), [p.charges.elapsed_s for p in priced]),
        low_elapsed_s=pick(ending(low_wall), [p.low.elapsed_s for p in priced]),
        high_elapsed_s=pick(ending(high_wall), [p.high.elapsed_s for p in priced]),
        goodput=pick(steady.goodput, [p.goodput.goodput for p in priced]),
        usd_per_hour=pick(nothing, [np.full(nodes.shape, p.tariff.usd_per_hour) for p in priced]),
        cost_usd=pick(nothing, [p.charges.cost_usd for p in priced]),
        low_cost_usd=pick(nothing, [p.low.cost_usd for p in priced]),
        high_cost_usd=pick(nothing, [p.high.cost_usd for p in priced]),
    )


def storage_usd(offers: Offers, checkpoint_bytes: ArrayLike, elapsed_s: ArrayLike) -> FloatArray:
    """USD of storing the kept checkpoints from start to end of a run."""
    store, kept = offers.store, offers.terms.kept
    if store is None or kept is None:
        return np.zeros(())
    sizes = kept.count * np.asarray(checkpoint_bytes, float) / store.size_bytes
    return np.asarray(sizes * np.asarray(elapsed_s, float) / store.period_s * store.price_usd)
