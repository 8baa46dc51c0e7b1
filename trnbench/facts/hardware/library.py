"""Hardware by name: chips, instances and platforms of the catalogue."""

from __future__ import annotations

from pathlib import Path

from trnbench.facts.catalog.document import load_named, load_once
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.instance import Instance, Platform


def load_chip(catalog: Catalog, name: str, *, where: str = "") -> Chip:
    """The chip with this name or alias."""
    return load_named(catalog, "chips", name, Chip, where=where)


def load_instance(catalog: Catalog, name: str, *, where: str = "") -> Instance:
    """The instance with this name or alias."""
    return load_named(catalog, "instances", name, Instance, where=where)


def load_platform(catalog: Catalog, name: str) -> Platform:
    """The instance with this name or alias, joined with its chip."""
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
