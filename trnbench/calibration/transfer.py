"""What carries over from a measured family of chips to one that was not measured: the stated rule.

A chip, or a training stack, that no measured step tells of takes the numbers of the nearest one
that is known; each time numbers are handed on, the logarithm of their ranges doubles. Chips are
near to each other if they have the same kind of compute units and a like ratio of their tensor
units' peak to the bandwidth of their memory, which is what decides what bounds a layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from trnbench.catalog.document import load_named
from trnbench.catalog.provenance import Evidence, Kind, Provenance
from trnbench.catalog.search import Catalog
from trnbench.errors import InputError
from trnbench.hardware.chip import Chip

HANDED_ON = 2.0
"""By how much the ranges of numbers grow that are taken over from another family."""
COMPARED_FORMAT = "bf16"


def nearest_chip(catalog: Catalog, chip: str, known: Iterable[str]) -> str:
    """Return the nearest of the known chips to a chip, by name."""
    own = load_named(catalog, "chips", chip, Chip)
    others = [load_named(catalog, "chips", name, Chip) for name in sorted(set(known))]
    alike = [one for one in others if type(one.unit) is type(own.unit)]
    if not alike:
        raise InputError(f"no calibrated chip has compute units of the kind of {chip}")
    return min(alike, key=lambda one: abs(math.log(_balance(one) / _balance(own)))).name


def widened(known: Provenance, factor: float) -> Provenance:
    """Return the same evidence with wider ranges, estimated at best."""
    return attrs.evolve(
        known, evidence={path: _wider(path, one, factor) for path, one in known.evidence.items()}
    )


def wider_ends(
    value: float, low: float, high: float, factor: float, *, most: float = math.inf
) -> tuple[float, float]:
    """Return the ends of a range `factor` times as wide; in logarithms where nothing is 0."""
    if low <= 0:
        return max(value - factor * (value - low), 0.0), min(value + factor * (high - value), most)
    return value * (low / value) ** factor, min(value * (high / value) ** factor, most)


def most_of(path: str) -> float:
    """Return the most that the number under a key can be: overlaps and shares are parts."""
    return 1.0 if path.startswith("overlaps.") or path.endswith("_share") else math.inf


def _wider(path: str, one: Evidence, factor: float) -> Evidence:
    if one.low is None or one.high is None:
        return one
    value = (one.low * one.high) ** 0.5 if one.low > 0 else (one.low + one.high) / 2
    low, high = wider_ends(value, one.low, one.high, factor, most=most_of(path))
    return attrs.evolve(
        one,
        low=low,
        high=high,
        kind=max(one.kind, Kind.ESTIMATED),
        range_text=f"{low:.4g} to {high:.4g}",
    )


def _balance(chip: Chip) -> float:
    """Return a chip's FLOP for each byte of its memory's traffic."""
    return chip.peak_flop_per_s(COMPARED_FORMAT) / chip.memory.bandwidth_per_chip_bytes_per_s
