"""Failure rates of machines by family of chips, and the cost of failures and checkpoints."""

from __future__ import annotations

from trnbench.errors import InputError
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import BytesPerS, Ratio, Seconds
from trnbench.facts.catalog.search import Catalog


class Reliability(Sourced):
    """Failures and recovery of training on `chips`, by name."""

    name: str
    title: str
    chips: tuple[str, ...]
    failures_per_node_day: float
    """Interruptions of a job per day by a node of `node_chips` chips."""
    node_chips: int
    detect_s: Seconds
    """From a failure to its detection and the node's replacement."""
    launch_s: Seconds
    """Restart of a compiled job, besides reading its checkpoint."""
    compile_s: Seconds
    """Compilation, once at the very start."""
    write_per_node_bytes_per_s: BytesPerS
    """Rate of one host to and from durable storage."""
    write_total_bytes_per_s: BytesPerS
    """Limit of the store for all hosts together."""
    stalled_share: Ratio
    """Share of the checkpoint writing time during which training stops."""

    def __post_init__(self) -> None:
        """Refuse a node without chips and a share above one."""
        if self.node_chips < 1:
            raise ValueError("`node_chips` must be at least 1")
        if self.stalled_share > 1:
            raise ValueError("`stalled_share` must be at most 1")


def load_reliability(catalog: Catalog, chip: str) -> Reliability:
    """Failure rates of a chip, by the chip's name."""
    for entry in catalog.entries("reliability"):
        found = load_once(catalog, entry.path, Reliability)
        if chip in found.chips:
            return found
    known = ", ".join(entry.name for entry in catalog.entries("reliability"))
    raise InputError(
        f"no failure rate is known for chip {chip}",
        hint=f"list the chip in a file of reliability/ (there are: {known or 'none'})",
    )
