"""What is asked of a whole training run: model, tokens, machines to choose from, how bought."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field, fields

from trnbench.catalog.search import Catalog
from trnbench.errors import InputError
from trnbench.plan.failures import Stated
from trnbench.plan.price_terms import Commitment, PriceTerms, load_price_terms
from trnbench.units import DAY_S
from trnbench.workload.partial_layout import PartialLayout
from trnbench.workload.sizes import MAX_SIZE

MAX_NODES = 512
"""Clusters are looked at up to this size, unless asked otherwise."""
DEADLINE_S = 60 * DAY_S
"""A run without a deadline is to end within so many seconds: else the slowest would be cheapest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a run: so many tokens or samples, in sequences of one length or the usual one."""

    tokens: float | None = None
    samples: float | None = None
    sequence: int | None = None

    def __post_init__(self) -> None:
        """Refuse a part of nothing, or one counted twice."""
        if (self.tokens is None) == (self.samples is None):
            raise InputError("say how long the run is: tokens or samples, one of the two")
        for name in ("tokens", "samples"):
            amount = getattr(self, name)
            if amount is not None and not 0 < amount < math.inf:
                raise InputError(f"{name} must be above 0, found {amount:g}")
        if self.sequence is not None and not 1 <= self.sequence < MAX_SIZE:
            raise InputError(
                f"a sequence must be from 1 to {MAX_SIZE - 1:,} tokens, found {self.sequence:,}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run to be bought; what its layout leaves open is chosen.

    `nodes` to look at; none: powers of two up to `max_nodes`, as Capacity Blocks are sold.
    `headroom` is the share of a rank's memory to be left free. Prices are those of `price_date`, on
    terms as in `PriceTerms`. `failures_per_node_day` and `checkpoint_interval_s` replace what the
    data say.
    """

    model: str
    parts: tuple[Part, ...]
    instances: tuple[str, ...]
    price_date: datetime.date
    layout: PartialLayout = field(default_factory=PartialLayout)
    nodes: tuple[int, ...] = ()
    max_nodes: int = MAX_NODES
    headroom: float = 0.0
    stack: str | None = None
    logical_size: int | None = None
    purchase: tuple[str, ...] = ()
    region: str | None = None
    discount: float = 0.0
    prices: tuple[str, ...] = ()
    assumed_prices: tuple[str, ...] = ()
    term_years: int | None = None
    commitment: Commitment = "whole"
    keep_checkpoints: str | None = None
    failures_per_node_day: float | None = None
    checkpoint_interval_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a run of no parts or on no machines, and numbers that cannot be."""
        if not self.parts or not self.instances:
            raise InputError("a run needs a length and an instance type to run on")
        for count in (*self.nodes, self.max_nodes):
            if not 1 <= count < MAX_SIZE:
                raise InputError(f"nodes must be from 1 to {MAX_SIZE - 1:,}, found {count:,}")
        for many, what in ((self.instances, "instance"), (self.nodes, "number of nodes")):
            twice = [one for one in many if many.count(one) > 1]
            if twice:
                raise InputError(f"the {what} {twice[0]} is named twice")
        if not 0 <= self.headroom < 1:
            raise InputError(f"the memory headroom must be from 0 to below 1: {self.headroom:g}")
        if self.checkpoint_interval_s is not None and not 0 < self.checkpoint_interval_s < math.inf:
            raise InputError("the time between checkpoints must be above 0")

    @property
    def node_counts(self) -> tuple[int, ...]:
        """The numbers of nodes looked at, ascending."""
        if self.nodes:
            return tuple(sorted(self.nodes))
        return tuple(2**power for power in range(self.max_nodes.bit_length()))

    @property
    def stated(self) -> Stated:
        """What the user knows better than the data."""
        return Stated(failures_per_node_day=self.failures_per_node_day)


def price_terms(catalog: Catalog, request: RunRequest) -> PriceTerms:
    """Return how the buyer asks for prices, checked."""
    return load_price_terms(
        catalog,
        on=request.price_date,
        region=request.region,
        options=request.purchase,
        discount=request.discount,
        prices=request.prices,
        assumptions=request.assumed_prices,
        term_years=request.term_years,
        commitment=request.commitment,
        kept=request.keep_checkpoints,
    )


def inputs_of(request: RunRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    keys = {"layout": "setting"}
    plain = {keys.get(one.name, one.name): getattr(request, one.name) for one in fields(request)}
    return plain | {
        "parts": [
            {one.name: getattr(part, one.name) for one in fields(part)} for part in request.parts
        ],
        "nodes": request.node_counts,
        "price_date": request.price_date.isoformat(),
        "setting": dict(request.layout.given),
    }
