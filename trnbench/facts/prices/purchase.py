"""Purchase rules of a provider: billing units, blocks, spot interruptions, quotas."""

from __future__ import annotations

import datetime

from trnbench.errors import UnknownNameError
from trnbench.facts.catalog.document import load_named
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, Ratio, Seconds, Usd
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Instance, PurchaseOption
from trnbench.facts.records import Record


class MeteredRules(Record):
    """Billing by use, in started units of `step_s`, at least `minimum_s`."""

    step_s: Seconds
    minimum_s: Seconds

    def __post_init__(self) -> None:
        if self.step_s <= 0:
            raise ValueError("`step` must be above 0")


class CommitmentRules(Record):
    """Reserved instances and savings plans: paid for a term, used or not."""

    years: tuple[int, ...]
    year_s: Seconds
    """Billed length of a year."""

    def __post_init__(self) -> None:
        if not self.years or min(self.years) < 1 or self.year_s <= 0:
            raise ValueError("expected terms of at least a year, and a `year` above 0")


class BlockRules(Record):
    """Capacity Blocks: a number of machines for a number of days, paid whole."""

    single_days_to: int
    """Blocks of whole days up to here, then multiples of `step_days` to `longest_days`."""
    step_days: int
    longest_days: int
    sizes: tuple[int, ...]
    """Allowed machines per block."""
    most: int | None = None
    """The most machines of all blocks on one day."""
    ends_early_s: Seconds
    """Machines are taken back this long before the end."""
    ahead_s: Seconds
    """Longest time between purchase and start."""

    def __post_init__(self) -> None:
        if not 1 <= self.single_days_to <= self.longest_days or self.step_days < 1:
            raise ValueError("expected 1 <= `single_days_to` <= `longest_days`, `step_days` >= 1")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError("`sizes` must be whole numbers from 1 on")
        if self.most is not None and self.most < min(self.sizes):
            raise ValueError("`most` is below the smallest of `sizes`")

    @property
    def durations_days(self) -> tuple[int, ...]:
        """Every allowed length of a block, ascending."""
        single = range(1, self.single_days_to + 1)
        first = (self.single_days_to // self.step_days + 1) * self.step_days
        return (*single, *range(first, self.longest_days + 1, self.step_days))


class SpotRules(Record):
    """Interruption rates of spot machines, and the wait for replacements."""

    reclaimed_per_month: Ratio
    """Probability that one machine is taken back within a month."""
    month_s: Seconds
    notice_s: Seconds
    wait_s: Seconds
    zone_share: Ratio = 0.0
    """Share of a machine's interruptions that hit its whole zone; the rest come one by one."""
    zone_wait_s: Seconds | None = None
    """Mean time in which a zone has no machines; `wait_s` if unset."""
    available: Ratio = 1.0
    """Share of the time in which a zone has all machines that are asked for."""
    known_of: tuple[str, ...] | None = None
    """Prefixes of the types of whose spot machines anything was published; None for all."""

    def __post_init__(self) -> None:
        if not 0 < self.available <= 1:
            raise ValueError("`available` must be above 0 and at most 1")
        if self.reclaimed_per_month >= 1:
            raise ValueError("`reclaimed_per_month` must be below 1")


class Quota(Record):
    """A limit on virtual processors per region, to be raised before the purchase."""

    name: str
    code: str
    options: tuple[PurchaseOption, ...]
    families: tuple[str, ...]
    """Prefixes of the instance types that count."""


class PriceChange(Record):
    """An announced change of rates on a day; options and families as in a quota."""

    on: datetime.date
    options: tuple[PurchaseOption, ...]
    families: tuple[str, ...]
    words: str


class SeenType(Record):
    """An instance type whose name was read somewhere, without sizes or a price."""

    names: tuple[str, ...]
    seen_in: str


class Storage(Record):
    """A store for checkpoints: `price_usd` for `size_bytes` over `period_s`."""

    name: str
    price_usd: Usd
    size_bytes: Bytes
    period_s: Seconds


class PurchaseRules(Sourced):
    """The rules of one provider."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    regions: tuple[str, ...]
    """Default regions, in order of preference."""
    metered: MeteredRules
    commitment: CommitmentRules
    block: BlockRules
    ultraserver_block: BlockRules
    spot: SpotRules
    quota: tuple[Quota, ...] = ()
    change: tuple[PriceChange, ...] = ()
    storage: tuple[Storage, ...] = ()
    seen: tuple[SeenType, ...] = ()
    """Types that are not in the catalogue; asking for one says what is known."""

    def block_of(self, instance: Instance) -> BlockRules:
        """Rules for blocks of an instance; UltraServers have their own."""
        return self.ultraserver_block if instance.hosts > 1 else self.block


def load_purchase_rules(catalog: Catalog, provider: str) -> PurchaseRules | None:
    """Rules of a provider by name or alias; None for providers without hourly sales."""
    try:
        return load_named(catalog, "purchase", provider, PurchaseRules)
    except UnknownNameError:
        return None
