"""The bounds every whole number of a workload record is checked against."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from trnbench.facts.records import fields

MAX_SIZE = 2**31
"""No dimension, layer count or degree reaches this; products of two still fit 64 bits."""
MOST_DEPTHS = 16
"""Modules of multi-token prediction that are modelled, at most."""
MAY_BE_ZERO = {"minimum": 0}
"""Metadata of the fields whose least value is not 1."""


def check_sizes(record: object) -> None:
    """Raise ValueError naming every whole number of the record that is out of bounds."""
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
    """Return the least whole number that each field of a record may hold."""
    return tuple((field.name, field.metadata.get("minimum", 1)) for field in fields(kind))
