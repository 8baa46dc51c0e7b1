"""Inheritance by `like = "NAME"`: a file states only its differences from another.

Tables merge key by key, and everything else replaces. A list of named tables (the levels of a
fabric) may be written as a table by their names: `[fabric.infiniband]` changes keys of that level.
Values not overridden keep their kind and their source, renamed to "SOURCE, as in NAME".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trnbench.errors import Fault, UnknownNameError, did_you_mean
from trnbench.facts.catalog.provenance import Note, join
from trnbench.facts.catalog.search import SINGULAR, Catalog
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.records import Record, field, replace

LIKE = "like"
AS_IN = ", as in "


class Content(Record):
    """A file's content: plain values, notes by key path, and sources."""

    plain: dict[str, object]
    notes: dict[str, Note]
    sources: Mapping[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)
    """Key path here -> key path in the list, for tables of a list written by name."""


def bases(catalog: Catalog, section: str, path: Path) -> tuple[Path, ...]:
    """Files that a file inherits from, nearest first; raise for a circle or an unknown name."""
    ancestors: list[Path] = []
    file = path
    while (name := catalog.table(file).get(LIKE)) is not None:
        if not isinstance(name, str):
            raise refused(file, f"expected the name of another {SINGULAR[section]}", LIKE)
        try:
            entry = catalog.find(section, name)
        except UnknownNameError:
            hint = did_you_mean(name, catalog.names(section))
            raise refused(file, f"unknown {SINGULAR[section]} {name!r}{hint}", LIKE) from None
        file = entry.path
        if file == path or file in ancestors:
            way = " -> ".join(step.stem for step in (path, *ancestors, file))
            raise refused(path, f"a circle: {way}", LIKE)
        ancestors.append(file)
    return tuple(ancestors)


def handed_on(base: Content, name: str, own_only: tuple[str, ...]) -> Content:
    """Content that a file with `like` inherits: all but `own_only`, titled after its base."""
    plain = {key: value for key, value in base.plain.items() if key not in own_only}
    # Keys with a dot lie in a table, whose other keys are inherited: the table is copied without.
    for key in own_only:
        table, _, inner = key.partition(".")
        within = plain.get(table)
        if inner and isinstance(within, dict):
            plain[table] = {k: value for k, value in within.items() if k != inner}
    return Content(
        plain={**plain, "title": f"like {name}"},
        notes={
            path: replace(note, source=_as_in(note.source, name))
            for path, note in base.notes.items()
            if not any(_under(path, key) for key in own_only)
        },
        sources={str(_as_in(key, name)): source for key, source in base.sources.items()},
    )


def merged(base: Content, own: Content) -> tuple[Content, list[Fault]]:
    """The base with the file's overrides, and faults for overrides of unknown list entries."""
    notes = dict(base.notes)
    places: dict[str, str] = {}
    faults: list[Fault] = []

    def merge(before: object, after: object, path: str, own_path: str) -> object:
        if isinstance(before, dict) and isinstance(after, dict):
            table = dict(before)
            for key, item in after.items():
                table[key] = merge(before.get(key), item, join(path, key), join(own_path, key))
            return table
        if isinstance(after, dict) and isinstance(before, list) and _is_named(before):
            return by_name(before, after, path, own_path)
        # A replaced value takes no source of the base along: its own notes are all that count.
        for known in [known for known in notes if _under(known, path)]:
            del notes[known]
        for known, note in own.notes.items():
            if _under(known, own_path):
                notes[path + known[len(own_path) :]] = note
        return after

    def by_name(before: list[Any], after: dict[str, object], path: str, own_path: str) -> object:
        names = [str(item["name"]) for item in before]
        found: list[object] = list(before)
        for name, item in after.items():
            here = join(own_path, name)
            if name not in names:
                message = f"not in the file that this one is like{did_you_mean(name, names)}"
                faults.append(Fault(here, f"{message}; it has {', '.join(names)}"))
                continue
            at = names.index(name)
            places[here] = f"{path}[{at}]"
            found[at] = merge(before[at], item, f"{path}[{at}]", here)
        return found

    plain = merge(base.plain, own.plain, "", "")
    assert isinstance(plain, dict)
    content = Content(
        plain=plain, notes=notes, sources={**base.sources, **own.sources}, places=places
    )
    return content, faults


def at_home(faults: list[Fault], places: Mapping[str, str]) -> Iterator[Fault]:
    """Yield faults under the key paths of the file, which may name a list's tables."""
    for fault in faults:
        path = fault.path
        for own, place in places.items():
            if _under(path, place):
                path = own + path[len(place) :]
        yield Fault(path, fault.message)


def _is_named(value: list[object]) -> bool:
    return all(isinstance(item, dict) and "name" in item for item in value)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def _as_in(source: str | None, name: str) -> str | None:
    # In a chain of files the source keeps the name of the file that states the number.
    if source is None or AS_IN in source:
        return source
    return f"{source}{AS_IN}{name}"
