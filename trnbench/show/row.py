"""A row of an answer, as JSON and CSV hold it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from trnbench.facts.records import Record

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


class Interval(Record):
    """A figure with the ends of its 80 % interval; the ends alone are shown of one not `known`."""

    value: float
    low: float
    high: float
    known: bool = True

    def scaled(self, factor: float) -> Interval:
        value, low, high = (one * factor for one in (self.value, self.low, self.high))
        return Interval(value=value, low=low, high=high, known=self.known)


def with_end(value: float | None) -> float | None:
    """Return a number as a cell; None for what has no end, such as days of a run that never ends.

    The reasons of its row say so.
    """
    return None if value == math.inf else value


def interval_cells(name: str, span: Interval | None) -> dict[str, Cell]:
    of_span = (None, None, None) if span is None else (span.value, span.low, span.high)
    ends = tuple(map(with_end, of_span))
    if span is not None and not span.known:
        ends = (None, *ends[1:])
    return dict(zip((name, f"low_{name}", f"high_{name}"), ends, strict=True))
