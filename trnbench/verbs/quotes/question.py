"""Question about a whole training run: model, tokens, machines to choose from, purchase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.calibration.compiler import compiler_of
from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.parsing import LEAST_SURE, MOST_SURE
from trnbench.facts.records import MAX_SIZE
from trnbench.facts.units import DAY_S
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money import Commitment, CompileCache
from trnbench.predict.settled import Prefer
from trnbench.verbs.asking.function import signature_of
from trnbench.verbs.asking.knobs import KNOB_OPTIONS
from trnbench.verbs.asking.option import Given
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.asking.run_parts import LENGTH, Part
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.what_if import WhatIf

if TYPE_CHECKING:
    from trnbench.money.failures import Stated
    from trnbench.money.price_terms import PriceTerms
    from trnbench.predict.setup import TrainSetup

MAX_NODES = 512
"""Clusters are looked at up to this size, unless asked otherwise."""
DEADLINE_S = 60 * DAY_S
"""A run without a deadline is to end within so many seconds: else the slowest would be cheapest."""
MAX_AGE_VARIABLE = "TRNBENCH_PRICES_MAX_AGE"

LEAST_FAILURES, MOST_FAILURES = 1e-9, 1000.0
"""Failures of a node in a day: one in three million years, one in a minute and a half."""


PREFER: Any = option(
    "Of layouts within 3 % of the fastest take the fastest or the simplest: fast, simple.",
    default="fast",
)


SENSITIVITY: Any = option("Say how far each input must move before another type is best.")


class StackChoice(Question):
    """Training stack of a job, and how its chips and what it refuses are taken."""

    stack: str | None = option(
        "Training stack, e.g. nxd-trn1 (trnbench spec list calibration), or framework: nxdt, "
        "torchtitan, ...; of single instances: INSTANCE=NAME,...; default: the instance's.",
        completes=("stacks",),
    )
    release: str | None = option(
        "Release of the software, e.g. 2.20; of single instances: INSTANCE=RELEASE,...; without "
        "dated steps it is the newest, in a wider interval; default: the stack's.",
    )
    logical_size: int | None = option(
        "Logical core size on Trainium2 and 3: 1 or 2; default: 2.", name="lnc", read=parsing.whole
    )
    assume_supported: bool = option(
        "Predict layouts that the stack's software refuses as if they ran."
    )

    def setup(self, catalog: Catalog, model: str, instance: str, nodes: int = 1) -> TrainSetup:
        from trnbench.predict.setup import train_setup

        return train_setup(
            catalog,
            model,
            instance,
            nodes,
            stack=_of_instance("--stack", self.stack, instance),
            release=_of_instance("--release", self.release, instance),
            logical_size=self.logical_size,
            assume_supported=self.assume_supported,
        )

    def refuse_strange(self, instances: Sequence[str]) -> None:
        """Refuse a stack or a release of an instance type that is not in question."""
        for option_name, text in (("--stack", self.stack), ("--release", self.release)):
            named = _by_instance(option_name, text) if text is not None and "=" in text else {}
            strange = [one for one in named if one not in instances]
            if strange:
                raise InputError(f"{option_name} names {strange[0]}, which --on does not")


class RunRequest(Question):
    """A run to be bought; what its layout leaves open is chosen.

    `nodes` to look at; none: powers of two up to `max_nodes`, as Capacity Blocks are sold. `sizes`
    are nodes of single instance types, as `--on INSTANCE:NODES` says them.
    `headroom` is the share of a rank's memory to be left free, None as much as may be needed beyond
    the prediction. `confidence`: with which limits are to be kept, None by the estimate. Prices are
    those of `price_date`, on terms as in `PriceTerms`. `failures_per_node_day` and
    `checkpoint_interval_s` replace what the data say. `assume_supported`: what a stack refuses is
    predicted as if it ran.
    """

    model: str = option(
        "A model by name (trnbench workload list models), org/Name or config.json; or FLEET:JOB.",
        default="",
        metavar="MODEL",
        argument=True,
        completes=("models",),
    )
    parts: tuple[Part, ...] = group(LENGTH)
    instances: tuple[str, ...] = option(
        "Instance types to compare, e.g. trn2.48xlarge,p5.48xlarge:16 with a number of nodes "
        "(trnbench spec list instances).",
        name="on",
        metavar="INSTANCE[:NODES],...",
        completes=("instances",),
    )
    nodes: tuple[int, ...] = option(
        "Cluster sizes to try, in nodes, e.g. 16,32.", read=parsing.whole, metavar="N,..."
    )
    max_nodes: int = option(
        f"Without --nodes: try 1, 2, 4 ... up to N nodes; default: {MAX_NODES}.",
        default=MAX_NODES,
        read=parsing.whole,
    )
    layout: PartialLayout = group(KNOB_OPTIONS)
    prefer: Prefer = PREFER
    headroom: float | None = option(
        "Memory per rank to leave free, e.g. 10%; default: the most that reserve and "
        "fragmentation may take.",
        read=parsing.share,
    )
    confidence: float | None = option(
        "Keep deadline and budget with this probability, 50% to 99%; default: by the estimate.",
        read=parsing.confidence,
    )
    software: StackChoice = group(StackChoice)
    supported_only: bool = option("Leave out instances whose training software is out of support.")
    buyable_only: bool = option(
        "Leave out purchases of several Capacity Blocks, and instances without a published price."
    )
    compile_cache: CompileCache = option(
        "Graphs compiled for Trainium: kept for restarts, filled before the first start too, or "
        "lost with each machine.",
        default="kept",
        metavar="kept|filled|lost",
    )
    check_capacity: bool = option(
        "Ask AWS which Capacity Blocks of the rows are on offer now (needs boto3 and credentials)."
    )
    bought: Buying = group(Buying)
    what_if: WhatIf = group(WhatIf)
    term_years: int | None = option(
        "Years of a reservation or savings plan: 1 or 3.", read=parsing.whole
    )
    commitment: Commitment = option(
        "Charge a term whole, or only the run's share of it.",
        default="whole",
        metavar="whole|share",
    )
    keep_checkpoints: str | None = option(
        "Bill the storage of the last N checkpoints: 3@s3-standard or 3@fsx-lustre.",
        metavar="N@STORE",
    )
    max_price_age_s: float | None = option(
        "Warn of rates older than this at the price date: 90d.",
        read=parsing.duration,
        variable=MAX_AGE_VARIABLE,
    )
    failures_per_node_day: float | None = option(
        "Failures per node per day, e.g. 0.005; default: the chip's rate.", metavar="RATE"
    )
    checkpoint_interval_s: float | None = option(
        "Time between checkpoints: 30min; default: the optimum.", read=parsing.duration
    )
    sizes: tuple[tuple[str, int], ...] = ()

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
        self.software.refuse_strange(self.instances)
        if self.headroom is not None and not 0 <= self.headroom < 1:
            raise InputError(f"the memory headroom must be from 0 to below 1: {self.headroom:g}")
        if self.confidence is not None and not LEAST_SURE <= self.confidence <= MOST_SURE:
            raise InputError(
                f"a confidence is from {LEAST_SURE:.0%} to {MOST_SURE:.0%}, "
                f"found {self.confidence:.3g}"
            )
        rate = self.failures_per_node_day
        if rate and not LEAST_FAILURES <= rate <= MOST_FAILURES:
            raise InputError(
                f"--failures-per-node-day {rate:g} is not a failure rate: give 0, or "
                f"{LEAST_FAILURES:g} to {MOST_FAILURES:g}"
            )
        if self.checkpoint_interval_s is not None and not 0 < self.checkpoint_interval_s < math.inf:
            raise InputError("the time between checkpoints must be above 0")

    @property
    def node_counts(self) -> tuple[int, ...]:
        """Every cluster size to look at, whatever the instance type."""
        if self.all_sized:
            return tuple(sorted({nodes for _, nodes in self.sizes}))
        if self.nodes:
            return tuple(sorted(self.nodes))
        return tuple(2**power for power in range(self.max_nodes.bit_length()))

    def counts_of(self, instance: str) -> tuple[int, ...]:
        """Cluster sizes to look at of an instance type, nodes."""
        own = dict(self.sizes).get(instance)
        return self.node_counts if own is None else (own,)

    @property
    def all_sized(self) -> bool:
        """True when every instance type has a number of nodes of its own."""
        return len(self.sizes) == len(self.instances)

    @property
    def stated(self) -> Stated:
        from trnbench.money.failures import Stated

        return Stated(failures_per_node_day=self.failures_per_node_day)

    @classmethod
    def read(cls, given: Given) -> RunRequest:
        """Return the run that options ask for."""
        instances = parsing.names("--on", given["on"]) if given.get("on") else ()
        if not instances:
            raise InputError("on which instances? e.g. --on trn2.48xlarge,p5.48xlarge")
        if given.get("nodes") and given.get("max_nodes") is not None:
            raise InputError("--nodes says it all; leave out --max-nodes")
        places = parsing.clusters(instances)
        sizes = tuple(one for one, text in zip(places, instances, strict=True) if ":" in text)
        if given.get("nodes") and len(sizes) == len(places):
            raise InputError("--on says how many nodes; leave out --nodes")
        return super().read({**given, "on": [name for name, _ in places], "sizes": sizes})

    def settled(self, catalog: Catalog) -> RunRequest:
        """The run with the user's discounts; refuse a cache of graphs that nothing compiles."""
        if self.compile_cache != "kept" and not any(
            compiler_of(catalog, load_instance(catalog, name).chip) for name in self.instances
        ):
            raise InputError(
                f"--compile-cache {self.compile_cache}: nothing is compiled before a run on "
                f"{', '.join(self.instances)}; leave it out"
            )
        return self.but(
            bought=self.bought.used(catalog, self.instances),
            what_if=self.what_if.settled_on(catalog, self.instances),
        )

    def said(self) -> dict[str, Any]:
        """Return the options that ask this again, on any day."""
        said = super().said()
        if self.nodes:
            said.pop("max_nodes", None)
        if self.sizes:
            own = dict(self.sizes)
            said["on"] = ",".join(f"{i}:{own[i]}" if i in own else i for i in self.instances)
        return said

    def inputs(self) -> dict[str, object]:
        plain = super().inputs() | {"nodes": self.node_counts}
        if not self.sizes:
            del plain["sizes"]
        first = ("model", "parts", "instances", "price_date", "setting")
        return {name: plain[name] for name in first} | plain


