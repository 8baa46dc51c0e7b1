"""What fails on one instance type and what that costs, each number with its range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, get_args

from trnbench.errors import InputError
from trnbench.facts.catalog.provenance import Kind, Provenance
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.reliability import Reliability
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S

Unsure = Literal[
    "failures_per_node_day",
    "interruptions_per_node_day",
    "recovery_s",
    "start_s",
    "write_per_node_bytes_per_s",
    "write_total_bytes_per_s",
    "stalled_share",
]


class Estimate(Record):
    """A number with the range in which it is believed to lie, and how it is known."""

    value: float
    low: float
    high: float
    kind: Kind

    def scaled(self, factor: float) -> Estimate:
        """Return it in another unit."""
        return replace(
            self, value=self.value * factor, low=self.low * factor, high=self.high * factor
        )

    def capped(self, most: float) -> Estimate:
        """Return it with nothing above `most`."""
        value, low, high = (min(one, most) for one in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


class Operations(Record):
    """How a run on one instance type fails and recovers; a node is an instance.

    `failures_per_node_day`: of machines. `interruptions_per_node_day`: of spot machines taken back.
    `recovery_s`: after a failure, and `reclaimed_recovery_s` after an interruption, both beside
    reading the checkpoint. `start_s`: of all parts of a run, each with its compilation.
    `launch_s`: the part of a recovery that a planned restart has too. `kind` is the weakest of all.
    """

    failures_per_node_day: Estimate
    interruptions_per_node_day: Estimate
    recovery_s: Estimate
    reclaimed_recovery_s: float
    launch_s: float
    start_s: Estimate
    write_per_node_bytes_per_s: Estimate
    write_total_bytes_per_s: Estimate
    stalled_share: Estimate

    @property
    def estimates(self) -> Mapping[Unsure, Estimate]:
        """Everything that is not sure, by name."""
        names: tuple[Unsure, ...] = get_args(Unsure)
        return {name: getattr(self, name) for name in names}

    @property
    def kind(self) -> Kind:
        """The weakest evidence that it rests on."""
        return max(estimate.kind for estimate in self.estimates.values())


class Stated(Record):
    """What a user knows better than the data: plain numbers, in place of ranges."""

    failures_per_node_day: float | None = None
    recovery_s: float | None = None
    start_s: float | None = None
    write_per_node_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        if self.write_per_node_bytes_per_s is not None and self.write_per_node_bytes_per_s <= 0:
            raise InputError("the write rate of a node must be above 0")
        for what, number in (
            ("failures per node-day", self.failures_per_node_day),
            ("recovery", self.recovery_s),
            ("start", self.start_s),
        ):
            if number is not None and not 0 <= number < math.inf:
                raise InputError(f"{what} must be a finite number, not negative, found {number:g}")


AS_KNOWN = Stated()


def operations_of(
    reliability: Reliability,
    instance: Instance,
    *,
    spot: PurchaseRules | None = None,
    stated: Stated = AS_KNOWN,
    starts: int = 1,
) -> Operations:
    """Return the failure rates of runs on an instance; with `spot`, on this seller's spot machines.

    Failures are in proportion to chips, the rate of writing to hosts. A run of parts `starts` as
    often as it has parts: each has programs of its own to compile.
    """
    detect, launch, compiled = (
        _known(reliability, name) for name in ("detect_s", "launch_s", "compile_s")
    )
    failures = _known(reliability, "failures_per_node_day").scaled(
        instance.chips / reliability.node_chips
    )
    write = _known(reliability, "write_per_node_bytes_per_s")
    if instance.host.network_bandwidth_bytes_per_s is not None:
        write = write.capped(instance.host.network_bandwidth_bytes_per_s)
    return Operations(
        failures_per_node_day=_or(stated.failures_per_node_day, failures),
        interruptions_per_node_day=_interruptions(spot),
        recovery_s=_or(stated.recovery_s, _sum(detect, launch)),
        reclaimed_recovery_s=(spot.spot.wait_s if spot else 0.0) + launch.value,
        launch_s=launch.value,
        start_s=_or(stated.start_s, _sum(launch, compiled)).scaled(starts),
        write_per_node_bytes_per_s=_or(
            stated.write_per_node_bytes_per_s, write.scaled(instance.hosts)
        ),
        write_total_bytes_per_s=_known(reliability, "write_total_bytes_per_s"),
        stalled_share=_known(reliability, "stalled_share"),
    )


def _known(reliability: Reliability, name: str) -> Estimate:
    key = keys_of(Reliability)[name]
    return ranged(getattr(reliability, name), reliability.provenance, key)


def ranged(value: float, provenance: Provenance, key: str) -> Estimate:
    """Return a number of a data file with the range that is stated beside it."""
    evidence = provenance.evidence.get(key)
    if evidence is None:
        return _sure(value)
    low = value if evidence.low is None else evidence.low
    high = value if evidence.high is None else evidence.high
    return Estimate(value=value, low=low, high=high, kind=evidence.kind)


def _or(stated: float | None, known: Estimate) -> Estimate:
    return known if stated is None else _sure(stated)


def _sure(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value, kind=Kind.DERIVED)


def _sum(one: Estimate, other: Estimate) -> Estimate:
    return Estimate(
        value=one.value + other.value,
        low=one.low + other.low,
        high=one.high + other.high,
        kind=max(one.kind, other.kind),
    )


def _interruptions(seller: PurchaseRules | None) -> Estimate:
    if seller is None:
        return _sure(0.0)
    chance = ranged(seller.spot.reclaimed_per_month, seller.provenance, "spot.reclaimed_per_month")
    days = seller.spot.month_s / DAY_S
    rates = [-math.log1p(-p) / days for p in (chance.value, chance.low, chance.high)]
    return Estimate(value=rates[0], low=rates[1], high=rates[2], kind=chance.kind)
