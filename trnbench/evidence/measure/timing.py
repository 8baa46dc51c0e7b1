"""Repeats of a run until its median is known well enough, and what they say.

Model: the median of n repeats is known to 1.57 interquartile ranges over sqrt(n), the notch of a
box plot, with 95 % confidence (McGill, Tukey, Larsen 1978). Repeats beyond three interquartile
ranges of the quartiles are outliers: they are counted, and left in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from trnbench.facts.records import Record, replace

Clock = Callable[[], float]

_NOTCH = 1.57
_FENCE = 3.0


class Repeats(Record):
    """When enough was repeated: the median is known to `precision`, or `budget_s` is spent."""

    precision: float = 0.02
    least: int = 5
    most: int = 100
    budget_s: float = 1.0
    warm_up: int = 1


class Timing(Record):
    """What the repeats of a run took, seconds of the wall clock.

    `low_s` and `high_s` are the 5th and 95th of 100. `processor_s` is what all processors of the
    host were busy with one repeat. `known_to`: the half width of the median's interval over it.
    """

    median_s: float
    low_s: float
    high_s: float
    processor_s: float
    known_to: float
    repeats: int
    outliers: int

    @property
    def spread(self) -> float:
        """How far 90 % of the repeats lie apart, over the median: half of it either way."""
        return (self.high_s - self.low_s) / 2 / self.median_s

    def each(self, runs: int, *, less_s: float = 0.0) -> Timing:
        """Time of each of so many runs of a repeat, without what the repeat costs."""
        share = max(self.median_s - less_s, 0.1 * self.median_s) / self.median_s / runs
        return replace(
            self,
            median_s=self.median_s * share,
            low_s=self.low_s * share,
            high_s=self.high_s * share,
            processor_s=self.processor_s * share,
        )


def timed(
    run: Callable[[], object],
    rule: Repeats,
    *,
    clock: Clock = time.perf_counter,
    processor: Clock = time.process_time,
) -> Timing:
    """Return what repeats of a run take, after those that warm up."""
    for _ in range(rule.warm_up):
        run()
    taken: list[float] = []
    begun, begun_processor = clock(), processor()
    while True:
        before = clock()
        run()
        taken.append(clock() - before)
        if len(taken) < rule.least:
            continue
        found = _summed_up(taken, processor() - begun_processor)
        spent = clock() - begun
        if found.known_to <= rule.precision or len(taken) >= rule.most or spent >= rule.budget_s:
            return found


def _summed_up(taken: list[float], processor_s: float) -> Timing:
    seconds = np.asarray(taken)
    low, first, median, third, high = np.percentile(seconds, (5, 25, 50, 75, 95)).tolist()
    fence = _FENCE * (third - first)
    outside = (seconds < first - fence) | (seconds > third + fence)
    return Timing(
        median_s=median,
        low_s=low,
        high_s=high,
        processor_s=processor_s / len(taken),
        known_to=_NOTCH * (third - first) / len(taken) ** 0.5 / median if median else 0.0,
        repeats=len(taken),
        outliers=int(outside.sum()),
    )
