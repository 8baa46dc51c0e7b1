"""Data files in lists and checks, without a check of every value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trnbench.errors import DataFileError, Fault, did_you_mean
from trnbench.facts.catalog.search import SINGULAR, Catalog, Entry
from trnbench.facts.records import Record, replace


class Listed(Record):
    """A data file in a list: only its title and aliases are read."""

    entry: Entry
    title: str
    aliases: tuple[str, ...]


class FileCheck(Record):
    """Result of validating one file: its section if recognised, and all faults."""

    path: Path
    section: str | None
    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()
    """Remarks on the use of a valid file, such as the data it will be combined with."""


def listed(catalog: Catalog, sections: Sequence[str]) -> tuple[Listed, ...]:
    """Data files of some sections, contents unchecked."""
    return tuple(
        _listed(catalog, entry) for section in sections for entry in catalog.entries(section)
    )


def _listed(catalog: Catalog, entry: Entry) -> Listed:
    try:
        table = catalog.table(entry.path)
    except DataFileError as error:
        return Listed(entry=entry, title=f"unreadable: {error.faults[0]}", aliases=())
    if table.get("adds") is True:
        entry = replace(entry, hides=())  # what lies below counts too
    aliases = table.get("aliases", [])
    names = tuple(map(str, aliases)) if isinstance(aliases, list) else ()
    return Listed(entry=entry, title=str(table.get("title", "")), aliases=names)


def unknown_name(catalog: Catalog, section: str, name: str, key: str) -> Iterator[Fault]:
    """Yield a fault where a file names something outside of the catalogue."""
    known = catalog.users(section)
    if name not in known:
        message = f"unknown {SINGULAR[section]} {name!r}{did_you_mean(name, known)}"
        yield Fault(path=key, message=message)
