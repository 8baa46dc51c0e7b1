"""A whole data file: its record, and the provenance of its contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, Self, TypeVar

from trnbench.errors import DataFileError, Fault, did_you_mean
from trnbench.facts.catalog.evidence import collect
from trnbench.facts.catalog.inherit import LIKE, Content, at_home, bases, handed_on, merged
from trnbench.facts.catalog.provenance import Claim, Conflict, Provenance, Source, split
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.structure import structure
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.records import Record, field, replace


class Documented(Protocol):
    """A record described by a file, with a name and a provenance."""

    @property
    def name(self) -> str: ...

    @property
    def provenance(self) -> Provenance: ...


D = TypeVar("D", bound=Documented)


class _Remarks(Record):
    sources: dict[str, Source] = field(default_factory=dict)
    conflict: tuple[Conflict, ...] = ()
    claim: tuple[Claim, ...] = ()

    @classmethod
    def empty(cls) -> Self:
        return cls()


def load_named(catalog: Catalog, section: str, name: str, record: type[D], *, where: str = "") -> D:
    """The record of the file with this name or alias, read once."""
    return load_once(catalog, catalog.find(section, name, where=where).path, record)


def load_once(catalog: Catalog, path: Path, record: type[D]) -> D:
    """The record of a file, read again only after a change of the file or of its `like` bases."""
    section = getattr(record, "section", None)
    others = bases(catalog, section, path) if section else ()
    return catalog.once(path, record, lambda: load(path, record, catalog), others)


def load(path: Path, record: type[D], catalog: Catalog | None = None) -> D:
    """The record of a file, or DataFileError with every fault.

    A file with `like` needs the catalogue that holds the other file.
    """
    content, remarks, faults = _content(path, record, catalog)
    built = structure(content.plain, record)
    evidence, missing = collect(content.plain, record, content.notes, content.sources)
    faults += missing
    if isinstance(built, list):
        raise DataFileError(str(path), [*at_home([*faults, *built], content.places)])
    if built.name != path.stem:
        message = f"{built.name!r} is not the file's name; expected {path.stem!r}"
        faults.append(Fault(path="name", message=message))
    if faults:
        raise DataFileError(str(path), [*at_home(faults, content.places)])
    provenance = Provenance(
        path=str(path),
        sources=content.sources,
        evidence=evidence,
        conflicts=remarks.conflict,
        claims=remarks.claim,
        cited={at: note.source for at, note in content.notes.items() if note.source is not None},
    )
    return replace(built, provenance=provenance)  # type: ignore[type-var]


def _content(
    path: Path, record: type[D], catalog: Catalog | None
) -> tuple[Content, _Remarks, list[Fault]]:
    """A file's content, merged with the file that `like` names, its remarks, and faults."""
    table = dict(read_toml(path) if catalog is None else catalog.table(path))
    remarks_table = {
        key: table.pop(key) for key in ("sources", "conflict", "claim") if key in table
    }
    remarks = structure(remarks_table, _Remarks)
    declared = remarks_table.get("sources")
    plain, notes, faults = split(table)
    if isinstance(remarks, list):
        faults += remarks
        remarks = _Remarks.empty()
    else:
        faults += _unknown_sources(remarks)
        faults += _unknown_fields(remarks, notes)
    sources = remarks.sources or (declared if isinstance(declared, dict) else {})
    own = Content(plain=plain, notes=notes, sources=sources)
    section = getattr(record, "section", None)
    if catalog is None or section is None or LIKE not in plain:
        return own, remarks, faults
    nearest = bases(catalog, section, path)[0]
    # The base is loaded for its faults, told under its own path; its content is read for the merge.
    load_once(catalog, nearest, record)
    base, _, _ = _content(nearest, record, catalog)
    content, more = merged(handed_on(base, nearest.stem, record.own_keys), own)  # type: ignore[attr-defined]
    return content, remarks, faults + more


def _unknown_fields(remarks: _Remarks, known: Iterable[str]) -> list[Fault]:
    paths = {place for path in known for place in _around(path)}
    return [
        Fault(path=f"conflict[{i}].field", message=f"no such key {conflict.field!r} in the file")
        for i, conflict in enumerate(remarks.conflict)
        if conflict.field not in paths
    ]


def _around(path: str) -> Iterator[str]:
    """Yield a key path, and those of the enclosing tables and lists."""
    yield path
    for i, character in enumerate(path):
        if character in ".[":
            yield path[:i]


def _unknown_sources(remarks: _Remarks) -> list[Fault]:
    cited = [
        (f"conflict[{i}].values[{j}].source", reading.source)
        for i, conflict in enumerate(remarks.conflict)
        for j, reading in enumerate(conflict.values)
    ] + [(f"claim[{i}].source", claim.source) for i, claim in enumerate(remarks.claim)]
    return [
        Fault(
            path=path,
            message=f"{source!r} is not in [sources]{did_you_mean(source, remarks.sources)}",
        )
        for path, source in cited
        if source not in remarks.sources
    ]
