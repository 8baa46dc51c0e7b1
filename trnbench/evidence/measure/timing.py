"""Repeats of a run until its median is precise enough, and their statistics.

The 95 % confidence interval of the median of n repeats is 1.57 interquartile ranges over sqrt(n),
the notch of a box plot (McGill, Tukey, Larsen 1978). Repeats beyond three interquartile ranges of
the quartiles are counted as outliers, and kept.
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
    """Stopping rule: the median is known to `precision`, or `budget_s` is spent."""

    precision: float = 0.02
    least: int = 5
    most: int = 100
    budget_s: float = 1.0
    warm_up: int = 1


class Timing(Record):
    """Statistics of a run's repeats, s of wall time."""

    median_s: float
    low_s: float
    """5th percentile; `high_s`: 95th."""
    high_s: float
    processor_s: float
    """Busy time of all host processors per repeat."""
    known_to: float
    """Half width of the median's confidence interval, over the median."""
    repeats: int
    outliers: int

    @property
    def spread(self) -> float:
        """Half the range of the middle 90 % of repeats, over the median."""
        return (self.high_s - self.low_s) / 2 / self.median_s

    def each(self, runs: int, *, less_s: float = 0.0) -> Timing:
        """Timing of each of `runs` runs in a repeat, without the repeat's own cost `less_s`."""
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
    """Timing of a run after its warm-up."""
    for _ in range(rule.warm_up):
        run()
    taken: list[float] = []
    begun, begun_processor = clock(), processor()
    while True:
        before = clock()
        run()
        taken.append(clock() - before)
        # Too few repeats have no meaningful quartiles.
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
