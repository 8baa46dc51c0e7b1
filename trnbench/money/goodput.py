"""Wall time from pure training time: checkpoints, failures, restarts, each term visible.

Model (Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps",
FGCS 22): failures come at a constant rate 1/M at any time, a restart R too. Work is cut into equal
segments, each followed by a dump; a segment with its dump takes x without a failure, and a failure
throws it back to its start. A segment then takes M exp(R/M) (exp(x/M) - 1) on average. Of that,
x is work and dump, M (exp(x/M) - 1) - x is lost, and the rest is restarts, broken ones included.

Ranges: an 80 % interval joins the chance of failures (by their variance) with the uncertainty of
rates and times (each moved alone to the ends of its range, the effects added as squares).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, fields
from trnbench.facts.units import DAY_S
from trnbench.money.failures import Operations, Unsure

LEVEL = 0.8
"""Share of cases that an interval contains, as for predicted step times."""
Amount = TypeVar("Amount", float, FloatArray)
"""Figures of one run, or arrays over runs."""
_SMALL = 1e-3
"""Below this, series are more exact than differences of nearly equal numbers."""
_DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)


class Goodput(Record, Generic[Amount]):
    """Wall time by cause, seconds; of one run, or arrays over runs."""

    start_s: Amount
    """Starts of all parts of a run."""
    work_s: Amount
    """Pure training."""
    checkpoint_s: Amount
    """Training stopped for checkpoints."""
    lost_s: Amount
    """Work repeated after failures."""
    restart_s: Amount
    """Recoveries."""
    segments: Amount
    """Pieces of work between checkpoints."""
    interval_s: Amount
    """Work of one segment."""
    dump_s: Amount
    """Training stopped for one checkpoint."""
    write_s: Amount
    """Writing of one checkpoint, mostly beside training."""
    checkpoint_bytes: Amount
    """Size of one checkpoint, over all ranks."""
    failures: Amount
    """Expected number in the run."""
    failures_per_day: Amount
    each_restart_s: Amount
    """Time of one recovery, without lost work."""
    deviation_s: Amount
    """Standard deviation of the wall time by the chance of failures."""
    low_wall_s: Amount
    """Lower end of the 80 % interval of the wall time."""
    high_wall_s: Amount
    seam_s: Amount
    """Time of a planned stop and start, as between Capacity Blocks."""

    @property
    def wall_s(self) -> Amount:
        """Expected wall time, all parts together, seconds."""
        return self.start_s + self.work_s + self.checkpoint_s + self.lost_s + self.restart_s

    @property
    def goodput(self) -> Amount:
        """Share of the wall time that is pure training."""
        return self.work_s / self.wall_s

    def at(self, index: tuple[int, ...] = ()) -> Goodput[float]:
        return Goodput(**at_index(self, index))


def at_index(runs: Record, index: tuple[int, ...]) -> dict[str, float]:
    """Figures of one run by name, of a record of arrays over runs."""
    return {one.name: float(getattr(runs, one.name)[index]) for one in fields(runs)}


def goodput(
    operations: Operations,
    *,
    work_s: ArrayLike,
    nodes: ArrayLike,
    checkpoint_bytes: ArrayLike,
    interval_s: float | None = None,
    ranges: bool = True,
    drawn: Mapping[Unsure, FloatArray] | None = None,
) -> Goodput[FloatArray]:
    """Wall time of runs, seconds; `interval_s` between checkpoints is Daly's unless given.

    `checkpoint_bytes` are of a whole checkpoint, over all ranks. Without `ranges` the ends of the
    wall time are the wall time itself. `drawn` replaces estimates, run by run.
    """
    work, count, size = np.broadcast_arrays(
        np.asarray(work_s, float), np.asarray(nodes, float), np.asarray(checkpoint_bytes, float)
    )
    if np.any(work <= 0) or np.any(count < 1) or np.any(size <= 0):
        raise InputError("a run needs work, a node and a checkpoint of more than 0 bytes")
    if interval_s is not None and not interval_s > 0:
        raise InputError(f"checkpoint interval {interval_s:g} s must be above 0")
    central = _conditions(operations, count, size, drawn)
    segments = _segments(central, work, interval_s)
    done = _done(central, work, segments)
    restarts = _restarts(central, done)
    wall = central.start_s + done + restarts
    deviation = np.sqrt(
        segments
        * segment_variance_s2(
            work / segments + central.dump_s, central.restart_s, central.failures_per_s
        )
    )
    low, high = wall, wall
    if ranges:
        low, high = _ends(operations, count, size, work, wall, deviation, interval_s)
    return Goodput(
        start_s=np.broadcast_to(central.start_s, work.shape),
        work_s=work,
        checkpoint_s=segments * central.dump_s,
        lost_s=np.maximum(done - work - segments * central.dump_s, 0.0),
        restart_s=restarts,
        segments=segments,
        interval_s=work / segments,
        dump_s=central.dump_s,
        write_s=central.write_s,
        checkpoint_bytes=size,
        failures=central.failures_per_s * (done + restarts),
        failures_per_day=central.failures_per_s * DAY_S,
        each_restart_s=central.restart_s,
        deviation_s=deviation,
        low_wall_s=low,
        high_wall_s=high,
        seam_s=central.write_s + operations.launch_s + central.write_s,
    )


class _Conditions(Record, eq=False):
    failures_per_s: FloatArray
    restart_s: FloatArray
    dump_s: FloatArray
    write_s: FloatArray
    start_s: float | FloatArray


def _conditions(
    operations: Operations,
    nodes: FloatArray,
    size: FloatArray,
    moved: Mapping[Unsure, float] | Mapping[Unsure, FloatArray] | None = None,
) -> _Conditions:
    """Failures and recoveries of runs, with some numbers moved from their estimates."""
    at: dict[Unsure, float | FloatArray] = {
        name: estimate.value for name, estimate in operations.estimates.items()
    }
    at.update(moved or {})
    write = size / np.minimum(
        nodes * at["write_per_node_bytes_per_s"], at["write_total_bytes_per_s"]
    )
    failed = nodes * at["failures_per_node_day"]
    taken, zones = nodes * at["interruptions_per_node_day"], at["zone_losses_per_day"]
    often = failed + taken + zones
    recovery = at["recovery_s"]
    # Numbers moved in rows are looked at row by row.
    fails = np.all(often > 0, axis=tuple(range(-nodes.ndim, 0)), keepdims=True)
    if fails.any():
        # While a zone has no machines nothing runs and nothing is paid: that is `available`.
        again = taken * operations.reclaimed_recovery_s + zones * operations.launch_s
        with np.errstate(divide="ignore", invalid="ignore"):
            recovery = np.where(fails, (failed * recovery + again) / often, recovery)
    return _Conditions(
        failures_per_s=often / DAY_S,
        restart_s=recovery + write,
        dump_s=at["stalled_share"] * write,
        write_s=write,
        start_s=at["start_s"],
    )


def _segments(met: _Conditions, work: FloatArray, interval_s: float | None) -> FloatArray:
    """Number of segments into which work is cut."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mtbf = 1 / met.failures_per_s
        interval = (
            np.where(met.failures_per_s > 0, daly_interval_s(met.dump_s, mtbf), np.inf)
            if interval_s is None
            else np.full(work.shape, interval_s)
        )
        # The next checkpoint cannot begin before the last one is written.
        return np.maximum(np.rint(work / np.maximum(interval, met.write_s - met.dump_s)), 1.0)


