"""What a communication stack makes of the links: its costs, and which algorithm it picks when.

One file a stack (the library with its version and settings on one fabric generation). Both engines
take the same record; a prediction names it. Selection is a table: the first rule that fits wins.
"""

from __future__ import annotations

from typing import Literal, get_args

from trnbench.errors import UnknownNameError
from trnbench.facts.calibration.transfer import HANDED_ON, stack_file, widened
from trnbench.facts.catalog.document import load_named, load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, Ratio, Seconds
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.operation import Op

# Stacks share their folder with other calibrations; their names begin with this.
FILE_PREFIX = "collective-"
STACK_KEYS = ("instances",)
"""The keys under which a stack may list an instance that uses it."""

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
    """One protocol of a stack: what it costs and how much of each link's speed it reaches.

    `launch`: once a collective. `step` and `network_step`: software time a round on top of the
    links' own latency, inside a node and across the network. `message`: each further message a
    rank sends in one round. `on_chip`, `link`, `network`: reached share of the links' speed.
    `chunk`: a collective of several levels works in chunks of this size, at most `chunks`, so its
    levels overlap. A sum reads and writes device memory `reduce_touches` times; `slices` of a
    message overlap its transfer with its sum. `pieces`: steps of a tree, chain or switch.
    """

    launch_s: Seconds
    step_s: Seconds
    network_step_s: Seconds
    message_s: Seconds
    on_chip: Ratio
    link: Ratio
    network: Ratio
    chunk_bytes: Bytes
    chunks: int
    reduce_touches: float
    slices: int
    pieces: int

    def __post_init__(self) -> None:
        """Refuse shares of a link that are not shares, and counts below one."""
        for name in ("on_chip", "link", "network"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be above 0 and at most 1")
        for name in ("chunks", "slices", "pieces"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1")


class Rule(Record):
    """When a stack uses an algorithm: every condition given must hold; sizes below `below`.

    `below_per_node` is times the nodes of the group, for limits that grow with it.
    """

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
    below_per_node_bytes: Bytes | None = None

    def fits(self, op: str, nodes: int, ranks: int) -> bool:
        """Say whether the conditions on the operation and the group hold."""
        return (
            (not self.ops or op in self.ops)
            and (self.nodes_from is None or nodes >= self.nodes_from)
            and (self.nodes_to is None or nodes <= self.nodes_to)
            and (self.ranks_from is None or ranks >= self.ranks_from)
            and (self.ranks_to is None or ranks <= self.ranks_to)
        )

    def limit_bytes(self, nodes: int) -> float:
        """Return the size from which on the rule no longer holds."""
        limits = []
        if self.below_bytes is not None:
            limits.append(self.below_bytes)
        if self.below_per_node_bytes is not None:
            limits.append(self.below_per_node_bytes * nodes)
        return min(limits, default=float("inf"))


class CollectiveStack(Sourced):
    """A communication stack on one fabric generation.

    `instances`: the platforms it describes (by name). `inherits_from` says which measured family
    its numbers come from where it has no measurement of its own, `begun_as` whose numbers a fit to
    own rows began with. `fitted_rows`: patterns of the
    published rows that numbers were set from, a colon, and which.
    """

    name: str
    title: str
    instances: tuple[str, ...]
    inherits_from: str | None = None
    begun_as: str | None = None
    fitted_rows: tuple[str, ...] = ()
    default_tuning: str
    tunings: dict[str, Tuning]
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        """Refuse rules for tunings that are not there."""
        for name in (self.default_tuning, *(rule.tuning for rule in self.rules)):
            if name not in self.tunings:
                known = ", ".join(self.tunings)
                raise ValueError(f"no tuning {name!r}; known: {known}")

    def tuning(self, name: str) -> Tuning:
        """Return the tuning with this name."""
        if name not in self.tunings:
            raise UnknownNameError("tuning", name, self.tunings, where=self.name)
        return self.tunings[name]

    def tuning_for(self, algorithm: str) -> str:
        """Return the tuning the table gives an algorithm (its last rule's), or the default."""
        named = [rule.tuning for rule in self.rules if rule.algorithm == algorithm]
        return named[-1] if named else self.default_tuning


def load_stack(catalog: Catalog, name: str) -> CollectiveStack:
    """Return the communication stack with this name."""
    return load_named(catalog, "calibration", name, CollectiveStack)


def stack_of(catalog: Catalog, instance: str) -> CollectiveStack:
    """Return the stack that lists an instance, by its name, not an alias.

    Of an instance that no stack lists: that of the nearest one, with wider ranges if they differ.
    """
    entry, nearest = stack_file(catalog, instance, FILE_PREFIX, STACK_KEYS)
    found = load_once(catalog, entry.path, CollectiveStack)
    if nearest is None or nearest.same:
        return found
    return replace(found, inherits_from=found.name, provenance=widened(found.provenance, HANDED_ON))
