"""What is asked of a whole training run: model, tokens, machines to choose from, how bought."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any

from trnbench import parsing
from trnbench.app.knobs import layout_of
from trnbench.app.run_parts import Part, parts_of, shown_part
from trnbench.app.use_case import takes_options_of
from trnbench.catalog.search import Catalog, open_catalog
from trnbench.errors import InputError
from trnbench.parsing import LEAST_SURE, MOST_SURE, maybe, names, read
from trnbench.plan.failures import Stated
from trnbench.plan.price_terms import (
    Commitment,
    PriceTerms,
    load_price_terms,
    parse_assumption,
    parse_own_price,
)
from trnbench.records import Record, field, fields, replace
from trnbench.units import DAY_S, Dimension, parse
from trnbench.workload.partial_layout import PartialLayout
from trnbench.workload.sizes import MAX_SIZE

MAX_NODES = 512
"""Clusters are looked at up to this size, unless asked otherwise."""
DEADLINE_S = 60 * DAY_S
"""A run without a deadline is to end within so many seconds: else the slowest would be cheapest."""

USUAL_MODEL = "llama3.1-70b"
USUAL_TOKENS = 2e12
USUAL_INSTANCES = (
    *("trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "p5.48xlarge"),
)
"""The run that is compared where nobody says which, and between which instance types."""


class RunRequest(Record):
    """A run to be bought; what its layout leaves open is chosen.

    `nodes` to look at; none: powers of two up to `max_nodes`, as Capacity Blocks are sold.
    `headroom` is the share of a rank's memory to be left free, None as much as may be needed beyond
    the prediction. `confidence`: with which limits are to be kept, None by the estimate. Prices are
    those of `price_date`, on terms as in `PriceTerms`. `failures_per_node_day` and
    `checkpoint_interval_s` replace what the data say. `assume_supported`: what a stack refuses is
    predicted as if it ran.
    """

    model: str
    parts: tuple[Part, ...]
    instances: tuple[str, ...]
    price_date: datetime.date
    layout: PartialLayout = field(default_factory=PartialLayout)
    nodes: tuple[int, ...] = ()
    max_nodes: int = MAX_NODES
    headroom: float | None = None
    confidence: float | None = None
    stack: str | None = None
    logical_size: int | None = None
    assume_supported: bool = False
    purchase: tuple[str, ...] = ()
    region: str | None = None
    discount: float = 0.0
    prices: tuple[str, ...] = ()
    assumed_prices: tuple[str, ...] = ()
    term_years: int | None = None
    commitment: Commitment = "whole"
    keep_checkpoints: str | None = None
    max_price_age_s: float | None = None
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
        if self.headroom is not None and not 0 <= self.headroom < 1:
            raise InputError(f"the memory headroom must be from 0 to below 1: {self.headroom:g}")
        if self.confidence is not None and not LEAST_SURE <= self.confidence <= MOST_SURE:
            raise InputError(
                f"a confidence is from {LEAST_SURE:.0%} to {MOST_SURE:.0%}, "
                f"found {self.confidence:.3g}"
            )
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


@takes_options_of(layout_of)
def run_request(
    model: str,
    *,
    tokens: float | str | None = None,
    samples: float | str | None = None,
    phase: str | Sequence[str] = (),
    on: str | Sequence[str] = (),
    nodes: int | str | Sequence[int | str] = (),
    max_nodes: int | str | None = None,
    headroom: float | str | None = None,
    confidence: float | str | None = None,
    stack: str | None = None,
    lnc: int | str | None = None,
    assume_supported: bool = False,
    purchase: str | Sequence[str] = (),
    region: str | None = None,
    price_date: datetime.date | str | None = None,
    discount: float | str | None = None,
    price: str | Sequence[str] = (),
    assume_price: str | Sequence[str] = (),
    term_years: int | str | None = None,
    commitment: Commitment = "whole",
    keep_checkpoints: str | None = None,
    max_price_age: float | str | None = None,
    failures_per_node_day: float | str | None = None,
    checkpoint_interval: float | str | None = None,
    catalog: Catalog | None = None,
    **knobs: Any,  # noqa: ANN401
) -> RunRequest:
    """Return the run that options of the command line ask for; today's prices unless dated."""
    instances = names("--on", on) if on else ()
    if not instances:
        raise InputError("on which instances? e.g. --on trn2.48xlarge,p5.48xlarge")
    if any(":" in name for name in instances):
        raise InputError("--on takes instance types only; give numbers of nodes with --nodes")
    counts = names("--nodes", (nodes,) if isinstance(nodes, int) else nodes) if nodes else ()
    if counts and max_nodes is not None:
        raise InputError("--nodes says it all; leave out --max-nodes")
    run = RunRequest(
        model=model,
        parts=parts_of(tokens, samples, parsing.texts(phase)),
        instances=instances,
        price_date=maybe(parsing.date("--price-date"), price_date) or today(),
        layout=layout_of(**knobs),
        nodes=tuple(read(parsing.whole("--nodes"), count) for count in counts),
        max_nodes=maybe(parsing.whole("--max-nodes"), max_nodes) or MAX_NODES,
        headroom=maybe(parsing.share("--headroom"), headroom),
        confidence=maybe(parsing.confidence("--confidence"), confidence),
        stack=stack,
        logical_size=maybe(parsing.whole("--lnc"), lnc),
        assume_supported=assume_supported,
        purchase=names("--purchase", purchase) if purchase else (),
        region=region,
        discount=maybe(parsing.share("--discount"), discount) or 0.0,
        prices=parsing.texts(price),
        assumed_prices=parsing.texts(assume_price),
        term_years=maybe(parsing.whole("--term-years"), term_years),
        commitment=parsing.literal("commitment", commitment, Commitment),
        keep_checkpoints=keep_checkpoints,
        max_price_age_s=maybe(parsing.duration("--max-price-age"), max_price_age),
        failures_per_node_day=_rate(failures_per_node_day),
        checkpoint_interval_s=maybe(parsing.duration("--checkpoint-interval"), checkpoint_interval),
    )
    return _with_used_prices(catalog or open_catalog(), run)


