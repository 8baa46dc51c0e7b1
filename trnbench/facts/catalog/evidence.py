"""Evidence of every number in a file, and the faults of incomplete evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from trnbench.errors import Fault, did_you_mean
from trnbench.facts.catalog.provenance import KINDS, Evidence, Note
from trnbench.facts.catalog.quantity import Misfit, number, quantity
from trnbench.facts.catalog.schema import TypeForm, numbers
from trnbench.facts.units import Dimension

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
        faults += [Fault(path=path, message=problem) for problem in problems]
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
    told = {fault.message for fault in faults}
    # Most notes repeat their table's source and kind: one look at each pair is enough.
    looked_at = set()
    for path, note in notes.items():
        if (note.source, note.kind) in looked_at:
            continue
        looked_at.add((note.source, note.kind))
        for problem in _unknown(note, sources):
            if problem not in told:
                told.add(problem)
                faults.append(Fault(path=path, message=problem))
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
            yield "the value lies outside `low` and `high`"


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
