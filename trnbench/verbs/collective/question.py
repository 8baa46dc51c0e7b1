"""Question of `collective`: an operation on clusters over sizes, or a suite, and references."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError, UnitError
from trnbench.facts import parsing
from trnbench.facts.parsing import number_text, place_text, size_text
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, parse
from trnbench.facts.workload.choices import Op
from trnbench.program.collective import op_named
from trnbench.verbs.asking.question import Question, option
from trnbench.verbs.asking.shared_options import engine_option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.library import Place
    from trnbench.machine.fabric import LinkFault

MAX_SIZES = 10_000
LARGEST_BYTES = 2.0**60
_USUAL = (2.0**10, 2.0**30, 4.0)
"""Smallest and largest size, bytes, and the factor from one to the next."""
AUTO = "auto"
"""Leaves the algorithm to the stack."""
_FAULT = re.compile(r"(\d{1,9})-(\d{1,9}|net)(?:=(.+))?")


class Neighbour(Record):
    """Another collective that runs at the same time; `groups` as in a question."""

    op: Op
    size_bytes: float
    groups: str | None = None


def sizes_between(smallest: float, largest: float, factor: float) -> tuple[float, ...]:
    """Return sizes from the smallest to the largest, each `factor` times the one before, bytes."""
    if not smallest > 0:
        raise InputError("the smallest size must be positive")
    if largest < smallest:
        ends = f"{size_text(largest)}, is below the smallest, {size_text(smallest)}"
        raise InputError(f"the largest size, {ends}; raise --max-size")
    if largest > LARGEST_BYTES:
        raise InputError("the largest size is above 1 EiB")
    if not 1 < factor < math.inf:
        raise InputError("the factor between sizes must be above 1, and finite")
    if round(smallest) < 1:
        raise InputError("sizes are whole bytes; the smallest must be at least 1 byte")
    count = math.floor(math.log(largest / smallest, factor) + 1e-9) + 1
    if count > MAX_SIZES:
        raise InputError(f"{count:,} sizes are too many; at most {MAX_SIZES:,}: raise the factor")
    return tuple(float(round(smallest * factor**i)) for i in range(count))


def read_place(text: str) -> Place:
    """Return the cluster of INSTANCE or INSTANCE:NODES."""
    from trnbench.facts.workload.library import Place

    instance, nodes = parsing.place("--on")(text)
    return Place(instance=instance, nodes=nodes)


def read_neighbour(text: str) -> Neighbour:
    """Return the collective of OP:SIZE or OP:SIZE:GROUPS."""
    op, _, rest = text.partition(":")
    size, _, groups = rest.partition(":")
    size_bytes = parsing.size("--beside")(size)
    return Neighbour(op=op_named(op), size_bytes=size_bytes, groups=groups or None)


def read_fault(text: str) -> LinkFault:
    """Return the fault of A-B, A-net or A-B=SHARE."""
    from trnbench.machine.fabric import LinkFault

    match = _FAULT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--fail-link: cannot read {text!r}; write A-B, A-net, or A-B=0.5")
    try:
        factor = parse(match[3], Dimension.RATIO) if match[3] else 0.0
    except UnitError as error:
        raise InputError(f"--fail-link: {error.message}") from None
    target = None if match[2] == "net" else int(match[2])
    return LinkFault(source=int(match[1]), target=target, factor=factor)


def neighbour_text(neighbour: Neighbour) -> str:
    groups = f":{neighbour.groups}" if neighbour.groups else ""
    return f"{neighbour.op}:{size_text(neighbour.size_bytes)}{groups}"


def fault_text(fault: LinkFault) -> str:
    target = "net" if fault.target is None else fault.target
    share = f"={number_text(fault.factor)}" if fault.factor else ""
    return f"{fault.source}-{target}{share}"


class CollectiveQuestion(Question):
    """Every operation on every place at every size by every engine.

    `groups`: "16" for consecutive groups of 16 ranks, "16@32" for groups whose ranks are 32 apart,
    or lists such as "0-7;8-15". Default: all ranks in one group. `ops` and `sizes_bytes` are
    there once the question is settled.
    """

    ops: tuple[Op, ...] = ()
    op: Op | None = option(
        "all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, permute or send-receive.",
        metavar="OP",
        argument=True,
        parse=op_named,
    )
    places: tuple[Place, ...] = option(
        "Cluster, e.g. trn2.48xlarge:4.",
        name="on",
        metavar="INSTANCE[:NODES],...",
        parse=read_place,
        write=lambda place: place_text(place.instance, place.nodes),
        several="commas",
        completes=("instances",),
    )
    suite: str | None = option(
        "Collective suite (trnbench workload list collective).", completes=("collective",)
    )
    smallest_bytes: float | None = option(
        "Smallest size; default: 1KiB.", name="min_size", read=parsing.size
    )
    largest_bytes: float | None = option(
        "Largest size; default: 1GiB.", name="max_size", read=parsing.size
    )
    factor: float | None = option(
        "Factor from one size to the next; default: 4.", read=parsing.count, metavar="NUMBER"
    )
    sizes_bytes: tuple[float, ...] = ()
    number_format: str = option(
        "Format of the elements, e.g. bf16.", default="fp32", name="dtype", metavar="FORMAT"
    )
    ranks: int | None = option("Use only the first N ranks; default: all.", read=parsing.whole)
    groups: str | None = option(
        "16: groups of 16 ranks; 16@32: 16 ranks, 32 apart; or lists: 0-7;8-15.", metavar="GROUPS"
    )
    logical_size: int | None = option(
        "Logical core size on Trainium2 and 3: 1 or 2; default: 2.", name="lnc", read=parsing.whole
    )
    algorithm: str = option(
        "auto, or ring, kangaring, halving, mesh, ... hierarchical:INNER:OUTER.", default=AUTO
    )
    stack: str | None = option(
        "Communication stack, e.g. collective-neuron-trn2; default: the instance's.",
        completes=("links",),
    )
    engines: tuple[str, ...] = engine_option(
        "analytic, simulated message by message (emulate), or both."
    )
    faults: tuple[LinkFault, ...] = option(
        "The link between chips A and B (or A-net) is dead, or keeps a share of speed.",
        name="fail_link",
        metavar="A-B[=SHARE]",
        parse=read_fault,
        write=fault_text,
        several="repeated",
    )
    beside: tuple[Neighbour, ...] = option(
        "Play another collective at the same time (repeatable; --engine emulate).",
        metavar="OP:SIZE[:GROUPS]",
        parse=read_neighbour,
        write=neighbour_text,
        several="repeated",
    )
    links: bool = option("Show how busy links are.")
    check: bool = option("Move real data and check every rank.")
    seed: int | None = option("With --check: seed of the data.")
    trace: bool = option("Keep what was played.", shown=False)

    def __post_init__(self) -> None:
        """Refuse options that do not go together."""
        if self.seed is not None and not self.check:
            raise InputError("--seed acts on the data of --check")
        if self.seed is not None and self.seed < 0:
            raise InputError("--seed must not be negative")
        if self.beside and "emulate" not in self.engines:
            raise InputError(
                "--beside simulates collectives at once; it needs --engine emulate or both"
            )

    def settled(self, catalog: Catalog) -> CollectiveQuestion:
        """Return the question with its operations and sizes, and what a suite brings."""
        if (self.op is None) == (self.suite is None):
            raise InputError(
                "give an operation (such as all-reduce) or --suite NAME, one of the two"
            )
        ends = (self.smallest_bytes, self.largest_bytes, self.factor)
        if self.suite is not None:
            from trnbench.facts.workload.library import load_collective_suite

            if self.places or any(end is not None for end in ends):
                raise InputError(
                    "a suite brings its own places and sizes; leave out --on and sizes"
                )
            suite = load_collective_suite(catalog, self.suite)
            sizes = sizes_between(suite.min_size_bytes, suite.max_size_bytes, suite.factor)
            return self.but(ops=suite.operations, places=suite.places, sizes_bytes=sizes)
        if not self.places:
            raise InputError("on which instance? e.g. --on trn2.48xlarge or trn2.48xlarge:4")
        smallest, largest, factor = (
            usual if given is None else given for given, usual in zip(ends, _USUAL, strict=True)
        )
        return self.but(ops=(self.op,), sizes_bytes=sizes_between(smallest, largest, factor))

    def said(self) -> dict[str, Any]:
        said = super().said()
        return {**said, "on": None} if self.suite else said

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data; `suite` and ends are told by operations and sizes."""
        plain = super().inputs()
        for name in ("op", "suite", "smallest_bytes", "largest_bytes", "factor"):
            del plain[name]
        return plain | {
            "places": [f"{place.instance}:{place.nodes}" for place in self.places],
            "algorithm": None if self.algorithm == AUTO else self.algorithm,
            "faults": [f"{f.source}-{f.target}={f.factor}" for f in self.faults],
            "beside": [f"{n.op}:{n.size_bytes:.0f}:{n.groups or ''}" for n in self.beside],
            "seed": self.seed or 0,
        }


class CollectiveShowing(Question):
    """Columns and other files of an answer on collectives."""

    trace: Path | None = option("Write a Perfetto trace of the messages.", metavar="FILE")
    plot: bool = option("Draw bus bandwidth over size.")
