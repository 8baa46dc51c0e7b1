"""Delay of the slowest of several nodes behind a typical node, from their scatter."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from trnbench.facts.arrays import FloatArray

_RANK_SHIFT, _COUNT_SHIFT = 3 / 8, 1 / 4
"""Blom's constants."""


def expected_maximum(count: FloatArray) -> FloatArray:
    """Mean of the largest of `count` standard normal draws; 0 for one draw.

    Blom's closed form E[max] = q((n - 3/8) / (n + 1/4)), q the standard normal quantile (Blom,
    Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    counts = np.asarray(count, dtype=np.float64)
    # Grids repeat few distinct node counts, and inv_cdf is slow.
    values, where = np.unique(counts, return_inverse=True)
    quantile = NormalDist().inv_cdf
    found = [quantile((n - _RANK_SHIFT) / (n + _COUNT_SHIFT)) for n in values.tolist()]
    return np.asarray(np.array(found)[where].reshape(counts.shape))


def slowest_node(scatter: FloatArray | float, nodes: FloatArray) -> FloatArray:
    """Time of the slowest of `nodes` nodes over a typical node's, at least 1.

    Nodes differ by a relative scatter, normally distributed.
    """
    return np.asarray(1 + scatter * expected_maximum(nodes))