def _of_instance(option_name: str, text: str | None, instance: str) -> str | None:
    """The text of an instance type; None for its own."""
    if text is None or "=" not in text:
        return text
    return _by_instance(option_name, text).get(instance)


def _by_instance(option_name: str, text: str) -> dict[str, str]:
    """Texts of instance types, from INSTANCE=NAME,..."""
    found: dict[str, str] = {}
    for part in text.split(","):
        instance, equals, name = (word.strip() for word in part.partition("="))
        if not equals or not instance or not name:
            raise InputError(
                f"{option_name} {text}: give INSTANCE=NAME,...; {part.strip()!r} is none"
            )
        if instance in found:
            raise InputError(f"{option_name} {text}: {instance} is named twice")
        found[instance] = name
    return found


def run_request(
    model: str,
    *,
    catalog: Catalog | None = None,
    **options: Any,  # noqa: ANN401
) -> RunRequest:
    return RunRequest.asked(catalog or open_catalog(), {"model": model, **options})


run_request.__signature__ = signature_of(  # type: ignore[attr-defined]
    RunRequest.options(), RunRequest
)


def price_terms(catalog: Catalog, request: RunRequest) -> PriceTerms:
    """Return the checked terms on which the buyer asks for prices."""
    from trnbench.money.price_terms import load_price_terms

    bought = request.bought
    return load_price_terms(
        catalog,
        on=bought.price_date,
        region=bought.region,
        options=bought.purchase,
        discount=bought.discount,
        prices=bought.prices,
        assumptions=bought.assumed_prices,
        term_years=request.term_years,
        commitment=request.commitment,
        kept=request.keep_checkpoints,
        max_age_s=request.max_price_age_s,
        once=request.what_if.once_usd,
        single_block=request.buyable_only,
    )
