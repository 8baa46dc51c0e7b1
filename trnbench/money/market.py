"""One instance type as a buyer sees it: clusters that run the model, how fast, how they are sold.

On a cluster the layout with the fastest step is also the cheapest, whatever the purchase: money
never falls as time grows. So a layout, once searched, is settled for each cluster, and what is
left to choose is the number of nodes and how to buy them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.reliability import Reliability
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.records import Record, replace
from trnbench.money.cost import RunPhase, TrainingCost, TrainingJob, training_cost
from trnbench.money.failures import AS_KNOWN, Operations, Stated, operations_of
from trnbench.money.objective import Candidate
from trnbench.money.purchase import Offers


class Market(Record, eq=False):
    """An instance type and its clusters of `nodes`, on which the model runs.

    `speeds`: tokens of each part of the run, and tokens a second on each cluster.
    `interval_s` between checkpoints, if it is not the best one.
    """

    instance: Instance
    nodes: NDArray[np.int64]
    speeds: tuple[tuple[float, FloatArray], ...]
    checkpoint_bytes: float
    offers: Offers
    reliability: Reliability
    stated: Stated = AS_KNOWN
    interval_s: float | None = None

    def operations(self, spot: PurchaseRules | None = None) -> Operations:
        """Return how the run fails and recovers; with `spot`, on this seller's spot machines."""
        return operations_of(
            self.reliability,
            self.instance,
            spot=spot,
            stated=self.stated,
            starts=len(self.speeds),
        )

    def at(self, nodes: int, *, speed: ArrayLike = 1.0, part: int | None = None) -> Market:
        """Return one of the clusters, at multiples of its speed: one cluster for each.

        Of a single part of the run, if it is named.
        """
        (place,) = np.flatnonzero(self.nodes == nodes)
        times = np.atleast_1d(np.asarray(speed, float))
        return replace(
            self,
            nodes=np.full(times.shape, nodes),
            speeds=tuple(
                (tokens, per_s[place] * (times if part in (None, number) else np.ones_like(times)))
                for number, (tokens, per_s) in enumerate(self.speeds)
            ),
        )

    def changed(
        self, *, speed: float = 1.0, price: float = 1.0, failures_per_node_day: float | None = None
    ) -> Market:
        """Return the market with another speed, price or failure rate."""
        tariffs = tuple(
            replace(
                tariff,
                list_usd_per_hour=price * tariff.list_usd_per_hour,
                low_list_usd_per_hour=price * tariff.low_list_usd_per_hour,
                high_list_usd_per_hour=price * tariff.high_list_usd_per_hour,
            )
            for tariff in self.offers.tariffs
        )
        stated = self.stated
        if failures_per_node_day is not None:
            stated = replace(stated, failures_per_node_day=failures_per_node_day)
        return replace(
            self,
            speeds=tuple((tokens, speed * per_s) for tokens, per_s in self.speeds),
            offers=replace(self.offers, tariffs=tariffs),
            stated=stated,
        )


def cost_of(market: Market) -> TrainingCost:
    """Return days and USD of the run on every cluster, without ranges."""
    phases = [RunPhase(tokens=tokens, tokens_per_s=per_s) for tokens, per_s in market.speeds]
    return training_cost(
        TrainingJob(phases=phases, nodes=market.nodes, checkpoint_bytes=market.checkpoint_bytes),
        market.offers,
        market.reliability,
        stated=market.stated,
        interval_s=market.interval_s,
        ranges=False,
    )


def candidates(market: Market) -> list[Candidate]:
    """Return every way to buy the run; one without a price for a cluster that is not on sale."""
    cost = cost_of(market)
    found: list[Candidate] = []
    for place, nodes in enumerate(market.nodes.tolist()):
        unsold = Candidate(
            instance=market.instance.name,
            nodes=nodes,
            option=None,
            elapsed_s=float(cost.elapsed_s[place]),
            cost_usd=None,
        )
        ways = [
            replace(
                unsold,
                option=priced.tariff.option,
                elapsed_s=float(priced.charges.elapsed_s[place]),
                cost_usd=float(priced.charges.cost_usd[place]),
            )
            for priced in cost.priced
            if np.isfinite(priced.charges.cost_usd[place])
        ]
        found += ways or [unsold]
    return found


def cheapest(market: Market) -> list[Candidate]:
    """Return the cheapest way to buy each cluster, by nodes; one without a price where none has."""
    found: dict[int, Candidate] = {}
    for way in candidates(market):
        best = found.setdefault(way.nodes, way)
        if way.cost_usd is not None and way.cost_usd < (best.cost_usd or math.inf):
            found[way.nodes] = way
    return list(found.values())
