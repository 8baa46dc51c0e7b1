"""A figure with the ends of its 80 % interval."""

from __future__ import annotations

from trnbench.answers.row import Cell
from trnbench.records import Record


class Interval(Record):
    """A figure with the ends of its 80 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return it in another unit."""
        return Interval(value=self.value * factor, low=self.low * factor, high=self.high * factor)


def interval_cells(name: str, span: Interval | None) -> dict[str, Cell]:
    """Return a figure and the ends of its interval, by the names they go by."""
    ends = (None, None, None) if span is None else (span.value, span.low, span.high)
    return dict(zip((name, f"low_{name}", f"high_{name}"), ends, strict=True))
