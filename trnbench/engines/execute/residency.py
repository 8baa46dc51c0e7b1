"""Bytes on a rank of a pipeline stage while it works, by category, and their peaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod

from trnbench.program.block import ResidentCategory
from trnbench.program.tensor import Tensor, element_bytes

MESSAGE_BUFFERS = 2
"""One is filled while the other is read."""


class Residency:
    """Bytes that a rank of one stage holds now and held at most; all its ranks hold the same."""

    def __init__(self) -> None:
        self._held: defaultdict[ResidentCategory, float] = defaultdict(float)
        self._most: defaultdict[ResidentCategory, float] = defaultdict(float)
        self._total = 0.0
        self._peak = 0.0

    def hold(self, category: ResidentCategory, size_bytes: float) -> None:
        """Note bytes that are there from now on."""
        self._held[category] += size_bytes
        self._total += size_bytes
        self._most[category] = max(self._most[category], self._held[category])
        self._peak = max(self._peak, self._total)

    def release(self, category: ResidentCategory, size_bytes: float) -> None:
        """Note bytes that are gone."""
        self._held[category] -= size_bytes
        self._total -= size_bytes

    @property
    def peak_bytes(self) -> float:
        """The most that was there at one time."""
        return self._peak

    @property
    def by_category(self) -> Mapping[ResidentCategory, float]:
        """The most of each category; they need not have been there at one time."""
        return dict(self._most)

    @property
    def now_bytes(self) -> float:
        """Bytes held now."""
        return self._total


def held_bytes(tensor: Tensor) -> float:
    """Bytes of a rank's array in the tensor's format; of pieces in a ring, two."""
    pieces = float(tensor.pieces)
    whole = prod(int(size) for size in tensor.shape) * element_bytes(tensor.format)
    return whole * min(pieces, 2.0) / pieces
