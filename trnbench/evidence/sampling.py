"""How wrong a prediction can be: samples of what is not known, and an interval from them.

Samples are stratified: every number takes each of `count` equally likely values once, but for those
whose deviations go together. Numbers that one kernel sets take them at once.
"""

from __future__ import annotations

import math
from random import Random  # whose import takes a tenth of the time of numpy.random's
from statistics import NormalDist

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.evidence.ranges import TAIL, TIED, correlation_matrix, ranges_of, replaced
from trnbench.spec.training_stack import Spread, TrainingEfficiency


def sampled(
    efficiency: TrainingEfficiency, *, count: int, seed: int, median_first: bool = False
) -> TrainingEfficiency:
    """Return the efficiency with a row of samples for every number that has a range.

    With `median_first` a sample more stands in front of them: the efficiency itself.
    """
    ranges = ranges_of(efficiency)
    free = [key for key in ranges if key not in TIED]
    quantile = NormalDist().inv_cdf
    likely = [quantile((i + 0.5) / count) for i in range(count)]
    random = Random(seed)
    draws = np.array([random.sample(likely, count) for _ in free]).reshape(len(free), count)
    pairs = efficiency.stack.correlated
    if pairs:
        draws = np.linalg.cholesky(correlation_matrix(free, pairs)) @ draws
    if median_first:
        draws = np.column_stack([np.zeros(len(free)), draws])
    drawn = dict(zip(free, draws, strict=True))
    return replaced(
        efficiency, {key: one.at(drawn[TIED.get(key, key)]) for key, one in ranges.items()}
    )


def interval(samples_s: FloatArray, spread: Spread) -> tuple[float, float]:
    """Return the ends of the interval of a time, seconds, from samples of its prediction.

    What the parameters leave open and how far measured times lie from predicted ones are taken as
    independent: their distances from the median add in squares, as logarithms.
    """
    low, median, high = np.quantile(samples_s, (TAIL, 0.5, 1 - TAIL)).tolist()
    down = math.hypot(math.log(median / low), math.log(spread.low))
    up = math.hypot(math.log(high / median), math.log(spread.high))
    return median * math.exp(-down), median * math.exp(up)
