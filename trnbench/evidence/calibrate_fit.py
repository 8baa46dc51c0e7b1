"""Regularised least squares of a calibration, and how sure its outcome is.

Model: residuals are logarithms of predicted over measured time in units of their scatter, and the
deviations of the parameters from their priors, in standard deviations. Near the optimum both are
taken as linear: that gives the posterior's covariance. Errors of rows left out are those of a fit
without them, one step of Gauss and Newton away from the fit with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.evidence.calibrate_problem import ParameterPlace, Problem

FARTHEST = 4.0
"""No parameter goes farther from its prior than so many standard deviations."""
_START = 3.0
_EVALUATIONS = 30
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """The outcome of a fit.

    `deviations` of the parameters from their priors' medians, in the priors' standard deviations;
    `covariance` of those; `errors` of the rows, predicted over measured less one.
    """

    problem: Problem
    deviations: FloatArray
    covariance: FloatArray
    residuals: FloatArray
    slopes: FloatArray

    @property
    def widths(self) -> FloatArray:
        """Standard deviations of the parameters over those of their priors."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def errors(self) -> FloatArray:
        """Predicted over measured time, less one, of each row."""
        return np.expm1(self.residuals)

    @property
    def correlation(self) -> FloatArray:
        """The correlation of the parameters."""
        return self.covariance / np.outer(self.widths, self.widths)


def fit(problem: Problem, *, near: Mapping[ParameterPlace, float] | None = None) -> Fit:
    """Return the fit of a problem, sought from the deviations `near`."""
    from scipy.optimize import least_squares

    measured = np.log([row.measured_s for row in problem.rows])
    seen: dict[bytes, tuple[FloatArray, FloatArray]] = {}

    def predicted(free: FloatArray) -> tuple[FloatArray, FloatArray]:
        key = free.tobytes()
        if key not in seen:
            seen.clear()
            seen[key] = problem.predicted(problem.mixing @ free)
        return seen[key]

    def residuals(free: FloatArray) -> FloatArray:
        return np.concatenate([(predicted(free)[0] - measured) / problem.scatter, free])

    def jacobian(free: FloatArray) -> FloatArray:
        slopes = predicted(free)[1] @ problem.mixing
        return np.vstack([slopes / problem.scatter[:, None], np.eye(len(free))])

    thought = np.array([(near or {}).get(one.place, 0.0) for one in problem.parameters])
    start = np.clip(np.linalg.solve(problem.mixing, thought), -_START, _START)
    best = start
    if len(start):
        best = least_squares(
            residuals,
            start,
            jac=jacobian,
            bounds=(-FARTHEST, FARTHEST),
            ftol=_TOLERANCE,
            xtol=_TOLERANCE,
            max_nfev=_EVALUATIONS,
        ).x
    logs, slopes = predicted(best)
    return Fit(
        problem=problem,
        deviations=problem.mixing @ best,
        covariance=_covariance(problem, slopes),
        residuals=logs - measured,
        slopes=slopes,
    )


def without(found: Fit, rows: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return the errors of some rows by a fit without them, and what variance that expects.

    Of the logarithm of a time, and from the parameters alone.
    """
    problem = found.problem
    kept = np.setdiff1d(np.arange(len(problem.rows)), rows)
    weights = 1 / problem.scatter[kept] ** 2
    prior = np.linalg.inv(problem.mixing @ problem.mixing.T)
    slopes = found.slopes[kept]
    curvature = slopes.T @ (weights[:, None] * slopes) + prior
    gradient = slopes.T @ (weights * found.residuals[kept]) + prior @ found.deviations
    moved = found.deviations - np.linalg.solve(curvature, gradient)
    logs, _ = problem.predicted(moved, rows)
    measured = np.log([problem.rows[row].measured_s for row in rows])
    own = found.slopes[rows]
    expected = np.sum(own * np.linalg.solve(curvature, own.T).T, axis=1)
    return np.expm1(logs - measured), expected


def _covariance(problem: Problem, slopes: FloatArray) -> FloatArray:
    mixed = slopes @ problem.mixing / problem.scatter[:, None]
    inner = np.linalg.inv(mixed.T @ mixed + np.eye(mixed.shape[1]))
    return np.asarray(problem.mixing @ inner @ problem.mixing.T)
