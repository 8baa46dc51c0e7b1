"""How a provider sells machines: what it charges for, what it sells in blocks, what it limits."""

from __future__ import annotations

import datetime
from typing import Annotated

from trnbench.errors import UnknownNameError
from trnbench.facts.catalog.document import load_named
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, Ratio, Seconds
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Instance, PurchaseOption
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension

Usd = Annotated[float, Dimension.USD]


class MeteredRules(Record):
    """What is charged by use: started units of `step`, at least `minimum`."""

    step_s: Seconds
    minimum_s: Seconds

    def __post_init__(self) -> None:
        """Refuse a step of nothing."""
        if self.step_s <= 0:
            raise ValueError("`step` must be above 0")


class CommitmentRules(Record):
    """Reserved instances and savings plans: paid for a term whether used or not.

    `years` are the terms on offer; a `year` is as long as its rate is charged for.
    """

    years: tuple[int, ...]
    year_s: Seconds

    def __post_init__(self) -> None:
        """Refuse to sell nothing."""
        if not self.years or min(self.years) < 1 or self.year_s <= 0:
            raise ValueError("expected terms of at least a year, and a `year` above 0")


class BlockRules(Record):
    """Capacity Blocks: a number of machines for a number of days, paid whole.

    Whole days up to `single_days_to`, then multiples of `step_days` up to `longest_days`. A block
    has one of `sizes` machines, all blocks of a day together at most `most`. Machines are taken
    away `ends_early` before the end. A block is sold at most `ahead` before it starts.
    """

    single_days_to: int
    step_days: int
    longest_days: int
    sizes: tuple[int, ...]
    most: int | None = None
    ends_early_s: Seconds
    ahead_s: Seconds

    def __post_init__(self) -> None:
        """Refuse rules under which nothing can be bought."""
        if not 1 <= self.single_days_to <= self.longest_days or self.step_days < 1:
            raise ValueError("expected 1 <= `single_days_to` <= `longest_days`, `step_days` >= 1")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError("`sizes` must be whole numbers from 1 on")
        if self.most is not None and self.most < min(self.sizes):
            raise ValueError("`most` is below the smallest of `sizes`")

    @property
    def durations_days(self) -> tuple[int, ...]:
        """Every length a block may have, ascending."""
        single = range(1, self.single_days_to + 1)
        first = (self.single_days_to // self.step_days + 1) * self.step_days
        return (*single, *range(first, self.longest_days + 1, self.step_days))


class SpotRules(Record):
    """Spare machines: how often they are taken back, and how long until there are others.

    `reclaimed_per_month`: the chance that one machine is taken back within a `month`, and
    `zone_share` the part of these in which its whole zone is. `wait` passes until there is another
    machine, `zone_wait` until there is a zone again; the same where it is not said.
    """

    reclaimed_per_month: Ratio
    month_s: Seconds
    notice_s: Seconds
    wait_s: Seconds
    zone_share: Ratio = 0.0
    zone_wait_s: Seconds | None = None

    def __post_init__(self) -> None:
        """Refuse machines that are certain to be taken back."""
        if self.reclaimed_per_month >= 1:
            raise ValueError("`reclaimed_per_month` must be below 1")


class Quota(Record):
    """A limit on virtual processors per region that has to be raised before the purchase.

    It counts the instance types whose names begin with one of `families`.
    """

    name: str
    code: str
    options: tuple[PurchaseOption, ...]
    families: tuple[str, ...]


class PriceChange(Record):
    """Rates that change on a day, as announced: options and families as in a quota."""

    on: datetime.date
    options: tuple[PurchaseOption, ...]
    families: tuple[str, ...]
    words: str


class Storage(Record):
    """A store for checkpoints: `price` of `size` kept for a `period`."""

    name: str
    price_usd: Usd
    size_bytes: Bytes
    period_s: Seconds


class PurchaseRules(Sourced):
    """The rules of one provider.

    `regions` are looked at, in this order, where nobody names a region.
    """

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    regions: tuple[str, ...]
    metered: MeteredRules
    commitment: CommitmentRules
    block: BlockRules
    ultraserver_block: BlockRules
    spot: SpotRules
    quota: tuple[Quota, ...] = ()
    change: tuple[PriceChange, ...] = ()
    storage: tuple[Storage, ...] = ()

    def block_of(self, instance: Instance) -> BlockRules:
        """Return the rules for blocks of an instance: an UltraServer has its own."""
        return self.ultraserver_block if instance.hosts > 1 else self.block


def load_purchase_rules(catalog: Catalog, provider: str) -> PurchaseRules | None:
    """Return the rules of a provider by name or alias; None where it sells nothing by the hour."""
    try:
        return load_named(catalog, "purchase", provider, PurchaseRules)
    except UnknownNameError:
        return None
