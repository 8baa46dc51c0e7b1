"""Calibration of a communication stack: its costs on the links, and its choice of algorithm.

One file per stack (library, version and settings on one fabric generation). Both engines use the
same record, and a prediction names it. Selection is a table whose first matching rule wins.
"""

from __future__ import annotations

from typing import Literal, get_args

from trnbench.errors import UnknownNameError
from trnbench.facts.calibration.transfer import HANDED_ON, stack_file, widened
from trnbench.facts.catalog.document import load_named, load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, Ratio, Seconds
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import Op

# Stacks share their folder with other calibrations; their names begin with this.
FILE_PREFIX = "collective-"
STACK_KEYS = ("instances",)
"""Keys under which a stack may list an instance that uses it."""

AlgorithmName = Literal[
    "ring",
    "two-level-ring",
    "kangaring",
    "halving",
    "folded-halving",
    "mesh",
    "single-step-mesh",
    "direct",
    "tree",
    "in-switch",
    "hierarchical",
]
ALGORITHM_NAMES: tuple[AlgorithmName, ...] = get_args(AlgorithmName)


class Tuning(Record):
    """One protocol of a stack: its costs, and the share of each link's speed reached."""

    launch_s: Seconds
    """Cost per collective, s."""
    step_s: Seconds
    """Software time per round inside a node, on top of the link's latency, s."""
    network_step_s: Seconds
    """Software time per round across the network, s."""
    message_s: Seconds
    """Cost of each further message of a rank in one round, s."""
    on_chip: Ratio
    """Reached share of the speed of links on a chip."""
    link: Ratio
    """Reached share of the speed of links between chips."""
    network: Ratio
    """Reached share of the speed of links between nodes."""
    chunk_bytes: Bytes
    """Chunk size, bytes, of multi-level collectives, whose levels overlap."""
    chunks: int
    """The most chunks of one collective."""
    reduce_touches: float
    """Reads and writes of device memory per byte summed."""
    slices: int
    """Slices of a message, whose transfers overlap with their sums."""
    pieces: int
    """Pipeline steps of a tree, chain or switch."""

    def __post_init__(self) -> None:
        for name in ("on_chip", "link", "network"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be above 0 and at most 1")
        for name in ("chunks", "slices", "pieces"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1")


class Rule(Record):
    """A row of the selection table: all given conditions must hold."""

    algorithm: AlgorithmName
    inner: AlgorithmName | None = None
    outer: AlgorithmName | None = None
    tuning: str
    ops: tuple[Op, ...] = ()
    nodes_from: int | None = None
    nodes_to: int | None = None
    ranks_from: int | None = None
    ranks_to: int | None = None
    below_bytes: Bytes | None = None
    """Size limit, bytes, exclusive."""
    below_per_node_bytes: Bytes | None = None
    """Size limit per node of the group, bytes."""

    def fits(self, op: str, nodes: int, ranks: int) -> bool:
        """True when the conditions on the operation and the group hold."""
        return (
            (not self.ops or op in self.ops)
            and (self.nodes_from is None or nodes >= self.nodes_from)
            and (self.nodes_to is None or nodes <= self.nodes_to)
            and (self.ranks_from is None or ranks >= self.ranks_from)
            and (self.ranks_to is None or ranks <= self.ranks_to)
        )

    def limit_bytes(self, nodes: int) -> float:
        """Size, bytes, from which on the rule no longer applies."""
        limits = []
        if self.below_bytes is not None:
            limits.append(self.below_bytes)
        if self.below_per_node_bytes is not None:
            limits.append(self.below_per_node_bytes * nodes)
        return min(limits, default=float("inf"))


class CollectiveStack(Sourced):
    """A communication stack on one fabric generation."""

    name: str
    title: str
    instances: tuple[str, ...]
    inherits_from: str | None = None
    """Stack whose numbers fill the gaps between own measurements."""
    begun_as: str | None = None
    """Stack whose numbers a fit to the user's rows started from."""
    fitted_rows: tuple[str, ...] = ()
    """Sources of the fitted rows: pattern of the file names, a colon, and the rows."""
    choice: Literal["table", "fastest"] = "table"
    """True when `rules` are a table of sizes, or name the algorithms of which the fastest runs."""
    default_tuning: str
    tunings: dict[str, Tuning]
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        for name in (self.default_tuning, *(rule.tuning for rule in self.rules)):
            if name not in self.tunings:
                tunings = ", ".join(self.tunings)
                raise ValueError(f"no tuning {name!r}; known: {tunings}")

    def tuning(self, name: str) -> Tuning:
        if name not in self.tunings:
            raise UnknownNameError("tuning", name, self.tunings, where=self.name)
        return self.tunings[name]

    @property
    def remark(self) -> str | None:
        """Warning where no table of sizes is known; None where one is."""
        if self.choice == "table":
            return None
        return (
            f"{self.name} has no table of algorithms for these switches: the fastest is taken, "
            "an upper bound of a tuned library"
        )

    def tuning_for(self, algorithm: str) -> str:
        """Tuning of an algorithm: its last rule's, or the default."""
        named = [rule.tuning for rule in self.rules if rule.algorithm == algorithm]
        return named[-1] if named else self.default_tuning


def load_stack(catalog: Catalog, name: str) -> CollectiveStack:
    return load_named(catalog, "calibration", name, CollectiveStack)


def stack_of(catalog: Catalog, instance: str) -> CollectiveStack:
    """The stack of an instance (by name, not alias), or of the nearest one, with wider ranges."""
    entry, nearest = stack_file(catalog, instance, FILE_PREFIX, STACK_KEYS)
    stack = load_once(catalog, entry.path, CollectiveStack)
    if nearest is None or nearest.same:
        return stack
    own = load_named(catalog, "instances", instance, Instance)
    # Sizes of a table hold on the links it was made on; behind other switches they are nobody's.
    switched = "switch" in own.scale_up_kind
    return replace(
        stack,
        inherits_from=stack.name,
        choice="fastest" if switched else stack.choice,
        provenance=widened(stack.provenance, HANDED_ON),
    )
