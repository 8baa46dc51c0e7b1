"""Checkpoints and failures as a renewal process: expected time and its variance, in closed form.

Model (Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps",
FGCS 22): failures come at a constant rate 1/M at any time, a restart R too. Work is cut into equal
segments, each followed by a dump; a segment with its dump takes x without a failure, and a failure
throws it back to its start. A segment then takes M exp(R/M) (exp(x/M) - 1) on average. Of that,
x is work and dump, M (exp(x/M) - 1) - x is lost, and the rest is restarts, broken ones included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from trnbench.facts.arrays import FloatArray

_SMALL = 1e-3
"""Below this, series are more exact than differences of nearly equal numbers."""


def young_interval_s(dump_s: ArrayLike, mtbf_s: ArrayLike) -> FloatArray:
    """Young's first-order interval of work between dumps, seconds: sqrt(2 d M)."""
    return np.asarray(np.sqrt(2 * np.asarray(dump_s, float) * np.asarray(mtbf_s, float)))


def daly_interval_s(dump_s: ArrayLike, mtbf_s: ArrayLike) -> FloatArray:
    """Daly's higher-order interval of work between dumps, seconds.

    sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d where d < 2M, and M beyond.
    """
    dump, mtbf = np.broadcast_arrays(np.asarray(dump_s, float), np.asarray(mtbf_s, float))
    half = dump / (2 * mtbf)
    with np.errstate(invalid="ignore"):
        near = young_interval_s(dump, mtbf) * (1 + np.sqrt(half) / 3 + half / 9) - dump
    return np.where(half < 1, near, mtbf)


def until_done_s(span_s: ArrayLike, failures_per_s: ArrayLike) -> FloatArray:
    """Expected seconds until a span without failure has passed: M (exp(x/M) - 1)."""
    span, rate = np.broadcast_arrays(np.asarray(span_s, float), np.asarray(failures_per_s, float))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return np.where(rate > 0, np.expm1(span * rate) / rate, span)


def segment_variance_s2(
    span_s: ArrayLike, restart_s: ArrayLike, failures_per_s: ArrayLike
) -> FloatArray:
    """Variance of the time of one segment, restarts included, in square seconds.

    A segment is its span and a geometric number of failures. Each failure costs the time up to it
    and a restart; a restart is itself a span with a geometric number of failures.
    """
    span, restart, rate = np.broadcast_arrays(
        np.asarray(span_s, float), np.asarray(restart_s, float), np.asarray(failures_per_s, float)
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean_restart = until_done_s(restart, rate)
        variance = _variance(span * rate, mean_restart * rate, _variance(restart * rate, 0.0, 0.0))
        return np.where(rate > 0, variance / rate**2, 0.0)


def _variance(
    span: FloatArray, mean_after: FloatArray | float, variance_after: FloatArray | float
) -> FloatArray:
    """Variance of the time until a span has passed, in units of M squared.

    `mean_after`, `variance_after`: of the time after each failure.
    """
    failures = np.expm1(span)
    broken, broken_variance = _broken(span)
    return np.asarray(
        failures * (broken_variance + variance_after)
        + failures * (1 + failures) * (broken + mean_after) ** 2
    )


def _broken(span: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(mean, variance) of the time of a failure that comes within a span; units of M."""
    grown = np.expm1(span)
    mean = np.where(span < _SMALL, span / 2 - span**2 / 12, 1 - span / grown)
    series = span**2 / 12 - span**4 / 240
    return mean, np.where(span < _SMALL, series, 1 - span**2 * np.exp(span) / grown**2)
