"""Uncertainty of a prediction: samples of the calibration's numbers, and an interval from them.

Samples are stratified: every number takes each of `count` equally likely values once, except
numbers with correlated deviations. Numbers that one kernel sets share their deviations.
"""

from __future__ import annotations

import math
from functools import cache
from random import Random  # whose import takes a tenth of the time of numpy.random's
from statistics import NormalDist
from threading import Lock

import numpy as np

from trnbench.facts.arrays import FloatArray, quantiles
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.predict.ranges import (
    TAIL,
    best_of,
    correlated,
    drawn_with,
    numbers_at,
    ranges_of,
    replaced,
)

SAMPLES = 200
"""Samples of each number in a prediction."""
SEED = 0


def sampled(
    efficiency: TrainingEfficiency, *, count: int = SAMPLES, seed: int = SEED
) -> TrainingEfficiency:
    """Efficiency with a row of samples for every number that has a range."""
    return replaced(efficiency, sampled_numbers(efficiency, count=count, seed=seed))


def sampled_numbers(
    efficiency: TrainingEfficiency, *, count: int = SAMPLES, seed: int = SEED
) -> dict[str, FloatArray]:
    """A row of samples for every number that has a range, by key.

    The row begins with the number itself; `count` samples from its range follow, and at the end
    the value at which a step is fastest.
    """
    ranges = ranges_of(efficiency)
    free = [key for key in ranges if drawn_with(key, ranges) == key]
    draws = _shuffled(len(free), count, seed)
    draws = correlated(draws, free, efficiency.stack.correlated)
    # Column 0 is the calibration itself, without deviation.
    draws = np.column_stack([np.zeros(len(free)), draws])
    place = {key: row for row, key in enumerate(free)}
    drawn = draws[[place[drawn_with(key, ranges)] for key in ranges]]
    best = [[best_of(key, bounds)] for key, bounds in ranges.items()]
    rows = np.hstack([numbers_at([*ranges.values()], drawn), np.reshape(best, (-1, 1))])
    return dict(zip(ranges, rows, strict=True))


_DRAWING = Lock()


@cache
def _shuffled(rows: int, count: int, seed: int) -> FloatArray:
    """Equally likely values of a standard normal number, each row in another random order."""
    random, likely, known = _rows(count, seed)
    # Rows are drawn one after the other, by one thread at a time: those of fewer numbers begin
    # those of more.
    with _DRAWING:
        known += (random.sample(likely, count) for _ in range(rows - len(known)))
    found = np.array(known[:rows]).reshape(rows, count)
    found.flags.writeable = False  # every efficiency with as many numbers reads it
    return found


@cache
def _rows(count: int, seed: int) -> tuple[Random, list[float], list[list[float]]]:
    """The source of rows, the values of each row, and the rows so far."""
    quantile = NormalDist().inv_cdf
    return Random(seed), [quantile((i + 0.5) / count) for i in range(count)], []


def interval(times_s: FloatArray, spread: Spread) -> tuple[float, float]:
    """Ends of the 80 % interval of a predicted time, seconds.

    `times_s` holds the time by the calibration itself, then by each sample, and at the end the
    least that the chip, its memory and its links allow, which no end passes. The calibration was
    fitted, and the spread observed, about the first: it is the middle. The median of samples lies
    elsewhere where ranges reach to one side, so their quantiles count as distances from it.

    Uncertain parameters and the spread of measured over predicted times count as independent: their
    distances add in squares, as logarithms.
    """
    time_s, least_s = float(times_s[0]), float(times_s[-1])
    drawn_s = times_s[1:-1] if len(times_s) > 2 else times_s[:1]
    if len(times_s) == 1:  # nothing is uncertain but the spread
        least_s = 0.0
    low, median, high = quantiles(drawn_s, (TAIL, 0.5, 1 - TAIL))
    down = math.hypot(math.log(median / low), math.log(spread.low))
    up = math.hypot(math.log(high / median), math.log(spread.high))
    low_s = min(max(time_s * math.exp(-down), least_s), time_s)
    return low_s, time_s * math.exp(up)
