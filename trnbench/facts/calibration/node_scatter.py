"""How much later the slowest of several nodes is than a typical one, from their scatter."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from trnbench.facts.arrays import FloatArray

_RANK_SHIFT, _COUNT_SHIFT = 3 / 8, 1 / 4
"""Blom's constants."""


def expected_maximum(count: FloatArray) -> FloatArray:
    """Return the mean of the largest of so many standard normal draws; 0 for one.

    Blom's closed form E[max] = q((n - 3/8) / (n + 1/4)), q the standard normal quantile (Blom,
    Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    counts = np.asarray(count, dtype=np.float64)
    values, where = np.unique(counts, return_inverse=True)
    quantile = NormalDist().inv_cdf
    found = [quantile((n - _RANK_SHIFT) / (n + _COUNT_SHIFT)) for n in values.tolist()]
    return np.asarray(np.array(found)[where].reshape(counts.shape))


def slowest_node(scatter: FloatArray | float, nodes: FloatArray) -> FloatArray:
    """Return the time of the slowest of so many nodes over a typical one's, at least 1.

    Nodes differ by a relative scatter, normally distributed.
    """
    return np.asarray(1 + scatter * expected_maximum(nodes))
