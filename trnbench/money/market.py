"""One instance type as a buyer sees it: clusters that run the model, speed, offers, quotas.

On a cluster the layout with the fastest step is also the cheapest, with any purchase: cost never
falls as time grows. So the search settles a layout for each cluster, and the choice that remains is
the number of nodes and the purchase. Minutes of compiling choose no layout.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.instance import Instance, PurchaseOption
from trnbench.facts.hardware.library import Reliability
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.records import Record, replace
from trnbench.money.cost import RunPhase, TrainingCost, TrainingJob, training_cost
from trnbench.money.failures import AS_KNOWN, Compiling, Operations, Stated, derived, operations_of
from trnbench.money.objective import Candidate
from trnbench.money.purchase import Offers


class Market(Record, eq=False):
    """An instance type and its clusters of `nodes`, on which the model runs."""

    instance: Instance
    nodes: NDArray[np.int64]
    speeds: tuple[tuple[float, FloatArray], ...]
    """Each part of the run: its tokens, and tokens a second on each cluster."""
    checkpoint_bytes: float
    offers: Offers
    reliability: Reliability
    stated: Stated = AS_KNOWN
    compiling: tuple[Compiling, ...] = ()
    """On each cluster, or once for all; none where graphs are not compiled before a run."""
    interval_s: float | None = None
    """Seconds between checkpoints; None for the best interval."""

    def stated_on(self, nodes: int | None) -> Stated:
        """Statements on a run on a cluster; None: on all, one number of each."""
        if not self.compiling:
            return self.stated
        if nodes is not None:
            nearest = int(np.abs(self.nodes - nodes).argmin())
            return replace(self.stated, compiling=self.compiling[nearest])
        first, again = (
            derived(*np.array([getattr(one, when).ends for one in self.compiling]).T)
            for when in ("first", "again")
        )
        return replace(self.stated, compiling=Compiling(first=first, again=again))

    def operations(self, nodes: int, spot: PurchaseRules | None = None) -> Operations:
        """Failures and recoveries on a cluster; `spot` is the seller of its spot machines."""
        return operations_of(
            self.reliability,
            self.instance,
            spot=spot,
            stated=self.stated_on(nodes),
            starts=len(self.speeds),
        )

    def at(self, nodes: int, *, speed: ArrayLike = 1.0, part: int | None = None) -> Market:
        """The market of one cluster, repeated at each multiple of its speed.

        With `part`, only the speed of that part of the run changes.
        """
        (place,) = np.flatnonzero(self.nodes == nodes)
        times = np.atleast_1d(np.asarray(speed, float))
        return replace(
            self,
            nodes=np.full(times.shape, nodes),
            compiling=self.compiling[place : place + 1],
            speeds=tuple(
                (tokens, per_s[place] * (times if part in (None, number) else np.ones_like(times)))
                for number, (tokens, per_s) in enumerate(self.speeds)
            ),
        )

    def changed(
        self, *, speed: float = 1.0, price: float = 1.0, failures_per_node_day: float | None = None
    ) -> Market:
        """The market with another speed, price or failure rate."""
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
    """Days and USD of the run on every cluster, without ranges."""
    phases = [RunPhase(tokens=tokens, tokens_per_s=per_s) for tokens, per_s in market.speeds]
    return training_cost(
        TrainingJob(phases=phases, nodes=market.nodes, checkpoint_bytes=market.checkpoint_bytes),
        market.offers,
        market.reliability,
        stated=market.stated_on(None),
        interval_s=market.interval_s,
        ranges=False,
    )


def candidates(market: Market) -> list[Candidate]:
    """All ways to buy the run; a cluster that is not on sale has one candidate without a price."""
    cost = cost_of(market)
    bought: list[Candidate] = []
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
        bought += ways or [unsold]
    return bought


def cheapest(market: Market) -> list[Candidate]:
    """The cheapest way to buy each cluster, by nodes; without a price where nothing is on sale."""
    by_nodes: dict[int, Candidate] = {}
    for way in candidates(market):
        best = by_nodes.setdefault(way.nodes, way)
        if way.cost_usd is not None and way.cost_usd < (best.cost_usd or math.inf):
            by_nodes[way.nodes] = way
    return list(by_nodes.values())


class QuotaRequest(Record):
    """A quota and the virtual processors that a run needs of it, in one region."""

    name: str
    code: str
    vcpus: int


def quota_request(
    instance: Instance, nodes: int, option: PurchaseOption, rules: PurchaseRules | None
) -> QuotaRequest | None:
    """The quota to request; None where none is known for the option."""
    if rules is None or instance.host.vcpus is None:
        return None
    for quota in rules.quota:
        if option in quota.options and instance.name.startswith(quota.families):
            return QuotaRequest(name=quota.name, code=quota.code, vcpus=nodes * instance.host.vcpus)
    return None


def cluster_limit(instance: Instance, nodes: int) -> str | None:
    """The reason why one network cannot join this many instances, or None."""
    network = instance.network
    if nodes > 1 and network is None:
        return f"{instance.name} has no network that joins instances"
    most = network.max_chips_per_cluster if network else None
    if most is not None and nodes * instance.chips > most:
        return f"{nodes * instance.chips:,} chips are more than the {most:,} of one cluster"
    return None
