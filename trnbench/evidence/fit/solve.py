"""Robust regularised fit of a calibration, its uncertainty, and fits without some rows.

Model: log measured time = log predicted time + configuration effect (normal) + row effect (Student
t, so that an outlier costs little); the parameters' deviations from their priors are standard
normal. The fit is the most likely point, and linearisation there gives the covariance. Every step
is judged by true times, so no fit ends worse than its start. Leave-out fits are the same search,
started at the fit with all rows, many at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.evidence.fit.problem import ParameterPlace, Problem
from trnbench.facts.arrays import BoolArray, FloatArray
from trnbench.facts.records import Record

FARTHEST = 4.0
"""Bound of the deviations, in prior standard deviations."""
TAIL_WEIGHT = 4.0
"""Degrees of freedom of a row's Student t: a residual of two deviations counts half."""
DAMPINGS = (0.0, 0.5, 2.0, 10.0, 100.0)
"""Trial dampings of a step, in units of the priors' curvature; the best one wins."""
_START = 3.0
_STEPS = 25
_STEPS_LEFT_OUT = 10
_LINEAR_ROUNDS = 8
MANY = 256
"""Beyond this many groups each changes little, and one nearly linear look is enough."""
_ENOUGH = 0.02
"""Gain in the objective below which the search stops; 0.5 is one parameter's deviation by 1."""
_PATIENCE = 2
"""Small gains in a row before the search stops: at a kink a step may be short, the next long."""
_NOWHERE = 1e-4
"""Squared step length, in deviations, of a search that stands still."""
_OFFSET_ROUNDS = 8


class Fit(Record, eq=False):
    """The result of a fit."""

    problem: Problem
    deviations: FloatArray
    """Parameters, in prior standard deviations from the prior medians."""
    covariance: FloatArray
    residuals: FloatArray
    """Log of predicted over measured time per row; `slopes`: their derivatives."""
    slopes: FloatArray
    weights: FloatArray
    """Weight of each row, 0 to 1."""

    @property
    def widths(self) -> FloatArray:
        return np.sqrt(np.diag(self.covariance))

    @property
    def errors(self) -> FloatArray:
        return np.expm1(self.residuals)

    @property
    def correlation(self) -> FloatArray:
        return self.covariance / np.outer(self.widths, self.widths)


def fit(problem: Problem, *, near: Mapping[ParameterPlace, float] | None = None) -> Fit:
    """The fit of a problem, searched from the deviations `near`."""
    thought = np.array([(near or {}).get(one.place, 0.0) for one in problem.parameters])
    # The search runs in independent normal numbers, where priors are a unit ball.
    free = np.clip(np.linalg.solve(problem.mixing, thought), -_START, _START)
    kept = np.ones((len(problem.rows), 1), dtype=bool)
    logs, slopes = problem.slopes(problem.mixing @ free)
    cost = _Cost(problem, kept)
    costs, weights = cost.of((logs - problem.measured)[:, np.newaxis], free[np.newaxis])
    now = float(costs[0])
    small = 0
    for _ in range(_STEPS if len(free) else 0):
        residuals = logs - problem.measured
        curve = _curvature(problem, slopes @ problem.mixing, weights[:, 0])
        tried = np.array([curve.stepped(free, residuals, damping) for damping in DAMPINGS])
        residuals = problem.logs(tried @ problem.mixing.T) - problem.measured[:, np.newaxis]
        costs, new_weights = cost.of(residuals, tried)
        best = int(np.argmin(costs))
        gain = now - float(costs[best])
        if gain <= 0:
            break
        # One short step may be a kink; several mean convergence.
        small = small + 1 if gain < _ENOUGH else 0
        free, now, weights = tried[best], float(costs[best]), new_weights[:, best : best + 1]
        logs, slopes = problem.slopes(problem.mixing @ free)
        if small == _PATIENCE:
            break
    inner = _curvature(problem, slopes @ problem.mixing, weights[:, 0]).inverse()
    return Fit(
        problem=problem,
        deviations=problem.mixing @ free,
        covariance=np.asarray(problem.mixing @ inner @ problem.mixing.T),
        residuals=logs - problem.measured,
        slopes=slopes,
        weights=weights[:, 0],
    )


