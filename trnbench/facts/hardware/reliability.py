"""How often machines of a family of chips fail, and what a failure and a checkpoint cost."""

from __future__ import annotations

from trnbench.errors import InputError
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import BytesPerS, Ratio, Seconds
from trnbench.facts.catalog.search import Catalog


class Reliability(Sourced):
    """Failures and recovery of training on `chips`, by name.

    `failures_per_node_day`: interruptions of a job by a node of `node_chips` chips in a day.
    `detect`: until a failure is noticed and the node replaced. `launch`: until a job that was
    compiled before trains, beside reading its checkpoint. `compile`: once, at the very start.
    `write_per_node`: what one host writes to (and reads from) durable storage; `write_total`: what
    the store takes in all. `stalled_share`: the part of writing for which training stands still.
    """

    name: str
    title: str
    chips: tuple[str, ...]
    failures_per_node_day: float
    node_chips: int
    detect_s: Seconds
    launch_s: Seconds
    compile_s: Seconds
    write_per_node_bytes_per_s: BytesPerS
    write_total_bytes_per_s: BytesPerS
    stalled_share: Ratio

    def __post_init__(self) -> None:
        """Refuse a node without chips and a share above one."""
        if self.node_chips < 1:
            raise ValueError("`node_chips` must be at least 1")
        if self.stalled_share > 1:
            raise ValueError("`stalled_share` must be at most 1")


def load_reliability(catalog: Catalog, chip: str) -> Reliability:
    """Return the failure rates of a chip, by the chip's name."""
    for entry in catalog.entries("reliability"):
        found = load_once(catalog, entry.path, Reliability)
        if chip in found.chips:
            return found
    known = ", ".join(entry.name for entry in catalog.entries("reliability"))
    raise InputError(
        f"no failure rate is known for chip {chip}",
        hint=f"list the chip in a file of reliability/ (there are: {known or 'none'})",
    )
