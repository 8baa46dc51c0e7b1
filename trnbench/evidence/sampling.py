"""How wrong a prediction can be: samples of what is not known, and an interval from them.

Samples are stratified: every number takes each of `count` equally likely values once. Numbers that
one kernel sets take them together.
"""

from __future__ import annotations

import math
from random import Random  # whose import takes a tenth of the time of numpy.random's
from statistics import NormalDist

import numpy as np

from trnbench.evidence.ranges import TAIL, TIED, FloatArray, ranges_of, replaced
from trnbench.spec.training_stack import Spread, TrainingEfficiency


def sampled(
    efficiency: TrainingEfficiency, *, count: int, seed: int, median_first: bool = False
) -> TrainingEfficiency:
    """Return the efficiency with a row of samples for every number that has a range.

    With `median_first` a sample more stands in front of them: the efficiency itself.
    """
    quantile = NormalDist().inv_cdf
    likely = [quantile((i + 0.5) / count) for i in range(count)]
    random = Random(seed)
    drawn: dict[str, FloatArray] = {}
    rows: dict[str, FloatArray] = {}
    for key, one in ranges_of(efficiency).items():
        source = TIED.get(key, key)
        if source not in drawn:
            random.shuffle(likely)
            drawn[source] = np.array([*([0.0] if median_first else []), *likely])
        rows[key] = one.at(drawn[source])
    return replaced(efficiency, rows)


def interval(samples_s: FloatArray, spread: Spread) -> tuple[float, float]:
    """Return the ends of the interval of a time, seconds, from samples of its prediction.

    What the parameters leave open and how far measured times lie from predicted ones are taken as
    independent: their distances from the median add in squares, as logarithms.
    """
    low, median, high = np.quantile(samples_s, (TAIL, 0.5, 1 - TAIL)).tolist()
    down = math.hypot(math.log(median / low), math.log(spread.low))
    up = math.hypot(math.log(high / median), math.log(spread.high))
    return median * math.exp(-down), median * math.exp(up)