def widths_by(found: Fit, rows: Sequence[int]) -> FloatArray:
    """Posterior over prior widths of the parameters, from these rows alone."""
    kept = np.zeros(len(found.problem.rows))
    kept[list(rows)] = 1.0
    mixing = found.problem.mixing
    inner = _curvature(found.problem, found.slopes @ mixing, found.weights * kept).inverse()
    return np.asarray(np.sqrt(np.diag(mixing @ inner @ mixing.T)))


def without(found: Fit, groups: Sequence[Sequence[int]]) -> list[tuple[FloatArray, FloatArray]]:
    """For each group of rows, their errors by a fit without them, and the expected log variance.

    The expected variance comes from the parameters alone.
    """
    searches = [_Search(found, rows) for rows in groups]
    moving = searches if found.problem.parameters else []
    if len(moving) > MANY:
        aims = np.array([search.aim() for search in moving])
        residuals = found.problem.logs(aims @ found.problem.mixing.T)
        residuals = residuals - found.problem.measured[:, np.newaxis]
        moving = [
            search
            for i, search in enumerate(moving)
            if not search.arrived(aims[i : i + 1], residuals[:, i : i + 1])
        ]
    for _ in range(_STEPS_LEFT_OUT):
        if not moving:
            break
        tried = np.array([search.tried(damping) for damping in DAMPINGS for search in moving])
        logs = found.problem.logs(tried @ found.problem.mixing.T)
        residuals = logs - found.problem.measured[:, np.newaxis]
        moving = [
            search
            for i, search in enumerate(moving)
            if search.moved(tried[i :: len(moving)], residuals[:, i :: len(moving)])
        ]
    return [search.outcome() for search in searches]


class _Search:
    """A fit without some rows, started at the fit with them.

    The slopes are those of the full fit, corrected by the observed effect of each full step.
    """

    def __init__(self, found: Fit, rows: Sequence[int]) -> None:
        self._problem, self._rows = found.problem, list(rows)
        kept = np.ones((len(found.problem.rows), 1), dtype=bool)
        kept[self._rows] = False
        self._cost = _Cost(found.problem, kept)
        self._free = np.asarray(np.linalg.solve(found.problem.mixing, found.deviations), float)
        self._residuals = found.residuals
        costs, weights = self._cost.of(found.residuals[:, np.newaxis], self._free[np.newaxis])
        self._now, self._weights = float(costs[0]), weights[:, 0]
        self._shared = found.slopes @ found.problem.mixing
        self._small = 0
        self._expected = self._now
        self._corrections: list[tuple[FloatArray, FloatArray]] = []

    def tried(self, damping: float) -> FloatArray:
        return self._curve.stepped(self._free, self._residuals, damping)

    def aim(self) -> FloatArray:
        """Best point if times were linear around the fit with all rows."""
        mixed, weights = self._mixed, self._weights
        free, residuals, self._expected = self._free, self._residuals, self._now
        for _ in range(_LINEAR_ROUNDS):
            further = _curvature(self._problem, mixed, weights).stepped(free, residuals, 0.0)
            seen = self._residuals + mixed @ (further - self._free)
            costs, counted = self._cost.of(seen[:, np.newaxis], further[np.newaxis])
            gain = self._expected - float(costs[0])
            if gain > 0:
                free, residuals, weights = further, seen, counted[:, 0]
                self._expected = float(costs[0])
            if gain < _ENOUGH / 2:
                break
        return free

    def moved(self, tried: FloatArray, residuals: FloatArray) -> bool:
        """Move to the best of some points if better; True while the search goes on."""
        full, seen = tried[0] - self._free, residuals[:, 0] - self._residuals
        if (length := float(full @ full)) > 0:
            # Broyden's update: cheaper than new slopes, which cost one pricing per parameter.
            self._corrections.append(((seen - self._mixed @ full) / length, full))
        costs, weights = self._cost.of(residuals, tried)
        best = int(np.argmin(costs))
        gain = self._now - float(costs[best])
        self._small = self._small + 1 if gain < _ENOUGH else 0
        if gain > 0:
            self._free, self._now = tried[best], float(costs[best])
            self._residuals, self._weights = residuals[:, best], weights[:, best]
        return self._small < _PATIENCE and length > _NOWHERE

    def arrived(self, aim: FloatArray, residuals: FloatArray) -> bool:
        """Move to the aim; True when the cost there is as expected."""
        going_on = self.moved(aim, residuals)
        off = abs(float(self._cost.of(residuals, aim)[0][0]) - self._expected)
        return off < _ENOUGH or not going_on

    def outcome(self) -> tuple[FloatArray, FloatArray]:
        """Errors of the left-out rows, and their expected log variance.

        Numbers that no other row depends on stand as they were believed.
        """
        own, problem, residuals = self._mixed[self._rows], self._problem, self._residuals
        inverse = self._curve.inverse()
        if believed := problem.only_of(self._rows):
            free = np.setdiff1d(np.arange(len(problem.parameters)), believed)
            deviations = problem.mixing @ self._free
            deviations[believed] = 0.0
            residuals = problem.logs(deviations[np.newaxis])[:, 0] - problem.measured
            slopes = own @ np.linalg.inv(problem.mixing)
            # What is believed and what is fitted vary apart.
            parts = [slopes[:, places] @ problem.mixing[places] for places in (free, believed)]
            expected = np.sum(parts[0] @ inverse * parts[0], axis=1) + np.sum(parts[1] ** 2, axis=1)
        else:
            expected = np.sum(own @ inverse * own, axis=1)
        return np.expm1(residuals[self._rows]), np.asarray(expected)

    @property
    def _mixed(self) -> FloatArray:
        found = self._shared
        for left, right in self._corrections:
            found = found + np.outer(left, right)
        return found

    @property
    def _curve(self) -> _Curvature:
        return _curvature(self._problem, self._mixed, self._weights)


