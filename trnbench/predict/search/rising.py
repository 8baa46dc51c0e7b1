"""Layouts that fit, found without the memory of each: along a run it rises with the micro-batch.

A run is all micro-batches of one choice of the other degrees. A larger micro-batch has larger
tensors; as many fewer are in flight at most, so that all of them together never shrink. Then a run
is cut in two by the largest micro-batch that fits, which a few looks find.

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
from trnbench.program.points import Points

LARGE = 32_768
"""Layouts above which a few looks at each run cost less than one at every layout."""
AT_ONCE = 8_192
"""Layouts in doubt up to which one look at all of them costs less than looks one after another."""
ROUNDED = 1e-9
"""Part of the memory by which rounding may make a larger micro-batch need less."""


def rises(model: Model, overheads: MemoryOverheads) -> bool:
    """True where a layout with a larger micro-batch never needs less memory."""
    dense = model.transformer is not None and model.transformer.moe is None
    return dense and overheads.gradients_made == "before"


def fitting(
    points: Points,
    runs: tuple[IntArray, IntArray],
    available_bytes: float,
    needed: Callable[[Points], FloatArray],
) -> IntArray:
    """Numbers of the layouts that fit, given the bytes that any of them need; runs lie together."""
    first, last = runs
    # Of a run, layouts before `low` fit and those from `high` on do not.
    low, high = first.copy(), last + 1
    look, open_runs = first, np.arange(len(first))
    while len(open_runs):
        size = needed(points.at(look))
        if (np.abs(size - available_bytes) <= ROUNDED * available_bytes).any():
            return np.flatnonzero(needed(points) <= available_bytes)
        fits = size <= available_bytes
        if len(look) > len(open_runs):
            # All in doubt were looked at: as many as fit do so up to there.
            low += np.bincount(np.searchsorted(first, look[fits], "right") - 1, minlength=len(low))
            break
        low[open_runs[fits]] = look[fits] + 1
        high[open_runs[~fits]] = look[~fits]
        open_runs = open_runs[low[open_runs] < high[open_runs]]
        start, left = low[open_runs], high[open_runs] - low[open_runs]
        look = start + left // 2
        if len(look) < left.sum() <= AT_ONCE:
            look = _all_of(start, left)
    return _all_of(first, low - first)


def _all_of(start: IntArray, count: IntArray) -> IntArray:
    """Numbers from each start on, as many as its count."""
    return np.repeat(start - (np.cumsum(count) - count), count) + np.arange(count.sum())


def runs_of(points: Points) -> tuple[IntArray, IntArray]:
    """Number of the first and of the last layout of every run."""
    *others, _ = points.index
    new = np.ones(len(points), dtype=np.bool_)
    new[1:] = np.logical_or.reduce([axis[1:] != axis[:-1] for axis in others])
    first = np.flatnonzero(new)
    return first, np.append(first[1:], len(points)) - 1
