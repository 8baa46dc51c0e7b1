"""How wrong a prediction can be: samples of what is not known, and an interval from them.

Samples are stratified: every number takes each of `count` equally likely values once, but for those
whose deviations go together. Numbers that one kernel sets take them at once.
"""

from __future__ import annotations

import math
from functools import cache
from random import Random  # whose import takes a tenth of the time of numpy.random's
from statistics import NormalDist

import numpy as np

from trnbench.facts.arrays import FloatArray, quantiles
from trnbench.facts.calibration.training_stack import Spread, TrainingEfficiency
from trnbench.predict.ranges import TAIL, correlated, drawn_with, ranges_of, replaced

SAMPLES = 200
SEED = 0


def sampled(
    efficiency: TrainingEfficiency, *, count: int = SAMPLES, seed: int = SEED
) -> TrainingEfficiency:
    """Return the efficiency with a row for every number that has a range.

    The row begins with the number itself; `count` samples of what it may be instead follow.
    """
    ranges = ranges_of(efficiency)
    free = [key for key in ranges if drawn_with(key, ranges) == key]
    draws = np.array(_shuffled(len(free), count, seed)).reshape(len(free), count)
    draws = correlated(draws, free, efficiency.stack.correlated)
    draws = np.column_stack([np.zeros(len(free)), draws])
    drawn = dict(zip(free, draws, strict=True))
    return replaced(
        efficiency, {key: one.at(drawn[drawn_with(key, ranges)]) for key, one in ranges.items()}
    )


@cache
def _shuffled(rows: int, count: int, seed: int) -> list[list[float]]:
    """Return the equally likely values of a standard normal number, in a random order each row."""
    quantile = NormalDist().inv_cdf
    likely = [quantile((i + 0.5) / count) for i in range(count)]
    random = Random(seed)
    return [random.sample(likely, count) for _ in range(rows)]


def interval(times_s: FloatArray, spread: Spread) -> tuple[float, float]:
    """Return the ends of the interval of a predicted time, seconds.

    `times_s`: by the calibration itself, then by samples of what it may be instead. The samples
    alone are the sample set: the calibration is no draw from its own ranges. It need not lie at
    their middle either, so the interval is widened until it holds the calibration's time.

    What the parameters leave open and how far measured times lie from predicted ones are taken as
    independent: their distances from the median add in squares, as logarithms.
    """
    time_s, *_ = times_s.tolist()
    drawn_s = times_s[1:] if len(times_s) > 1 else times_s
    low, median, high = quantiles(drawn_s, (TAIL, 0.5, 1 - TAIL))
    down = math.hypot(math.log(median / low), math.log(spread.low))
    up = math.hypot(math.log(high / median), math.log(spread.high))
    return min(median * math.exp(-down), time_s), max(median * math.exp(up), time_s)
