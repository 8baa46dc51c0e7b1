"""The chain from tokens to money: tokens, tokens a second, goodput, wall time, bill, USD.

All over arrays of runs (layouts, numbers of nodes). The ends of the intervals are billed anew, not
scaled: Capacity Blocks and terms cost in steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.hardware.reliability import Reliability
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S
from trnbench.money.billing import (
    Bill,
    Charges,
    NoBill,
    RateEnd,
    bill,
    charges,
    ending,
    single_block_usd,
)
from trnbench.money.failures import AS_KNOWN, Stated, operations_of
from trnbench.money.goodput import Goodput, goodput
from trnbench.money.purchase import Offers, Tariff


class RunPhase(Record, eq=False):
    """A part of a run at one speed: tokens, and tokens a second with the ends of its interval.

    Speeds are arrays over the runs, or single numbers; the ends are the speed itself if not given.
    """

    tokens: float
    tokens_per_s: ArrayLike
    low_tokens_per_s: ArrayLike | None = None
    high_tokens_per_s: ArrayLike | None = None

    def __post_init__(self) -> None:
        """Refuse a phase of nothing."""
        if not 0 < self.tokens < np.inf:
            raise InputError(f"{self.tokens:g} tokens: expected a number above 0")


class TrainingJob(Record, eq=False):
    """Runs to be bought: their phases one after the other, on `nodes` instances each.

    `checkpoint_bytes`: of a whole checkpoint, weights and optimizer over all ranks.
    """

    phases: Sequence[RunPhase]
    nodes: ArrayLike
    checkpoint_bytes: ArrayLike

    @property
    def tokens(self) -> float:
        """The tokens of all phases."""
        return sum(phase.tokens for phase in self.phases)

    def work_s(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return (shortest, expected, longest) seconds of pure training."""
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
    """Runs under one tariff: their wall time, what they are billed, and that at both ends.

    `low` and `high` are the charges of the shortest and the longest wall time of the interval, at
    the cheapest and the dearest zone's rate; the charges themselves where no ranges were asked.
    """

    tariff: Tariff
    goodput: Goodput
    low_wall_s: FloatArray
    high_wall_s: FloatArray
    charges: Charges
    low: Charges
    high: Charges


class TrainingCost(Record, eq=False):
    """What runs take and cost on one instance; arrays over the runs.

    `choice` is the place in `priced` of the cheapest tariff, -1 where nothing can be bought: money
    is NaN then, and times are those of machines paid by the hour.
    """

    offers: Offers
    tokens: float
    nodes: FloatArray
    checkpoint_bytes: FloatArray
    priced: tuple[Priced, ...]
    choice: IntArray
    unpriced: Goodput
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
        """Days from the start to the end, with the gaps between Capacity Blocks."""
        return self.elapsed_s / DAY_S

    def bought(self, index: tuple[int, ...] = ()) -> Priced | None:
        """Return the cheapest purchase of one run; None if it cannot be bought."""
        choice = int(self.choice[index])
        return self.priced[choice] if choice >= 0 else None

    def bill(self, index: tuple[int, ...] = ()) -> Bill | NoBill | None:
        """Return the bill of one run; why there is none; None if there is no tariff at all."""
        chosen = self.bought(index) or (self.priced[0] if self.priced else None)
        return None if chosen is None else self.bill_under(chosen, index)

    def bill_under(self, priced: Priced, index: tuple[int, ...] = ()) -> Bill | NoBill:
        """Return the bill of one run under one of the tariffs."""
        machines = bill(
            self.offers,
            priced.tariff,
            wall_s=float(priced.goodput.wall_s[index]),
            nodes=int(self.nodes[index]),
            seam_s=float(priced.goodput.seam_s[index]),
        )
        if isinstance(machines, NoBill):
            return machines
        size = float(self.checkpoint_bytes[index])
        stored = float(storage_usd(self.offers, size, machines.elapsed_s))
        return replace(machines, cost_usd=machines.cost_usd + stored, storage_usd=stored)

    def reasons(self, index: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Return the reasons that one run has no price; none if it has one."""
        return () if self.bought(index) is not None else (*self.unsold(index), *self.offers.reasons)

    def unsold(self, index: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Return why published rates cannot buy one run; nothing if one can."""
        if self.bought(index) is not None:
            return ()
        bills = [self.bill_under(priced, index) for priced in self.priced]
        refused = [reason for no in bills if isinstance(no, NoBill) for reason in no.reasons]
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
    """Return days and USD of runs at the cheapest of the offers, run by run.

    Of equal cost the offer named first is taken. Without `ranges` the ends are the figures
    themselves, at a quarter of the time.
    """
    shortest, expected, longest = job.work_s()
    nodes, size, *works = np.broadcast_arrays(
        np.asarray(job.nodes, float),
        np.asarray(job.checkpoint_bytes, float),
        *(shortest, expected, longest),
    )

    def taken(seller: PurchaseRules | None) -> Goodput:
        operations = operations_of(
            reliability,
            offers.instance,
            spot=seller,
            stated=stated,
            starts=len(job.phases),
        )
        return goodput(
            operations,
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
    taken: Goodput,
    *,
    nodes: FloatArray,
    size: FloatArray,
    works: Sequence[FloatArray],
    ranges: bool,
) -> Priced:
    low_wall, high_wall = _ends(taken, works)

    def charged(wall_s: FloatArray, rate: RateEnd) -> Charges:
        machines = charges(
            offers, tariff, wall_s=wall_s, nodes=nodes, seam_s=taken.seam_s, rate=rate
        )
        stored = storage_usd(offers, size, machines.elapsed_s)
        return replace(machines, cost_usd=machines.cost_usd + stored)

    central = charged(taken.wall_s, "used")
    low, high = (charged(low_wall, "low"), charged(high_wall, "high")) if ranges else [central] * 2
    if ranges:
        # That blocks can be had back to back is assumed; if not, it takes one that holds the run.
        alone = single_block_usd(offers, tariff, wall_s=ending(taken.wall_s), nodes=nodes)
        alone = alone + storage_usd(offers, size, central.elapsed_s)
        bound = np.where(central.restarts > 0, np.fmax(high.cost_usd, alone), high.cost_usd)
        high = replace(high, cost_usd=bound)
    return Priced(
        tariff=tariff,
        goodput=taken,
        low_wall_s=low_wall,
        high_wall_s=high_wall,
        charges=central,
        low=low,
        high=high,
    )


def _ends(taken: Goodput, works: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the wall times of the interval: speed and failures unsure, independently."""
    shortest, expected, longest = works
    wall = taken.wall_s
    with np.errstate(invalid="ignore"):
        # For one interval between checkpoints all but the start is in proportion to the work.
        running = (wall - taken.start_s) / expected
        faster = np.hypot(running * (expected - shortest), wall - taken.low_wall_s)
        slower = np.hypot(running * (longest - expected), taken.high_wall_s - wall)
        return np.maximum(wall - faster, shortest), wall + slower


def _chosen(
    tokens: float,
    offers: Offers,
    priced: tuple[Priced, ...],
    steady: Goodput,
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
    """Return the USD of storing the kept checkpoints for as long as a run takes."""
    store, kept = offers.store, offers.terms.kept
    if store is None or kept is None:
        return np.zeros(())
    sizes = kept.count * np.asarray(checkpoint_bytes, float) / store.size_bytes
    return np.asarray(sizes * np.asarray(elapsed_s, float) / store.period_s * store.price_usd)
