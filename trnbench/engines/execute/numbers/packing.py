"""Weights as formats that they are only kept in hold them: nearest value of a list, times a scale.

The scale of a block is its largest magnitude. That scales of NF4 are themselves packed costs them
less than 1 %; it is left out here, though their bits are counted.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.numbers.formats import StoredFormat


def packed_round(weights: FloatArray, format: StoredFormat) -> FloatArray:
    """Flat weights as they come out of the format; the last block may be short."""
    block, _ = format.scales[0]
    groups = np.pad(weights, (0, -weights.size % block)).reshape(-1, block)
    largest = np.abs(groups).max(axis=1, keepdims=True)
    scale = np.where(largest > 0, largest, 1)
    values = np.array(format.values, dtype=weights.dtype)
    nearest = np.searchsorted((values[1:] + values[:-1]) / 2, groups / scale)
    return np.asarray((values[nearest] * scale).reshape(-1)[: weights.size])
