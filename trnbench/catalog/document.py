"""A data file as a whole: its record, and what it says of the sources of its contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, Self, TypeVar

import attrs

from trnbench.catalog.evidence import collect
from trnbench.catalog.older_files import modern
from trnbench.catalog.provenance import Claim, Conflict, Provenance, Source, split
from trnbench.catalog.search import Catalog
from trnbench.catalog.structure import structure
from trnbench.catalog.toml_file import read_toml
from trnbench.errors import DataFileError, Fault, did_you_mean


class Documented(Protocol):
    """A record that a file describes: it has a name and knows its provenance."""

    @property
    def name(self) -> str:
        """The id; equals the file's stem."""
        ...

    @property
    def provenance(self) -> Provenance:
        """What the file says of its sources."""
        ...


D = TypeVar("D", bound=Documented)


@attrs.frozen(kw_only=True)
class _Remarks:
    sources: dict[str, Source] = attrs.field(factory=dict)
    conflict: tuple[Conflict, ...] = ()
    claim: tuple[Claim, ...] = ()

    @classmethod
    def empty(cls) -> Self:
        return cls()


def load_named(catalog: Catalog, section: str, name: str, record: type[D], *, where: str = "") -> D:
    """Return the record of the file with this name or alias; each file is read once."""
    return load_once(catalog, catalog.find(section, name, where=where).path, record)


def load_once(catalog: Catalog, path: Path, record: type[D]) -> D:
    """Return the record in a file of a catalogue; read again only when the file has changed."""
    return catalog.once(path, record, lambda: _record(path, record, catalog.table(path)))


def load(path: Path, record: type[D]) -> D:
    """Return the record in the file, or raise DataFileError with every fault in it."""
    return _record(path, record, read_toml(path))


def _record(path: Path, record: type[D], whole: Mapping[str, object]) -> D:
    table = modern(whole)
    remarks_table = {
        key: table.pop(key) for key in ("sources", "conflict", "claim") if key in table
    }
    remarks = structure(remarks_table, _Remarks)
    plain, notes, faults = split(table)
    built = structure(plain, record)
    if isinstance(remarks, list):
        faults += remarks
        remarks = _Remarks.empty()
    else:
        faults += _unknown_sources(remarks)
        faults += _unknown_fields(remarks, notes)
    declared = remarks_table.get("sources")
    named = declared if isinstance(declared, dict) else {}
    evidence, missing = collect(plain, record, notes, named)
    faults += missing
    if isinstance(built, list):
        raise DataFileError(str(path), [*faults, *built])
    if built.name != path.stem:
        message = f"{built.name!r} is not the file's name; expected {path.stem!r}"
        faults.append(Fault(path="name", message=message))
    if faults:
        raise DataFileError(str(path), faults)
    provenance = Provenance(
        path=str(path),
        sources=remarks.sources,
        evidence=evidence,
        conflicts=remarks.conflict,
        claims=remarks.claim,
    )
    return attrs.evolve(built, provenance=provenance)  # type: ignore[misc]


def _unknown_fields(remarks: _Remarks, known: Iterable[str]) -> list[Fault]:
    paths = {place for path in known for place in _around(path)}
    return [
        Fault(path=f"conflict[{i}].field", message=f"no such key {conflict.field!r} in the file")
        for i, conflict in enumerate(remarks.conflict)
        if conflict.field not in paths
    ]


def _around(path: str) -> Iterator[str]:
    """Yield a key path and those of the tables and lists around it."""
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