LEAST_FAILURES, MOST_FAILURES = 1e-9, 1000.0
"""Failures of a node in a day: one in three million years, one in a minute and a half."""


def _rate(given: float | str | None) -> float | None:
    rate = maybe(lambda text: parse(text, Dimension.COUNT), given)
    if rate and not LEAST_FAILURES <= rate <= MOST_FAILURES:
        raise InputError(
            f"--failures-per-node-day {rate:g} is no rate of machines: give 0, or "
            f"{LEAST_FAILURES:g} to {MOST_FAILURES:g}"
        )
    return rate


def today() -> datetime.date:
    """Return today by universal time: prices are as of it unless dated."""
    return datetime.datetime.now(tz=datetime.UTC).date()


IF_ASKED = "?"
"""Ends an own price that counts only where its instance is asked about, as those of a file do."""


def _with_used_prices(catalog: Catalog, run: RunRequest) -> RunRequest:
    """Return a run with the prices of its instances; refuse others, unless they are for any run."""
    compared = {catalog.find("instances", name).name for name in run.instances}
    prices = [text.removesuffix(IF_ASKED) for text in run.prices]
    own = [parse_own_price(text)[0] for text in prices]
    used = [catalog.find("instances", name).name in compared for name in own]
    asked = zip(run.prices, own, strict=True)
    given = [("--price", name) for text, name in asked if not text.endswith(IF_ASKED)]
    given += [("--assume-price", parse_assumption(text)[0]) for text in run.assumed_prices]
    for option, name in given:
        if catalog.find("instances", name).name not in compared:
            raise InputError(f"{option} names {name}, which is not among --on")
    return replace(
        run, prices=tuple(text for text, known in zip(prices, used, strict=True) if known)
    )


def price_terms(catalog: Catalog, request: RunRequest) -> PriceTerms:
    """Return the checked terms on which the buyer asks for prices."""
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
        max_age_s=request.max_price_age_s,
    )


def inputs_of(request: RunRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    keys = {"layout": "setting"}
    plain = {keys.get(one.name, one.name): getattr(request, one.name) for one in fields(request)}
    return plain | {
        "parts": [shown_part(part) for part in request.parts],
        "nodes": request.node_counts,
        "price_date": request.price_date.isoformat(),
        "setting": dict(request.layout.said),
    }
