"""Failures played one by one from a seed: what the closed form of `recovery` must agree with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.units import DAY_S
from trnbench.money.goodput import Goodput


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """Wall times of one run played many times, seconds, and how often each was interrupted."""

    walls_s: FloatArray
    failures: FloatArray

    @property
    def mean_s(self) -> float:
        """The mean wall time."""
        return float(self.walls_s.mean())

    @property
    def standard_error_s(self) -> float:
        """The standard error of the mean."""
        return float(self.walls_s.std(ddof=1) / math.sqrt(len(self.walls_s)))

    def quantile_s(self, share: float) -> float:
        """Return the wall time that this share of the runs stays below."""
        return float(np.quantile(self.walls_s, share))


def play(expected: Goodput, *, runs: int, seed: int) -> Played:
    """Return wall times of a run (one, not an array of them) under random failures.

    Every failure throws a run back to its last checkpoint and restarts it; a failure during a
    restart begins the restart anew.
    """
    if runs < 2:
        raise InputError("play two runs or more")
    if expected.wall_s.ndim or not np.isfinite(expected.wall_s):
        raise InputError("only one run that ends can be played")
    chance = np.random.default_rng(seed)
    per_s = float(expected.failures_per_day) / DAY_S
    span = float(expected.interval_s + expected.dump_s)
    restart = float(expected.each_restart_s)
    walls = np.full(runs, float(expected.start_s))
    failures = np.zeros(runs)
    left = np.full(runs, float(expected.segments))
    running = np.arange(runs)
    while len(running):
        undisturbed = (
            chance.exponential(1 / per_s, len(running)) if per_s else np.full(runs, np.inf)
        )
        needed = left[running] * span
        walls[running] += np.minimum(undisturbed, needed)
        ends = undisturbed >= needed
        left[running[~ends]] -= np.floor(undisturbed[~ends] / span)
        running = running[~ends]
        failures[running] += 1
        _restart(running, restart, per_s, chance, walls, failures)
    return Played(walls_s=walls, failures=failures)


def _restart(
    runs: np.ndarray[tuple[int], np.dtype[np.int64]],
    restart_s: float,
    failures_per_s: float,
    chance: np.random.Generator,
    walls: FloatArray,
    failures: FloatArray,
) -> None:
    """Add what it takes until each of the runs has restarted."""
    while len(runs):
        undisturbed = chance.exponential(1 / failures_per_s, len(runs))
        walls[runs] += np.minimum(undisturbed, restart_s)
        runs = runs[undisturbed < restart_s]
        failures[runs] += 1