class _Cost:
    """Objective of search points, for the rows kept [rows, points]."""

    def __init__(self, problem: Problem, kept: BoolArray) -> None:
        self._problem = problem
        self._precision = kept / problem.scatter[:, np.newaxis] ** 2

    def of(self, residuals: FloatArray, free: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The costs of points, and the weights [rows, points] of rows: 0 if left out."""
        groups, precise = list(self._problem.groups), self._precision
        inside = 1 / self._problem.group_scatter[:, np.newaxis] ** 2
        weights, offsets = np.ones_like(residuals), np.zeros((len(inside), residuals.shape[1]))
        for _ in range(_OFFSET_ROUNDS):
            weighed = precise * weights
            pulled = _summed(self._problem, weighed * residuals)
            # The best configuration effect in closed form, alternated with the rows' weights.
            offsets = -pulled / (_summed(self._problem, weighed) + inside)
            squares = (residuals + offsets[groups]) ** 2 * precise
            weights = 1 / (1 + squares / TAIL_WEIGHT)
        rows = TAIL_WEIGHT * np.log1p(squares / TAIL_WEIGHT).sum(axis=0)
        costs = (rows + (offsets**2 * inside).sum(axis=0) + (free**2).sum(axis=1)) / 2
        return costs, weights * (precise > 0)


class _Curvature(Record, eq=False):
    """Quadratic model of the objective, configuration effects averaged out."""

    matrix: FloatArray
    pull: FloatArray

    def stepped(self, free: FloatArray, residuals: FloatArray, damping: float) -> FloatArray:
        gradient = self.pull @ residuals + free
        step = np.linalg.solve(self.matrix + damping * np.eye(len(free)), gradient)
        return np.clip(free - step, -FARTHEST, FARTHEST)

    def inverse(self) -> FloatArray:
        """The covariance of the independent parameters."""
        return np.asarray(np.linalg.inv(self.matrix))


def _curvature(problem: Problem, mixed: FloatArray, weights: FloatArray) -> _Curvature:
    """Curvature from slopes by independent parameters and the rows' weights."""
    weighed = weights / problem.scatter**2
    shares = weighed[:, np.newaxis] * mixed
    sums = _summed(problem, weighed) + 1 / problem.group_scatter**2
    of_group = _summed(problem, shares) / sums[:, np.newaxis]
    pull = shares.T - of_group[list(problem.groups)].T * weighed
    return _Curvature(matrix=pull @ mixed + np.eye(mixed.shape[1]), pull=pull)


def _summed(problem: Problem, values: FloatArray) -> FloatArray:
    """The sums over the rows of each configuration."""
    order = np.argsort(problem.groups, kind="stable")
    in_order = np.asarray(problem.groups)[order]
    starts = np.flatnonzero(np.r_[True, np.diff(in_order) > 0])
    return np.asarray(np.add.reduceat(values[order], starts, axis=0))
