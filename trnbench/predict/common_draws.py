"""Random draws that several predictions have in common, so that differences of them mean something.

What is not known of one prediction is often not known of another for the same reason. A number that
stands with the same value in two calibrations is one number: they are of one stack or chip, one
took it over from the other, or both repeat a belief that no measured row has moved. Its deviation
is drawn once. What rows have moved is a number of its own and drawn on its own.

How far measured times lie from predicted ones has two parts. The scatter of a stack's own measured
configurations is of each prediction alone. What an instance or a kind of model adds that the stack
was never measured on is common to all that is predicted with it.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from hashlib import blake2b
from statistics import NormalDist

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.training_stack import Spread, TrainingEfficiency, TrainingStack
from trnbench.facts.records import Record
from trnbench.predict.ranges import (
    Range,
    correlated,
    drawn_with,
    ranges_of,
    replaced,
)

COUNT = 2048
SEED = 0


class CommonDraws(Record):
    """Common draws: `count` of them, the same for the same seed."""

    count: int = COUNT
    seed: int = SEED

    def deviations(self, name: str) -> FloatArray:
        """Return standard normal deviations of what goes by a name, stratified, in random order.

        The same name has the same deviations; different names are independent.
        """
        return _deviations(f"{self.seed} {name}", self.count)

    def of(self, name: str, known: Range) -> FloatArray:
        """Return draws of a number with a range."""
        return known.at(self.deviations(name))


@lru_cache(maxsize=512)
def _deviations(name: str, count: int) -> FloatArray:
    key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
    found = _likely(count)[np.argsort(_scrambled(key, count))]
    found.flags.writeable = False
    return found


@cache
def _likely(count: int) -> FloatArray:
    """Return equally likely standard normal deviations, ascending."""
    quantile = NormalDist().inv_cdf
    return np.array([quantile((place + 0.5) / count) for place in range(count)])


def _scrambled(key: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return distinct numbers in random order: SplitMix64 of a counter (Steele et al., 2014)."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = np.uint64(key) + steps
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def drawn_efficiency(efficiency: TrainingEfficiency, draws: CommonDraws) -> TrainingEfficiency:
    """Return the efficiency with a row of common draws for every number that has a range."""
    ranges = ranges_of(efficiency)
    free = [key for key in ranges if drawn_with(key, ranges) == key]
    deviations = np.array([draws.deviations(number_name(key, ranges[key])) for key in free])
    deviations = correlated(deviations, free, efficiency.stack.correlated)
    by_key = dict(zip(free, deviations, strict=True))
    return replaced(
        efficiency, {key: one.at(by_key[drawn_with(key, ranges)]) for key, one in ranges.items()}
    )


def number_name(key: str, known: Range) -> str:
    """Return by what name a calibrated number is drawn: equal for what is one number."""
    return f"{key} {known.value!r}"


class Residual(Record):
    """How far a measured time lies from its prediction: in common with others, and alone."""

    stack: str
    common: Spread
    own: Spread

    def factors(self, draws: CommonDraws, row: str) -> FloatArray:
        """Return draws of measured over predicted time of the row that goes by a name."""
        common = draws.of(f"residual {self.stack}", _range(self.common))
        return common * draws.of(f"residual of {row}", _range(self.own))


def residual_of(stack: TrainingStack, measured: TrainingStack, spread: Spread) -> Residual:
    """Return the parts of a spread; `measured` is the stack whose rows the stack's numbers are of.

    The scatter of that stack's own configurations is of each row alone, as far as it goes.
    """
    own = measured.spread
    ends = (_less(spread.low, own.low), _less(spread.high, own.high))
    return Residual(
        stack=stack.name,
        common=Spread(low=math.exp(-ends[0]), high=math.exp(ends[1])),
        own=Spread(low=max(spread.low, own.low), high=min(spread.high, own.high)),
    )


def _less(whole: float, part: float) -> float:
    """Return the logarithm of what is left of a spread's end without an independent part of it."""
    return math.sqrt(max(math.log(whole) ** 2 - math.log(part) ** 2, 0.0))


def _range(spread: Spread) -> Range:
    return Range(value=1.0, low=spread.low, high=spread.high)
