"""A figure with the ends of its 80 % interval."""

from __future__ import annotations

import math

from trnbench.facts.records import Record
from trnbench.show.row import Cell


class Interval(Record):
    """A figure with the ends of its 80 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return it in another unit."""
        return Interval(value=self.value * factor, low=self.low * factor, high=self.high * factor)


def with_end(value: float | None) -> float | None:
    """Return a number as a cell; None for what has no end, such as days of a run that never ends.

    The reasons of its row say so.
    """
    return None if value == math.inf else value


def interval_cells(name: str, span: Interval | None) -> dict[str, Cell]:
    """Return a figure and the ends of its interval, by the names they go by."""
    of_span = (None, None, None) if span is None else (span.value, span.low, span.high)
    ends = tuple(map(with_end, of_span))
    return dict(zip((name, f"low_{name}", f"high_{name}"), ends, strict=True))
