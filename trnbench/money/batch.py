"""Which batch the ranks of a cluster divide well.

A batch is split over replicas, so an odd factor of the ranks that the batch does not have must go
into tensor or pipeline parallelism, whatever that costs. A batch that has it leaves the choice
free. Of batches at most an eighth above the one wanted, the next that is a multiple of the odd
factor times the largest power of two is taken: 1,152 for 1,024 on 9 x 2^k ranks.
"""

from __future__ import annotations

import math

MOST = 1.125
"""A batch may be raised by so much: more is another run, not the same one split well."""


def fitted_batch(wanted: int, ranks: int, *, step: int = 1) -> int:
    """Return the batch at or above one that ranks divide well, a multiple of `step`.

    That is the next multiple of the step where no batch near it would do.
    """
    least = -(-wanted // step) * step
    odd = ranks // (ranks & -ranks)
    if odd == 1:
        return least
    found = least
    unit = math.lcm(odd, step)
    while (batch := -(-wanted // unit) * unit) <= MOST * wanted:
        found = batch
        unit *= 2
    return found
