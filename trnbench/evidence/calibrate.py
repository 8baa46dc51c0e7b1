"""A calibration from measured steps: what moved, how wrong it is, how far measurements scatter.

All parameters are fitted first. Those that the rows tell next to nothing of go back to their
priors, and the others are fitted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.calibration.training_stack import Spread
from trnbench.errors import InputError
from trnbench.evidence.calibrate_fit import Fit, fit, without
from trnbench.evidence.calibrate_problem import (
    ROW_SCATTER,
    FitParameter,
    Measured,
    ParameterPlace,
    problem,
)
from trnbench.predict.ranges import END, TIED, ranges_of

UNMOVED = 0.99
"""A parameter at least this wide, over its prior's width, goes back to its prior."""
TOLD = 0.95
"""A parameter that is not narrower than this is still assumed, though it may move a little."""
INSEPARABLE = 0.9
"""Two parameters whose correlation is beyond this are identified only together."""
TOLD_TOGETHER = 0.2
"""Correlations below this make no difference to an interval."""
PRIOR_ROWS = 4
"""The prior scatter of a stack counts as much as so many configurations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A parameter after the fit; `width` is that of its posterior over that of its prior."""

    parameter: FitParameter
    deviation: float
    width: float

    @property
    def moved(self) -> bool:
        """Whether the fit left it another value than it had."""
        return self.width < UNMOVED

    @property
    def told(self) -> bool:
        """Whether the rows tell enough of it to say that it was measured."""
        return self.width < TOLD

    @property
    def data_share(self) -> float:
        """The share of the prior's variance that the rows took away."""
        return 1 - self.width**2

    @property
    def value(self) -> float:
        """The fitted number."""
        return self._at(0.0)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of its 80 % interval."""
        return self._at(-END), self._at(END)

    def _at(self, deviations: float) -> float:
        where = self.deviation + self.width * deviations
        return float(self.parameter.prior.at(np.array(where)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedRow:
    """A row's errors, predicted over measured less one, by what was left out of the fit.

    `expected`: the variance that the parameters leave open without the row's configuration.
    """

    row: Measured
    prior: float
    fitted: float
    without_row: float
    without_configuration: float
    without_stack: float | None
    expected: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """The outcome of a calibration.

    `correlations` of pairs of parameters that rows told together; `spreads` by stack; `unseen` is
    how far measurements lie from predictions of stacks without any row.
    """

    parameters: tuple[Fitted, ...]
    rows: tuple[FittedRow, ...]
    correlations: tuple[tuple[ParameterPlace, ParameterPlace, float], ...]
    spreads: Mapping[str, Spread]
    unseen: Spread | None

    @property
    def inseparable(self) -> tuple[tuple[ParameterPlace, ParameterPlace, float], ...]:
        """Pairs of parameters that the rows identify only together."""
        return tuple(pair for pair in self.correlations if abs(pair[2]) > INSEPARABLE)

    def of(self, owner: str) -> Mapping[str, Fitted]:
        """Return the numbers of one calibration by key, tied ones too."""
        found = {one.parameter.key: one for one in self.parameters if one.parameter.owner == owner}
        for row in self.rows_of(owner)[:1]:
            ranges = ranges_of(row.row.efficiency)
            for key, source in TIED.items():
                if source in found and key in ranges:
                    tied = replace(found[source].parameter, key=key, prior=ranges[key])
                    found[key] = replace(found[source], parameter=tied)
        return found

    def rows_of(self, owner: str) -> tuple[FittedRow, ...]:
        """Return the rows that a chip's or a stack's calibration was fitted to."""
        return tuple(one for one in self.rows if owner in (one.row.chip, one.row.stack))


def calibrate(rows: Sequence[Measured], *, held: Collection[str] = ()) -> Calibration:
    """Return the calibration by these rows; calibrations in `held` stay as they are."""
    if not rows:
        raise InputError("no row can be fitted")
    first = fit(problem(rows, held=held))
    widths = dict(zip((one.place for one in first.problem.parameters), first.widths, strict=True))
    moved = {place for place, width in widths.items() if width < UNMOVED}
    near = dict(zip(widths, map(float, first.deviations), strict=True))
    found = fit(problem(rows, free=moved), near=near)
    after = {
        one.place: (float(where), float(width))
        for one, where, width in zip(
            found.problem.parameters, found.deviations, found.widths, strict=True
        )
    }
    judged = _judged(found)
    return Calibration(
        parameters=tuple(
            Fitted(parameter=one, deviation=where, width=min(width, 1.0))
            for one in first.problem.parameters
            for where, width in [after.get(one.place, (0.0, float(widths[one.place])))]
        ),
        rows=judged,
        correlations=_correlations(found),
        spreads={
            stack: _spread(rows_of) for stack, rows_of in _by(judged, lambda r: r.stack).items()
        },
        unseen=_unseen(judged),
    )


def mean_error(errors: Iterable[float]) -> float:
    """Return the mean of the absolute errors."""
    return float(np.mean(np.abs(list(errors))))


def _judged(found: Fit) -> tuple[FittedRow, ...]:
    rows = found.problem.rows
    start = np.zeros(len(found.problem.parameters))
    prior = np.expm1(found.problem.predicted(start)[0] - np.log([row.measured_s for row in rows]))
    configurations, expected = _left_out(found, lambda row: row.configuration)
    stacks, _ = _left_out(found, lambda row: row.stack)
    singles, _ = _left_out(found, lambda row: row.id)
    several = len({row.stack for row in rows}) > 1
    return tuple(
        FittedRow(
            row=row,
            prior=float(prior[i]),
            fitted=float(found.errors[i]),
            without_row=float(singles[i]),
            without_configuration=float(configurations[i]),
            without_stack=float(stacks[i]) if several else None,
            expected=float(expected[i]),
        )
        for i, row in enumerate(rows)
    )


def _left_out(found: Fit, alike: Callable[[Measured], str]) -> tuple[FloatArray, FloatArray]:
    """Return the error of each row by a fit without all that are alike, and what it expects."""
    errors, expected = np.zeros(len(found.problem.rows)), np.zeros(len(found.problem.rows))
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(found.problem.rows):
        groups.setdefault(alike(row), []).append(i)
    for places in groups.values():
        errors[places], expected[places] = without(found, places)
    return errors, expected


def _by(
    rows: Iterable[FittedRow], name: Callable[[Measured], str]
) -> Mapping[str, list[FittedRow]]:
    found: dict[str, list[FittedRow]] = {}
    for row in rows:
        found.setdefault(name(row.row), []).append(row)
    return found


def _spread(rows: Sequence[FittedRow]) -> Spread:
    """Return the spread of measured over predicted times, predicted without their configuration.

    That is beyond what the parameters leave open, which intervals count by themselves, and no less
    than measurements repeat. What was thought before counts as a few configurations, so that one
    lucky row proves nothing.
    """
    before = rows[0].row.efficiency.stack.spread
    squares = [
        float(np.mean([math.log1p(row.without_configuration) ** 2 - row.expected for row in alike]))
        for alike in _by(rows, lambda row: row.configuration).values()
    ]
    beyond = max(sum(squares), len(squares) * ROW_SCATTER**2)
    ends = []
    for end in (before.low, before.high):
        prior = (math.log(end) / END) ** 2
        variance = (PRIOR_ROWS * prior + beyond) / (PRIOR_ROWS + len(squares))
        ends.append(END * math.sqrt(variance))
    return Spread(low=math.exp(-ends[0]), high=math.exp(ends[1]))


def _unseen(rows: Sequence[FittedRow]) -> Spread | None:
    """Return the spread of stacks about predictions made without any of their rows.

    Stacks err to one side, and not as far to either: each side has a scatter of its own.
    """
    biases = [
        float(np.mean([-math.log1p(row.without_stack or 0.0) for row in of_stack]))
        for of_stack in _by(rows, lambda row: row.stack).values()
        if of_stack[0].without_stack is not None
    ]
    if len(biases) < PRIOR_ROWS:
        return None
    sides = [[bias for bias in biases if bias * sign > 0] for sign in (-1, 1)]
    down, up = (math.sqrt(float(np.mean(np.square(side or [0.0])))) for side in sides)
    return Spread(low=math.exp(-END * down), high=math.exp(END * up))


def _correlations(found: Fit) -> tuple[tuple[ParameterPlace, ParameterPlace, float], ...]:
    places = [one.place for one in found.problem.parameters]
    correlation = found.correlation
    return tuple(
        (places[i], places[j], float(correlation[i, j]))
        for i, j in combinations(range(len(places)), 2)
        if abs(correlation[i, j]) > TOLD_TOGETHER
    )
