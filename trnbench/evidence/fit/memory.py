"""Fit of a stack's memory overheads to measured memory.

Every number of `[memory]` with a range, and the allocator's loss, starts from its prior; residuals
are logarithms of predicted over measured bytes, outliers weighted less. The remaining scatter
becomes the range of `whole`. A fit is kept only if left-out configurations are predicted no worse
than before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trnbench.evidence.fit.calibrate import PRIOR_ROWS, UNMOVED, mean_error
from trnbench.evidence.fit.solve import DAMPINGS
from trnbench.facts.arrays import BoolArray, FloatArray
from trnbench.facts.records import Record, replace
from trnbench.predict.fit import CountedMemory, LayoutMemory, ManyLayouts, memory_ranges
from trnbench.predict.ranges import END, Range

WHOLE = "memory.whole"
SCATTER = 0.06
"""Log standard deviation of a row, before the fit."""
TRIALS = 5
"""Number of folds of the configurations."""
_STEP = 1e-4
"""Finite difference, in deviations."""
_ENOUGH = 1e-7
"""Gain below which the search stops."""


class HeldRow(Record, eq=False):
    """A row with measured memory: of rank 0 by its framework, or of a chip."""

    id: str
    configuration: str
    memory: LayoutMemory
    of: CountedMemory
    measured_bytes: float


class MemoryFit(Record):
    """Fit of a stack's memory numbers; errors are mean absolute ones."""

    rows: int
    moved: Mapping[str, Range]
    """Moved numbers by key; empty if left-out rows are predicted worse than before."""
    prior: float
    error: float
    without_configuration: float
    """Error of rows by fits without their configuration."""
    left_out: Mapping[str, float]
    """Bytes by a fit without the row's configuration, over those with it, by row."""


def fit_memory(rows: Sequence[HeldRow]) -> MemoryFit:
    """Numbers of one stack's memory by its rows."""
    known = memory_ranges(rows[0].memory.stack)
    problem = _Problem(
        known=known,
        layouts=ManyLayouts.of([(row.memory, row.of) for row in rows]),
        measured_bytes=np.array([row.measured_bytes for row in rows]),
    )
    start = np.zeros(len(known))
    found, widths = problem.fitted(start, np.ones(len(rows), dtype=bool))
    names = list(dict.fromkeys(row.configuration for row in rows))
    unseen = np.empty(len(rows))
    for trial in range(min(TRIALS, len(names))):
        part = set(names[trial::TRIALS])
        left = np.array([row.configuration in part for row in rows])
        # Start at the full fit: nearby, hence few steps.
        deviations = problem.fitted(start if left.all() else found, ~left)[0]
        unseen[left] = problem.logs(deviations[np.newaxis])[left, 0]
    before, after = problem.logs(np.array([start, found])).T
    prior, without = (mean_error(np.expm1(logs)) for logs in (before, unseen))
    better = without <= prior
    moved = {
        key: _after(known[key], deviation, width)
        for key, deviation, width in zip(known, found, widths, strict=True)
        if width < UNMOVED
    }
    if WHOLE in known:
        moved[WHOLE] = _scattered(moved.get(WHOLE, known[WHOLE]), known[WHOLE], unseen)
    return MemoryFit(
        rows=len(rows),
        moved=moved if better else {},
        prior=prior,
        error=mean_error(np.expm1(after if better else before)),
        without_configuration=without,
        left_out={
            row.id: float(ratio) for row, ratio in zip(rows, np.exp(unseen - after), strict=True)
        },
    )


def fits_by_stack(rows: Collection[HeldRow]) -> Mapping[str, MemoryFit]:
    """The fit of every stack that has rows and numbers with ranges, by name."""
    stacks: dict[str, list[HeldRow]] = {}
    for row in rows:
        if WHOLE in memory_ranges(row.memory.stack):
            stacks.setdefault(row.memory.stack.name, []).append(row)
    return {name: fit_memory(of_stack) for name, of_stack in stacks.items()}


class _Problem(Record, eq=False):
    """Rows of one stack, and the numbers with ranges that their memory follows from."""

    known: Mapping[str, Range]
    layouts: ManyLayouts
    measured_bytes: FloatArray

    def logs(self, points: FloatArray) -> FloatArray:
        """Logarithms of predicted over measured bytes [rows, points], by deviations."""
        numbers = {
            key: one.at(points[:, place]) for place, (key, one) in enumerate(self.known.items())
        }
        return np.log(self.layouts.bytes_by(numbers) / self.measured_bytes[:, np.newaxis])

    def fitted(self, start: FloatArray, kept: BoolArray) -> tuple[FloatArray, FloatArray]:
        """The most likely deviations by the rows kept, and their widths over the priors'."""
        now, cost = start, math.inf
        while True:
            size = len(now)
            seen = _robust(self.logs(now + _STEP * np.eye(size + 1, size, -1))[kept] / SCATTER)
            slopes = (seen[:, 1:] - seen[:, :1]) / _STEP
            matrix, pull = slopes.T @ slopes + np.eye(size), slopes.T @ seen[:, 0] + now
            cost = min(cost, float(seen[:, 0] @ seen[:, 0] + now @ now))
            damped = (matrix + damping * np.eye(size) for damping in DAMPINGS)
            tried = np.array([now - np.linalg.solve(one, pull) for one in damped])
            far = _robust(self.logs(tried)[kept] / SCATTER)
            costs = (far**2).sum(axis=0) + (tried**2).sum(axis=1)
            best = int(np.argmin(costs))
            if cost - float(costs[best]) < _ENOUGH:
                return now, np.sqrt(np.diag(np.linalg.inv(matrix)))
            now = tried[best]


def _robust(residuals: FloatArray) -> FloatArray:
    return np.asarray(np.sign(residuals) * np.sqrt(2 * (np.hypot(1, residuals) - 1)))


def _after(prior: Range, deviation: float, width: float) -> Range:
    value, low, high = (
        float(prior.at(np.asarray(deviation + width * at))) for at in (0.0, -END, END)
    )
    return replace(prior, value=value, low=min(low, value), high=max(high, value))


def _scattered(fitted: Range, prior: Range, logs: FloatArray) -> Range:
    """The range of the whole: what left-out rows scatter, near what was believed before."""
    believed = math.log(prior.high / prior.low) / (2 * END)
    # Of normal deviations the mean absolute one, which outliers move less.
    told = float(np.mean(np.abs(logs))) * math.sqrt(math.pi / 2)
    rows = len(logs)
    spread = math.sqrt((PRIOR_ROWS * believed**2 + rows * told**2) / (PRIOR_ROWS + rows))
    reach = math.exp(END * spread)
    return replace(fitted, low=fitted.value / reach, high=fitted.value * reach)
