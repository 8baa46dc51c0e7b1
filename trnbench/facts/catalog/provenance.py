"""Provenance of a number: source, kind, range and note, written beside the number in its file.

A plain number has the `source` and `kind` of the nearest enclosing table. A number may also be a
table: `{ value = "2.8 GHz", source = "nki-guide", kind = "vendor" }`. `source` and `kind` are
therefore reserved in every table.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from trnbench.errors import Fault, did_you_mean
from trnbench.facts.records import Record, field, fields, replace


class Kind(IntEnum):
    """Kinds of evidence for a number, strongest first."""

    MEASURED = 1
    VENDOR = 2
    DERIVED = 3
    ESTIMATED = 4
    ASSUMED = 5

    @property
    def word(self) -> str:
        return self.name.lower()


KINDS: Mapping[str, Kind] = {kind.word: kind for kind in Kind}


class Source(Record):
    """A cited source: title, date, and address where one exists."""

    title: str
    date: datetime.date
    url: str | None = None


class Evidence(Record):
    """Evidence for one number."""

    text: str
    """The value as the file writes it."""
    source: str
    kind: Kind
    low: float | None = None
    """Bounds of the number, in base units; required for assumed numbers."""
    high: float | None = None
    range_text: str = ""
    note: str | None = None


class Reading(Record):
    """One of several published values of the same quantity."""

    value: str
    source: str


class Conflict(Record):
    """A disagreement between sources: the field, the readings, the one used and why."""

    field: str
    used: str
    why: str
    values: tuple[Reading, ...]


class Claim(Record):
    """A source's statement on performance or cost in words; the model does not use it."""

    text: str
    source: str


class Provenance(Record):
    """Sources and evidence of a data file's contents."""

    path: str = ""
    sources: Mapping[str, Source] = field(default_factory=dict)
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    claims: tuple[Claim, ...] = ()
    cited: Mapping[str, str] = field(default_factory=dict)
    """Source id of every number and text with a source, by key path."""

    def source_of(self, path: str) -> Source | None:
        """Source of the number or text at a key path."""
        return self.sources.get(self.cited.get(path, ""))

    def weakest(self, *prefixes: str) -> Kind:
        """Weakest kind of evidence among the numbers whose key path starts with a prefix."""
        kinds = [
            evidence.kind
            for path, evidence in self.evidence.items()
            if path.startswith(prefixes or "")
        ]
        return max(kinds, default=Kind.DERIVED)


class Sourced(Record):
    """A record described by a data file; equal contents are equal, whatever their source."""

    provenance: Provenance = field(default_factory=Provenance)
    """Filled by the loader; no file may contain the key."""

    def __eq__(self, other: object) -> bool:
        return other.__class__ is self.__class__ and _contents(self) == _contents(other)

    def __hash__(self) -> int:
        return hash(_contents(self))


PROVENANCE = "provenance"


def _contents(record: Any) -> tuple[object, ...]:  # noqa: ANN401
    return tuple(getattr(record, each.name) for each in fields(record) if each.name != PROVENANCE)


class Note(Record):
    """Raw source, kind and range of one leaf of a file, before its schema adds the dimension."""

    source: str | None
    kind: str | None
    low: object = None
    high: object = None
    note: object = None


_NUMBER_KEYS = ("value", "source", "kind", "low", "high", "note")


def split(table: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Note], list[Fault]]:
    """The table with plain values, its notes by key path, and faults."""
    notes: dict[str, Note] = {}
    faults: list[Fault] = []

    def walk(value: object, path: str, above: Note) -> object:
        if isinstance(value, dict) and "value" in value and path:
            return number(value, path, above)
        if isinstance(value, dict):
            here = defaults(value, path, above)
            return {
                key: walk(item, join(path, key), here)
                for key, item in value.items()
                if key not in ("source", "kind")
            }
        notes[path] = above
        if isinstance(value, list):
            return [walk(item, f"{path}[{i}]", above) for i, item in enumerate(value)]
        return value

    def defaults(value: dict[str, object], path: str, above: Note) -> Note:
        faults.extend(
            Fault(join(path, key), "expected a text")
            for key in ("source", "kind")
            if key in value and not isinstance(value[key], str)
        )
        source, kind = value.get("source"), value.get("kind")
        return Note(
            source=source if isinstance(source, str) else above.source,
            kind=kind if isinstance(kind, str) else above.kind,
        )

    def number(value: dict[str, object], path: str, above: Note) -> object:
        faults.extend(
            Fault(join(path, key), f"unknown key{did_you_mean(key, _NUMBER_KEYS)}")
            for key in value
            if key not in _NUMBER_KEYS
        )
        here = defaults(value, path, above)
        notes[path] = replace(
            here, low=value.get("low"), high=value.get("high"), note=value.get("note")
        )
        return value["value"]

    plain = walk(table, "", Note(source=None, kind=None))
    assert isinstance(plain, dict)
    return plain, notes, faults


def join(path: str, key: str) -> str:
    """Key path of `key` under `path`; keys with a dot are quoted."""
    shown = f'"{key}"' if "." in key else key
    return f"{path}.{shown}" if path else shown
