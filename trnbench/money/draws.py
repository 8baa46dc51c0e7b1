"""Time and cost of purchases in common random draws, and how often each purchase is the cheapest.

In every draw all purchases meet the same deviations: of failure rates and recovery times, of the
rates of a purchase option, and, through the caller, of the speed. The number of failures in a run
is drawn for each purchase alone. Each draw is billed separately.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray, quantiles
from trnbench.facts.records import Record
from trnbench.money.billing import charges, ending
from trnbench.money.cost import storage_usd
from trnbench.money.failures import Estimate, Unsure
from trnbench.money.goodput import goodput
from trnbench.money.market import Market
from trnbench.money.purchase import Tariff
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import TAIL, Range


class Purchase(Record, eq=False):
    """A run on `nodes` instances of a market, bought at a tariff."""

    name: str
    """Tells the purchase from others: seeds its own draws."""
    market: Market
    nodes: int
    tariff: Tariff | None
    """None where the run has no price."""
    work_s: FloatArray
    """Seconds of pure training, draw by draw."""


class DrawnPurchase(Record, eq=False):
    """A purchase draw by draw: seconds from start to end, and USD; NaN where it has no price."""

    elapsed_s: FloatArray
    cost_usd: FloatArray


def outcome(purchase: Purchase, draws: CommonDraws) -> DrawnPurchase:
    """Seconds and USD of a purchase in each draw."""
    market, tariff = purchase.market, purchase.tariff
    spot = market.offers.rules if tariff is not None and tariff.option == "spot" else None
    operations = market.operations(purchase.nodes, spot)
    drawn: dict[Unsure, FloatArray] = {
        name: draws.of(name, _range(estimate))
        for name, estimate in operations.estimates.items()
        if estimate.low != estimate.high
    }
    taken = goodput(
        operations,
        work_s=purchase.work_s,
        nodes=purchase.nodes,
        checkpoint_bytes=market.checkpoint_bytes,
        interval_s=market.interval_s,
        ranges=False,
        drawn=drawn,
    )
    luck = draws.deviations(f"failures of {purchase.name}")
    with np.errstate(invalid="ignore"):
        # Luck never makes a run shorter than pure training.
        wall_s = np.maximum(taken.wall_s + taken.deviation_s * luck, purchase.work_s)
    if tariff is None:
        return DrawnPurchase(elapsed_s=ending(wall_s), cost_usd=np.full(wall_s.shape, np.nan))
    charged = charges(
        market.offers, tariff, wall_s=wall_s, nodes=purchase.nodes, seam_s=taken.seam_s
    )
    there = draws.of("available", _range(operations.available))
    elapsed_s = charged.elapsed_s / np.minimum(there, 1.0)
    stored = storage_usd(market.offers, market.checkpoint_bytes, elapsed_s) + market.offers.once_usd
    rate = rates_usd_per_hour(tariff, draws) / tariff.usd_per_hour
    return DrawnPurchase(elapsed_s=elapsed_s, cost_usd=rate * charged.cost_usd + stored)


def rates_usd_per_hour(tariff: Tariff, draws: CommonDraws) -> FloatArray:
    low, rate, high = tariff.low_usd_per_hour, tariff.usd_per_hour, tariff.high_usd_per_hour
    drawn = draws.of(f"rate {tariff.option}", Range(value=rate, low=low, high=high))
    return np.clip(drawn, low, high)


def cheapest_probabilities(
    costs: Sequence[FloatArray | None], keeps: Sequence[bool]
) -> tuple[float, ...]:
    """Share of draws in which each row is the cheapest, 0 for a row without a price.

    Only rows that keep the limits compete, or all rows with a price where none keeps them. Of equal
    cost the first row counts.
    """
    able = [cost is not None and keep for cost, keep in zip(costs, keeps, strict=True)]
    if not any(able):
        able = [cost is not None for cost in costs]
    tables = {
        place: np.nan_to_num(cost, nan=np.inf)
        for place, cost in enumerate(costs)
        if cost is not None and able[place]
    }
    if not tables:
        return (0.0,) * len(costs)
    least = np.array([*tables.values()]).argmin(axis=0)
    wins = (np.bincount(least, minlength=len(tables)) / len(least)).tolist()
    shares = dict(zip(tables, wins, strict=True))
    return tuple(shares.get(place, 0.0) for place in range(len(costs)))


def ratio_ends(one: FloatArray, other: FloatArray) -> tuple[float, float]:
    """Ends of the 80 % interval of the ratio of two figures in common draws."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = one / other
    known = ratios[np.isfinite(ratios)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = quantiles(known, (TAIL, 1 - TAIL))
    return low, high


def level_of(figures: FloatArray, confidence: float) -> float:
    """Smallest figure that this share of the draws does not exceed."""
    return float(np.quantile(np.nan_to_num(figures, nan=np.inf), confidence, method="higher"))


def _range(estimate: Estimate) -> Range:
    return Range(
        value=estimate.value, low=estimate.low, high=estimate.high, linear=estimate.low <= 0
    )
