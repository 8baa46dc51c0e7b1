"""A row of an answer, as JSON and CSV hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
