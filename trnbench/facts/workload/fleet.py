"""A fleet as its file describes it: jobs, when and on what they may run, and what limits them.

    name = "two-teams"
    title = "..."
    starts_on = 2027-01-04
    horizon = "90 d"

    [[job]]
    name = "chat"
    model = "llama3.1-8b"
    tokens = "300B"
    deadline = 2027-03-01
    on = ["trn1.32xlarge", "trn2.48xlarge"]

Quantities are texts as on the command line. It is a question, so nothing in it needs a source.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Literal

from trnbench.facts.catalog.document import load_question
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Seconds, Usd
from trnbench.facts.records import Record, field
from trnbench.facts.units import DAY_S

FIRST_YEAR, LAST_YEAR = 1970, 2200
LONGEST_DAYS = 3 * 366


class JobEntry(Record):
    """A training run of a fleet; unset fields are chosen by the planner.

    The length is `tokens`, `samples`, or `phases` with their own contexts and knobs (1.9T@8192, or
    in % of `tokens`). `on`, `nodes`, `max_nodes` and `purchase` override those of the fleet.
    """

    name: str
    model: str
    tokens: str | None = None
    samples: str | None = None
    phases: tuple[str, ...] = ()
    deadline: datetime.date | None = None
    """Last day of the run; alternatively `within_s` after the first day of the fleet."""
    within_s: Seconds | None = None
    earliest: datetime.date | None = None
    priority: int = 1
    on: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    max_nodes: int | None = None
    purchase: tuple[str, ...] = ()
    spot_shares: tuple[float, ...] = ()
    """Allowed shares of spot machines among the nodes."""
    stack: str | None = None
    layout: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.tokens is not None or bool(self.phases)) == (self.samples is not None):
            raise ValueError("expected one of `tokens`, `samples` and `phases`")
        if self.deadline is not None and self.within_s is not None:
            raise ValueError("`deadline` and `within` say the same; give one")
        if self.priority < 1:
            raise ValueError("`priority` is a whole number from 1 on; more is more important")
        if self.nodes and self.max_nodes is not None:
            raise ValueError("`nodes` says it all; leave out `max_nodes`")
        if any(not 0 < share <= 1 for share in self.spot_shares):
            raise ValueError("`spot_shares` are above 0 and at most 1")


class MonthBudget(Record):
    """Spending limit of a month (2027-01)."""

    month: str
    usd: Usd

    def __post_init__(self) -> None:
        try:
            datetime.date.fromisoformat(f"{self.month}-01")
        except ValueError:
            raise ValueError(f"`month` {self.month!r} is not one such as 2027-01") from None


class NodeQuota(Record):
    """Most simultaneous nodes of an instance type; in a region and for options, if named."""

    instance: str
    nodes: int
    region: str | None = None
    purchase: tuple[str, ...] = ()


class HeldCommitment(Record):
    """Machines committed to and paid for between two days, used or not."""

    instance: str
    region: str
    nodes: int
    purchase: Literal["reserved", "savings-plan", "capacity-block"] = "reserved"
    starts_on: datetime.date
    ends_on: datetime.date

    def __post_init__(self) -> None:
        if self.ends_on <= self.starts_on or self.nodes < 1:
            raise ValueError("expected `ends_on` after `starts_on`, and a node or more")


class BlockOnOffer(Record):
    """Capacity Blocks on offer."""

    instance: str
    region: str
    size: int
    """Nodes of a block."""
    days: int
    starts_on: tuple[datetime.date, ...]
    count: int = 1
    """Blocks from each start day."""
    usd: Usd | None = None
    """Price of a whole block; None: the price list's."""

    def __post_init__(self) -> None:
        if min(self.size, self.days, self.count) < 1 or not self.starts_on:
            raise ValueError("`size`, `days` and `count` are 1 or more, with days to start on")


class FleetFile(Sourced):
    """A fleet: jobs, horizon, limits and existing commitments."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    starts_on: datetime.date
    horizon_s: Seconds
    objective: Literal["cost", "time", "pareto"] = "cost"
    """Least cost, earliest end of the last job, or the trade-off of both."""
    budget: Usd | None = None
    month: tuple[MonthBudget, ...] = ()
    on: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    max_nodes: int | None = None
    purchase: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    """Regions to choose from; empty: the cheapest of the provider's defaults."""
    price_date: datetime.date | None = None
    """From here to `term_years`: as on the command line."""
    discount: str | None = None
    prices: tuple[str, ...] = ()
    assumed_prices: tuple[str, ...] = ()
    term_years: int | None = None
    confidence: str | None = None
    """Probability of meeting deadlines; None: by the estimate."""
    job: tuple[JobEntry, ...] = ()
    quota: tuple[NodeQuota, ...] = ()
    commitment: tuple[HeldCommitment, ...] = ()
    block: tuple[BlockOnOffer, ...] = ()

    def __post_init__(self) -> None:
        for what, names in (
            ("job", [job.name for job in self.job]),
            ("month", [budget.month for budget in self.month]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"the {what} {twice[0]!r} is given twice")
        if not 1 <= self.horizon_days <= LONGEST_DAYS:
            raise ValueError(f"`horizon` is from 1 to {LONGEST_DAYS} days")
        if not FIRST_YEAR <= self.starts_on.year <= LAST_YEAR:
            raise ValueError(f"`starts_on` is in the years {FIRST_YEAR} to {LAST_YEAR}")

    @property
    def horizon_days(self) -> int:
        return int(self.horizon_s // DAY_S)

    def day(self, on: datetime.date) -> int:
        return (on - self.starts_on).days


def read_fleet(path: Path) -> FleetFile:
    return load_question(path, FleetFile)
