"""A row of an answer, as JSON and CSV hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

NestedRow = Mapping[str, object]
Cell = (
    str
    | float
    | int
    | bool
    | None
    | Sequence[str]
    | Sequence[float]
    | Sequence[NestedRow]
    | NestedRow
)
Row = Mapping[str, Cell]


def cells(record: object, *keys: str) -> dict[str, Any]:
    """Return cells of a record by keys, one or several in a text: attributes of these names.

    `key=a.b` is b of the record's a. What nothing would have is None.
    """
    found: dict[str, Any] = {}
    for key, names in _places(" ".join(keys)):
        value: Any = record
        for name in names:
            value = None if value is None else getattr(value, name)
        found[key] = value
    return found


@cache
def _places(keys: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    named = (word.partition("=") for word in keys.split())
    return tuple((key, tuple((place or key).split("."))) for key, _, place in named)
