"""Bounds of the whole numbers in workload records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from trnbench.facts.records import fields

MAX_SIZE = 2**31
"""Exclusive bound of all dimensions, layer counts and degrees; products of two fit 64 bits."""
MOST_DEPTHS = 16
"""Most modelled modules of multi-token prediction."""
MAY_BE_ZERO = {"minimum": 0}
"""Metadata of fields whose least value is 0, not 1."""


def check_sizes(record: object) -> None:
    """Raise ValueError for every whole number of the record that is out of bounds."""
    faults = list(_out_of_bounds(record))
    if faults:
        raise ValueError("; ".join(faults))


def _out_of_bounds(record: Any) -> Iterator[str]:  # noqa: ANN401
    for name, minimum in _minima(record.__class__):
        value = getattr(record, name)
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int and not minimum <= number < MAX_SIZE:
                yield f"`{name}` must be from {minimum} to {MAX_SIZE - 1}, found {number}"


@cache
def _minima(kind: Any) -> tuple[tuple[str, int], ...]:  # noqa: ANN401
    return tuple((field.name, field.metadata.get("minimum", 1)) for field in fields(kind))
