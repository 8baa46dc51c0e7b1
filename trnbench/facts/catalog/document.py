"""A whole data file: its record, and the evidence and provenance of its contents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from trnbench.errors import DataFileError, Fault, did_you_mean
from trnbench.facts.catalog.inherit import LIKE, Content, at_home, bases, handed_on, merged
from trnbench.facts.catalog.provenance import (
    KINDS,
    Claim,
    Conflict,
    Evidence,
    Note,
    Provenance,
    Source,
    split,
)
from trnbench.facts.catalog.quantity import Misfit, number, quantity
from trnbench.facts.catalog.schema import TypeForm, numbers
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.structure import structure
from trnbench.facts.catalog.text_file import refused_with_all
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension


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


def load_named(catalog: Catalog, section: str, name: str, record: type[D], *, where: str = "") -> D:
    """The record of the file with this name or alias, read once."""
    return load_once(catalog, catalog.find(section, name, where=where).path, record)


def load_once(catalog: Catalog, path: Path, record: type[D]) -> D:
    """The record of a file, read again only after a change of the file or of its `like` bases."""
    section = getattr(record, "section", None)
    others = bases(catalog, section, path) if section else ()
    return catalog.once(path, record, lambda: load(path, record, catalog), others)


def load(path: Path, record: type[D], catalog: Catalog | None = None) -> D:
    """The record of a file, or DataFileError with every fault; `like` needs the catalogue."""
    content, remarks, faults = _content(path, record, catalog)
    built = structure(content.plain, record)
    evidence, missing = collect(content.plain, record, content.notes, content.sources)
    faults += missing
    if isinstance(built, list):
        raise DataFileError(str(path), [*at_home([*faults, *built], content.places)])
    faults += _misnamed(built, path)
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


def load_question(path: Path, record: type[D]) -> D:
    """The record of a file without sources, as of a fleet or study: or DataFileError."""
    structured = structure(read_toml(path), record)
    if isinstance(structured, list):
        raise refused_with_all(path, structured)
    if faults := _misnamed(structured, path):
        raise DataFileError(str(path), faults)
    return replace(structured, provenance=Provenance(path=str(path)))  # type: ignore[type-var]


def _misnamed(record: Documented, path: Path) -> list[Fault]:
    if record.name == path.stem:
        return []
    message = f"{record.name!r} is not the file's name; expected {path.stem!r}"
    return [Fault("name", message)]


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
        remarks = _Remarks()
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
    if not remarks.conflict:
        return []
    paths = {place for path in known for place in _around(path)}
    return [
        Fault(f"conflict[{i}].field", f"no such key {conflict.field!r} in the file")
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
        Fault(path, f"{source!r} is not in [sources]{did_you_mean(source, remarks.sources)}")
        for path, source in cited
        if source not in remarks.sources
    ]


_NO_NOTE = Note(source=None, kind=None)


def collect(
    table: Mapping[str, object],
    record: TypeForm,
    notes: Mapping[str, Note],
    sources: Collection[str],
) -> tuple[dict[str, Evidence], list[Fault]]:
    """Evidence of every number of a table by key path, and the faults in it."""
    evidence: dict[str, Evidence] = {}
    faults: list[Fault] = []
    for path, value, dimension in numbers(dict(table), record):
        note = notes.get(path, _NO_NOTE)
        problems = list(_problems(value, note, dimension, sources))
        faults += [Fault(path, problem) for problem in problems]
        if not problems:
            evidence[path] = Evidence(
                text=str(value),
                source=str(note.source),
                kind=KINDS[str(note.kind)],
                low=_bound(note.low, dimension),
                high=_bound(note.high, dimension),
                range_text=_range(note),
                note=note.note if isinstance(note.note, str) else None,
            )
    # Notes above no number are checked too; a message that a number has brought is not repeated.
    messages = {fault.message for fault in faults}
    # Most notes repeat their table's source and kind: one look at each pair is enough.
    looked_at = set()
    for path, note in notes.items():
        if (note.source, note.kind) in looked_at:
            continue
        looked_at.add((note.source, note.kind))
        for problem in _unknown(note, sources):
            if problem not in messages:
                messages.add(problem)
                faults.append(Fault(path, problem))
    return evidence, faults


def _problems(
    value: object, note: Note, dimension: Dimension | None, sources: Collection[str]
) -> Iterator[str]:
    if note.source is None or note.kind is None:
        missing = "source" if note.source is None else "kind"
        yield f"a number without `{missing}`; give it one here or on a table around it"
    yield from _unknown(note, sources)
    if note.kind == "assumed" and (note.low is None or note.high is None):
        yield "an assumed number needs a range: `low` and `high`"
    if note.note is not None and not isinstance(note.note, str):
        yield "`note` must be a text"
    if note.low is note.high is None:
        return
    try:
        low, high = _bound(note.low, dimension), _bound(note.high, dimension)
    except Misfit as error:
        yield f"range: {error}"
    else:
        if low is not None and high is not None and low > high:
            yield "`low` is above `high`"
        elif _outside(value, low, high, dimension):
            yield "the value is outside `low` and `high`"


def _unknown(note: Note, sources: Collection[str]) -> Iterator[str]:
    if note.source is not None and note.source not in sources:
        yield f"source {note.source!r} is not in [sources]{did_you_mean(note.source, sources)}"
    if note.kind is not None and note.kind not in KINDS:
        hint = did_you_mean(note.kind, KINDS)
        yield f"unknown kind {note.kind!r}{hint}; one of {', '.join(KINDS)}"


def _outside(
    value: object, low: float | None, high: float | None, dimension: Dimension | None
) -> bool:
    try:
        used = _bound(value, dimension)
    except Misfit:  # the schema tells of it
        return False
    if used is None:
        return False
    return (low is not None and used < low) or (high is not None and used > high)


def _range(note: Note) -> str:
    if note.low is None and note.high is None:
        return ""
    low = "..." if note.low is None else note.low
    high = "..." if note.high is None else note.high
    return f"{low} to {high}"


def _bound(value: object, dimension: Dimension | None) -> float | None:
    if value is None:
        return None
    return number(value) if dimension is None else quantity(value, dimension)
