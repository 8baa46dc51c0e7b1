"""Random draws shared by several predictions, so that differences between them mean something.

Two predictions are often uncertain for the same reason. A number that has the same value in two
calibrations counts as one number: both are of one stack or chip, one inherited the value from the
other, or both repeat a belief that no measured row has moved. Its deviation is drawn once. A number
that was fitted to rows is drawn on its own.

The residual (measured over predicted time) has two parts. The scatter of a stack's own measured
configurations is drawn for each prediction alone. The additional scatter on an instance or kind of
model without measured rows is common to all predictions of the stack.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from hashlib import blake2b
from statistics import NormalDist

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.training_stack import TrainingEfficiency, TrainingStack
from trnbench.facts.records import Record
from trnbench.predict.ranges import Range, best_of, correlated, drawn_with, ranges_of, replaced
from trnbench.predict.sampling import sampled_numbers

COUNT = 2048
"""Draws of each number."""
SEED = 0


class CommonDraws(Record):
    """Common draws: `count` of them, the same for the same seed."""

    count: int = COUNT
    seed: int = SEED

    def deviations(self, name: str) -> FloatArray:
        """Standard normal deviations of the number with this name, stratified, in random order.

        The same name has the same deviations; different names are independent.
        """
        return _deviations(f"{self.seed} {name}", self.count)

    def of(self, name: str, known: Range) -> FloatArray:
        return known.at(self.deviations(name))


@lru_cache(maxsize=512)
def _deviations(name: str, count: int) -> FloatArray:
    # By name, not in order of request: another calibration in between changes no draws.
    key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
    shuffled = _likely(count)[np.argsort(_scrambled(key, count))]
    # Shared by all callers through the cache.
    shuffled.flags.writeable = False
    return shuffled


@cache
def _likely(count: int) -> FloatArray:
    quantile = NormalDist().inv_cdf
    return np.array([quantile((place + 0.5) / count) for place in range(count)])


def _scrambled(key: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Distinct numbers in random order: SplitMix64 of a counter (Steele et al., 2014)."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = np.uint64(key) + steps
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def drawn_efficiency(efficiency: TrainingEfficiency, draws: CommonDraws) -> TrainingEfficiency:
    """Efficiency with a row of common draws for every number that has a range."""
    return replaced(efficiency, drawn_numbers(efficiency, draws))


def sampled_and_drawn(efficiency: TrainingEfficiency, draws: CommonDraws) -> TrainingEfficiency:
    """Efficiency with a row of samples for every number that has a range, then one of draws."""
    sampled, drawn = sampled_numbers(efficiency), drawn_numbers(efficiency, draws)
    return replaced(
        efficiency, {key: np.concatenate([row, drawn[key]]) for key, row in sampled.items()}
    )


def drawn_numbers(efficiency: TrainingEfficiency, draws: CommonDraws) -> dict[str, FloatArray]:
    """A row of common draws for every number that has a range, by key.

    Each row begins with the number itself, and ends with the value at which a step is fastest.
    """
    ranges = ranges_of(efficiency)
    free = [key for key in ranges if drawn_with(key, ranges) == key]
    deviations = np.array([draws.deviations(number_name(key, ranges[key])) for key in free])
    deviations = correlated(deviations, free, efficiency.stack.correlated)
    by_key = dict(zip(free, deviations, strict=True))
    return {
        key: np.concatenate(
            [[bounds.value], bounds.at(by_key[drawn_with(key, ranges)]), [best_of(key, bounds)]]
        )
        for key, bounds in ranges.items()
    }


def number_name(key: str, known: Range) -> str:
    """Name under which a calibrated number is drawn: key and value, equal for the same number."""
    return f"{key} {known.value!r}"


class Residual(Record):
    """Measured over predicted time, as a common and an own part."""

    stack: str
    """Name of the stack: its predictions share the common part."""
    common: Spread
    """Spread drawn once for all predictions with the stack."""
    own: Spread
    """Spread drawn for each prediction alone."""

    def factors(self, draws: CommonDraws, row: str) -> FloatArray:
        """Draws of measured over predicted time for the prediction named `row`."""
        common = draws.of(f"residual {self.stack}", _range(self.common))
        return common * draws.of(f"residual of {row}", _range(self.own))


def residual_of(stack: TrainingStack, measured: TrainingStack, spread: Spread) -> Residual:
    """Common and own part of a spread.

    `measured` is the stack from whose measured rows the stack's numbers come. The scatter of its
    own configurations, up to the whole spread, is the own part.
    """
    own = measured.spread
    ends = (_less(spread.low, own.low), _less(spread.high, own.high))
    return Residual(
        stack=stack.name,
        common=Spread(low=math.exp(-ends[0]), high=math.exp(ends[1])),
        own=Spread(low=max(spread.low, own.low), high=min(spread.high, own.high)),
    )


def _less(whole: float, part: float) -> float:
    # Independent spreads add in squares of their logarithms.
    return math.sqrt(max(math.log(whole) ** 2 - math.log(part) ** 2, 0.0))


def _range(spread: Spread) -> Range:
    return Range(value=1.0, low=spread.low, high=spread.high)
