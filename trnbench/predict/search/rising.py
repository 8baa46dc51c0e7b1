"""Layouts that fit, found without the memory of each: along a row it rises with the micro-batch.

A larger micro-batch has larger tensors; as many fewer are in flight at most, so that all of them
together never shrink. Then a row is cut in two by the largest micro-batch that fits, which a few
looks find.

That does not hold of experts, whose tokens are padded to whole ones on each rank, nor where
software makes gradients in the backward pass: as soon as all micro-batches are in flight before it,
they and the gradients are never there together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.workload.model import Model
from trnbench.predict.search.rows import RowLayouts, Rows, each_of, listed, together
from trnbench.program.points import Points

LARGE = 32_768
"""Layouts above which a few looks at each row cost less than one at every layout."""
AT_ONCE = 8_192
"""Layouts in doubt up to which one look at all of them costs less than looks one after another."""
ROUNDED = 1e-9
"""Part of the memory by which rounding may make a larger micro-batch need less."""


def rises(model: Model, overheads: MemoryOverheads) -> bool:
    """True where a layout with a larger micro-batch never needs less memory."""
    dense = model.transformer is not None and model.transformer.moe is None
    return dense and overheads.gradients_made == "before"


def fitting(
    rows: Rows,
    available_bytes: float,
    needed: Callable[[Points | RowLayouts], FloatArray],
    *,
    likely: bool = False,
) -> Rows:
    """Layouts that fit, given the bytes that any of them need.

    The largest of each row comes first where it is `likely` to fit, else the smallest.
    """
    # Of a row in doubt, the first `low` layouts fit, and those from number `high` on do not.
    count = np.zeros_like(rows.count)
    in_doubt = np.arange(len(rows))
    looked: IntArray | None = None
    low, high, ahead = count, rows.count, rows.count - 1 if likely else count
    while len(in_doubt):
        size = needed(rows.looked_at(looked, ahead))
        if (np.abs(size - available_bytes) <= ROUNDED * available_bytes).any():
            every = (chunk.points() for chunk in rows.chunks(LARGE))
            fitted = (points.some(needed(points) <= available_bytes) for points in every)
            return together(rows.shape, [*map(listed, fitted)])
        fits = size <= available_bytes
        if looked is not None and len(looked) > len(in_doubt):
            # All in doubt were looked at: as many as fit do so up to there.
            count += np.bincount(looked[fits], minlength=len(count))
            break
        low, high = np.where(fits, ahead + 1, low), np.where(fits, high, ahead)
        count[in_doubt] = low
        open_ones = np.flatnonzero(low < high)
        in_doubt, low, high = (some.take(open_ones) for some in (in_doubt, low, high))
        left = high - low
        looked, ahead = in_doubt, low + left // 2
        if len(in_doubt) < left.sum() <= AT_ONCE:
            looked, ahead = np.repeat(in_doubt, left), np.repeat(low, left) + each_of(left)
    return rows.upto(count)