def _done(met: _Conditions, work: FloatArray, segments: FloatArray) -> FloatArray:
    return segments * until_done_s(work / segments + met.dump_s, met.failures_per_s)


def _restarts(met: _Conditions, done_s: FloatArray) -> FloatArray:
    # Restarts that fail again are included.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(done_s * np.expm1(met.restart_s * met.failures_per_s))


def _ends(
    operations: Operations,
    nodes: FloatArray,
    size: FloatArray,
    work: FloatArray,
    wall: FloatArray,
    deviation: FloatArray,
    interval_s: float | None,
) -> tuple[FloatArray, FloatArray]:
    estimates = operations.estimates
    moves = [
        (name, value)
        for name, estimate in estimates.items()
        for value in (estimate.low, estimate.high)
        if value != estimate.value
    ]
    # All moves at once, a row each, in which one number is at an end of its range.
    column = len(moves), *(1,) * work.ndim
    moved: dict[Unsure, FloatArray] = {}
    for row, (name, value) in enumerate(moves):
        moved.setdefault(name, np.full(column, estimates[name].value))[row] = value
    met = _conditions(operations, nodes, size, moved)
    # The checkpoint interval follows the moved rates: operators see them and adjust it.
    done = _done(met, work, _segments(met, work, interval_s))
    below = above = (_DEVIATIONS * deviation) ** 2
    with np.errstate(over="ignore", invalid="ignore"):
        change = (
            np.broadcast_to(met.start_s + done + _restarts(met, done), (len(moves), *work.shape))
            - wall
        )
        for one in change:
            below = below + np.minimum(one, 0) ** 2
            above = above + np.maximum(one, 0) ** 2
    ends = np.isfinite(wall)
    return (
        np.where(ends, np.maximum(wall - np.sqrt(below), work), wall),
        np.where(ends, wall + np.sqrt(above), wall),
    )


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
