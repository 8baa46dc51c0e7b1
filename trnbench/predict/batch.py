"""Batch sizes that the ranks of a cluster divide well.

A batch is split over replicas, so an odd factor of the ranks that the batch lacks must go into
tensor or pipeline parallelism, at any cost. A batch with that factor leaves the choice free. Of
batches at most an eighth above the wanted one, the multiple of the odd factor times the largest
power of two is taken: 1,152 for 1,024 on 9 x 2^k ranks.
"""

from __future__ import annotations

import math

MOST = 1.125
"""Largest factor by which a batch may be raised: more would be another run."""


def fitted_batch(wanted: int, ranks: int, *, step: int = 1) -> int:
    """Samples of the next batch that the ranks divide well, a multiple of `step`.

    Where no such batch is near, the next multiple of `step`.
    """
    least = -(-wanted // step) * step
    odd = ranks // (ranks & -ranks)
    if odd == 1:
        return least
    best = least
    unit = math.lcm(odd, step)
    while (batch := -(-wanted // unit) * unit) <= MOST * wanted:
        best = batch
        unit *= 2
    return best
