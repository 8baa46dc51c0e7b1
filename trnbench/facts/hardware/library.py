"""Hardware by name: chips, instances and platforms of the catalogue, and chips' failure rates."""

from __future__ import annotations

from pathlib import Path

from trnbench.errors import InputError
from trnbench.facts.catalog.document import load_named, load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import BytesPerS, Ratio, Seconds
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.instance import Instance, Platform


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
        if self.node_chips < 1:
            raise ValueError("`node_chips` must be at least 1")
        if self.stalled_share > 1:
            raise ValueError("`stalled_share` must be at most 1")


def load_reliability(catalog: Catalog, chip: str) -> Reliability:
    """Failure rates of a chip, by the chip's name."""
    for entry in catalog.entries("reliability"):
        reliability = load_once(catalog, entry.path, Reliability)
        if chip in reliability.chips:
            return reliability
    files = ", ".join(entry.name for entry in catalog.entries("reliability"))
    raise InputError(
        f"no failure rate is known for chip {chip}",
        hint=f"list the chip in a file of reliability/ (there are: {files or 'none'})",
    )


def load_chip(catalog: Catalog, name: str, *, where: str = "") -> Chip:
    return load_named(catalog, "chips", name, Chip, where=where)


def load_instance(catalog: Catalog, name: str, *, where: str = "") -> Instance:
    return load_named(catalog, "instances", name, Instance, where=where)


def load_platform(catalog: Catalog, name: str) -> Platform:
    instance = load_instance(catalog, name)
    place = f"{Path(instance.provenance.path)} (chip)"
    return Platform(instance=instance, chip=load_chip(catalog, instance.chip, where=place))


def load_published(catalog: Catalog, system: str, chip: str) -> Instance | None:
    """The instance behind a publication's system and chip names; None if unknown.

    A remark in brackets after the system's name is ignored. A name shared by several machines is
    listed in their files with the chip appended.
    """
    bare = system.partition(" (")[0]
    spelled = {bare, f"{bare}, {chip}"}
    for entry in catalog.entries("instances"):
        table = catalog.table(entry.path)
        names = {entry.name}
        for key in ("aliases", "published_as"):
            listed = table.get(key, [])
            names |= set(map(str, listed)) if isinstance(listed, list) else set()
        if names & spelled:
            return load_once(catalog, entry.path, Instance)
    return None
