"""Values as texts that `trnbench.facts.parsing` reads back exactly."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from trnbench.facts.units import BINARY_PREFIXES, COUNT_SUFFIXES, DAY_S, Dimension, parse


def number_text(number: float) -> str:
    """The shortest text that reads back to the same number."""
    return repr(number).removesuffix(".0")


def count_text(number: float) -> str:
    """A count with its suffix, exact: 2T, 1.5B, 123."""
    for suffix, factor in sorted(COUNT_SUFFIXES.items(), key=lambda one: -one[1]):
        text = number_text(number / factor) + suffix
        if number >= factor > 1 and parse(text, Dimension.COUNT) == number:
            return text
    return number_text(number)


def time_text(time_s: float) -> str:
    """A duration in whole days, or else in seconds, exact."""
    days = time_s / DAY_S
    return f"{int(days)}d" if days == int(days) else f"{number_text(time_s)}s"


def share_text(share: float) -> str:
    """A share in %, exact."""
    return f"{(Decimal(repr(share)) * 100).normalize():f}%"


def size_text(size_bytes: float) -> str:
    """A size in the largest binary unit of which the size is a whole number."""
    for prefix, factor in sorted(BINARY_PREFIXES.items(), key=lambda one: -one[1]):
        if size_bytes % factor == 0:
            return f"{size_bytes / factor:.0f}{prefix}B"
    return number_text(size_bytes)


def place_text(instance: str, nodes: int) -> str:
    """A cluster as INSTANCE or INSTANCE:NODES."""
    return instance if nodes == 1 else f"{instance}:{nodes}"


def engine_text(engines: Sequence[str]) -> str:
    """The option value for these engines: a name, or `both`."""
    return "both" if len(engines) > 1 else engines[0]
