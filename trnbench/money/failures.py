"""Failures on one instance type and the time they cost, each number with its range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, get_args

from trnbench.errors import InputError
from trnbench.facts.catalog.provenance import Kind, Provenance
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.library import Reliability
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S

Unsure = Literal[
    "failures_per_node_day",
    "interruptions_per_node_day",
    "zone_losses_per_day",
    "recovery_s",
    "start_s",
    "write_per_node_bytes_per_s",
    "write_total_bytes_per_s",
    "stalled_share",
]


class Estimate(Record):
    """A number with the range in which it is believed to be, and its kind of evidence."""

    value: float
    low: float
    high: float
    kind: Kind

    @property
    def ends(self) -> tuple[float, float, float]:
        return self.value, self.low, self.high

    def scaled(self, factor: float) -> Estimate:
        """The estimate times a factor, for instance in another unit."""
        return replace(
            self, value=self.value * factor, low=self.low * factor, high=self.high * factor
        )

    def capped(self, most: float) -> Estimate:
        value, low, high = (min(one, most) for one in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


class Operations(Record):
    """Failures and recoveries of a run on one instance type; a node is an instance."""

    failures_per_node_day: Estimate
    """Failures of machines."""
    interruptions_per_node_day: Estimate
    """Spot machines reclaimed one by one."""
    zone_losses_per_day: Estimate
    """Losses of all spot machines of a zone at once, a day on which they run."""
    available: Estimate
    """Share of the time in which all machines are there; the run waits for the rest."""
    recovery_s: Estimate
    """Seconds after a failure, without reading the checkpoint."""
    reclaimed_recovery_s: float
    """Seconds after an interruption, without reading the checkpoint."""
    launch_s: float
    """Part of a recovery that a planned restart needs too."""
    start_s: Estimate
    """Seconds to start all parts of a run, each with its compilation."""
    write_per_node_bytes_per_s: Estimate
    write_total_bytes_per_s: Estimate
    stalled_share: Estimate
    """Share of a checkpoint's write time during which training stops."""

    @property
    def estimates(self) -> Mapping[Unsure, Estimate]:
        names: tuple[Unsure, ...] = get_args(Unsure)
        return {name: getattr(self, name) for name in names}

    @property
    def kind(self) -> Kind:
        """The weakest kind of evidence among the numbers."""
        return max(estimate.kind for estimate in self.estimates.values())


class Compiling(Record):
    """Seconds that a start spends on the compiler: the first of a part of a run, and each again."""

    first: Estimate
    again: Estimate


class Stated(Record):
    """Numbers of one run that replace those of the data; those of a user have no ranges."""

    failures_per_node_day: float | None = None
    failures_times: float = 1.0
    """Multiple of the rate of failures, stated or known, with its range."""
    recovery_s: float | None = None
    start_s: float | None = None
    write_per_node_bytes_per_s: float | None = None
    compiling: Compiling | None = None
    """Of the graphs of this run, where its software compiles whole graphs."""

    def __post_init__(self) -> None:
        """Refuse impossible numbers."""
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
    """Failures and recoveries of runs on an instance; `spot` is the seller of its spot machines.

    Failures are in proportion to chips, write rates to hosts. A run starts once for each of its
    parts, as each has programs of its own to compile; a restart reads or compiles them again.
    """
    detect, launch, compiled = (
        _known(reliability, name) for name in ("detect_s", "launch_s", "compile_s")
    )
    relaunch = launch
    if stated.compiling is not None:
        compiled, relaunch = stated.compiling.first, _sum(launch, stated.compiling.again)
    failures = _known(reliability, "failures_per_node_day").scaled(
        instance.chips / reliability.node_chips
    )
    write = _known(reliability, "write_per_node_bytes_per_s")
    if instance.host.network_bandwidth_bytes_per_s is not None:
        write = write.capped(instance.host.network_bandwidth_bytes_per_s)
    return Operations(
        failures_per_node_day=_or(stated.failures_per_node_day, failures).scaled(
            stated.failures_times
        ),
        interruptions_per_node_day=_interruptions(spot),
        zone_losses_per_day=_zone_losses(spot),
        available=_sure(1.0) if spot is None else _available(spot),
        recovery_s=_or(stated.recovery_s, _sum(detect, relaunch)),
        reclaimed_recovery_s=(spot.spot.wait_s if spot else 0.0) + relaunch.value,
        launch_s=relaunch.value,
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
    """A number of a data file with the range stated beside it."""
    evidence = provenance.evidence.get(key)
    if evidence is None:
        return _sure(value)
    low = value if evidence.low is None else evidence.low
    high = value if evidence.high is None else evidence.high
    return Estimate(value=value, low=low, high=high, kind=evidence.kind)


def derived(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high, kind=Kind.DERIVED)


def _or(stated: float | None, known: Estimate) -> Estimate:
    return known if stated is None else _sure(stated)


def _sure(value: float) -> Estimate:
    return derived(value, value, value)


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
    # A chance p within a month is a constant rate of -log(1 - p) per month.
    alone = (1 - seller.spot.zone_share) / days
    rates = [-math.log1p(-p) * alone for p in (chance.value, chance.low, chance.high)]
    return Estimate(value=rates[0], low=rates[1], high=rates[2], kind=chance.kind)


def _available(seller: PurchaseRules) -> Estimate:
    return ranged(seller.spot.available, seller.provenance, "spot.available")


def _zone_losses(seller: PurchaseRules | None) -> Estimate:
    """Losses of a zone that is there a share A of the time and away for W: (1 - A) / (A W)."""
    if seller is None or seller.spot.available == 1:
        return _sure(0.0)
    spot, share = seller.spot, _available(seller)
    away = (
        _sure(spot.wait_s)
        if spot.zone_wait_s is None
        else ranged(spot.zone_wait_s, seller.provenance, "spot.zone_wait")
    )
    rate = (1 / share.value - 1) * DAY_S / away.value
    # Share and wait are uncertain by themselves: their distances add in squares, as logarithms.
    odds = [math.log(1 / one - 1) for one in (share.high, share.value, share.low)]
    down = math.hypot(odds[1] - odds[0], math.log(away.high / away.value))
    up = math.hypot(odds[2] - odds[1], math.log(away.value / away.low))
    return Estimate(
        value=rate, low=rate * math.exp(-down), high=rate * math.exp(up), kind=share.kind
    )
