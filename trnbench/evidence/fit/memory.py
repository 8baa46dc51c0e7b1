"""Fit of a stack's memory overheads to measured memory.

Every number of `[memory]` with a range, and the allocator's loss, starts from its prior; residuals
are logarithms of predicted over measured bytes, outliers weighted less. A fit is kept only if
left-out configurations are predicted no worse than before. The range of `whole` is conformal: each
end is the quantile of what left-out configurations ask for beyond the other numbers, as that of
times is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trnbench.evidence.fit.calibrate import UNMOVED, mean_error, reach
from trnbench.evidence.fit.left_out import LeftOut
from trnbench.evidence.fit.solve import DAMPINGS
from trnbench.facts.arrays import BoolArray, FloatArray
from trnbench.facts.calibration.population import WHOLE
from trnbench.facts.records import Record, replace
from trnbench.predict.fit import CountedMemory, LayoutMemory, ManyLayouts, memory_ranges
from trnbench.predict.ranges import END, Range

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
    """Moved numbers by key; the range of the whole alone if the fit is no better."""
    prior: float
    error: float
    without_configuration: float
    """Error of rows by fits without their configuration."""
    left_out: Mapping[str, LeftOut]
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
    unseen, reaches = np.empty(len(rows)), np.empty(len(rows))
    for trial in range(min(TRIALS, len(names))):
        part = set(names[trial::TRIALS])
        left = np.array([row.configuration in part for row in rows])
        # Start at the full fit: nearby, hence few steps.
        at, wide = problem.fitted(start if left.all() else found, ~left)
        unseen[left] = problem.logs(at[np.newaxis])[left, 0]
        reaches[left] = problem.reaches(at, wide)[left]
    before, after = problem.logs(np.array([start, found])).T
    prior, without = (mean_error(np.expm1(logs)) for logs in (before, unseen))
    better = without <= prior
    moved = {
        key: _after(known[key], deviation, width)
        for key, deviation, width in zip(known, found, widths, strict=True)
        if width < UNMOVED
    }
    if not better:  # rows lie as far as they lay before
        unseen, after = before, before
        reaches, moved = problem.reaches(start, np.ones(len(known))), {}
    asked = _Asked(known[WHOLE], [row.configuration for row in rows], -unseen, reaches)
    moved[WHOLE] = _scattered(moved.get(WHOLE, known[WHOLE]), asked.ends(None))
    return MemoryFit(
        rows=len(rows),
        moved=moved,
        prior=prior,
        error=mean_error(np.expm1(after)),
        without_configuration=without,
        left_out={
            row.id: LeftOut(ratio=ratio, low=math.exp(-low), high=math.exp(high))
            for row, ratio, known_reach in zip(rows, np.exp(unseen - after), reaches, strict=True)
            for low, high in [
                (math.hypot(known_reach, one) for one in asked.ends(row.configuration))
            ]
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

    def reaches(self, at: FloatArray, widths: FloatArray) -> FloatArray:
        """Log reach of each row's bytes by all numbers but the whole, to an end of 80 %."""
        size = len(at)
        seen = self.logs(at + _STEP * np.eye(size + 1, size, -1))
        slopes = (seen[:, 1:] - seen[:, :1]) / _STEP
        others = np.array([key != WHOLE for key in self.known])
        return np.asarray(END * np.sqrt(((slopes * widths)[:, others] ** 2).sum(axis=1)))

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


def _scattered(fitted: Range, ends: tuple[float, float]) -> Range:
    down, up = map(math.exp, ends)
    return replace(fitted, low=fitted.value / down, high=fitted.value * up)


class _Asked(NamedTuple):
    """Log residuals of rows, measured over predicted, and what other numbers reach anyhow."""

    prior: Range
    configurations: Sequence[str]
    off: FloatArray
    reaches: FloatArray

    def ends(self, without: str | None) -> tuple[float, float]:
        """Log reaches of the whole down and up, as configurations but one ask for them."""
        counts = Counter(self.configurations)
        beyond = np.sign(self.off) * np.sqrt(np.maximum(self.off**2 - self.reaches**2, 0.0))
        told = [
            (float(one), 1 / math.sqrt(counts[name]))
            for one, name in zip(beyond, self.configurations, strict=True)
            if name != without
        ]
        prior = self.prior
        return (
            reach([(-one, weight) for one, weight in told], math.log(prior.value / prior.low)),
            reach(told, math.log(prior.high / prior.value)),
        )
