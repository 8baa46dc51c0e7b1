"""A calibration from measured steps: moved parameters, errors, and scatter of measurements.

First all parameters are fitted. Parameters that the rows hardly determine return to their priors,
and the others are fitted again with the observed scatter of each stack. A single configuration
with one number of micro-batches determines only an overall factor. A fit that predicts left-out
configurations no better than its start is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, combinations
from statistics import NormalDist

import numpy as np

from trnbench.errors import InputError
from trnbench.evidence.fit.problem import (
    KERNEL,
    ROW_SCATTER,
    STEP,
    FitParameter,
    Measured,
    ParameterPlace,
    problem,
)
from trnbench.evidence.fit.solve import Fit, fit, widths_by, without
from trnbench.facts.arrays import median
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.training_stack import WITH_EXPERTS
from trnbench.facts.records import Record, replace
from trnbench.predict.ranges import END, TAIL, TIED, chip_ranges, ranges_of

UNMOVED = 0.99
"""Posterior over prior width from which on a parameter returns to its prior."""
TOLD = 0.95
"""Posterior over prior width from which on a moved parameter still counts as assumed."""
INSEPARABLE = 0.9
"""Correlation beyond which two parameters are only identified together."""
TOLD_TOGETHER = 0.2
"""Correlation below which an interval is unaffected."""
FACTOR = "factor"
"""The only number that a single configuration determines."""
NORMAL = 1.48
"""Standard deviation over median absolute value of a normal distribution."""
OUTLIER = 0.25
"""Weight below which a row is reported: more than three and a half deviations away."""
SCATTERED = 8
"""Fewest configurations of a stack that determine its scatter."""
PRIOR_ROWS = 4
"""Weight of a prior scatter, in configurations of a stack or in rows of its memory."""
PRIOR_CASES = 8
"""Weight of a prior scatter among configurations or families.

Of 2, 4 and 8 it has the best interval score of configurations left out, as have weights that are
roots of a configuration's rows.
"""
PRIOR_POINTS = 40
"""Equally likely reaches that stand for a prior scatter among those of configurations."""


class Fitted(Record):
    """A parameter after the fit."""

    parameter: FitParameter
    deviation: float
    """Posterior median, in prior standard deviations."""
    width: float
    """Posterior over prior standard deviation."""
    by_kernels: float = 0.0
    """Share of the prior variance removed by rows of kernels alone."""

    @property
    def moved(self) -> bool:
        return self.width < UNMOVED

    @property
    def told(self) -> bool:
        """True when the rows determine the value well enough to call it measured."""
        return self.width < TOLD

    @property
    def data_share(self) -> float:
        """Share of the prior variance removed by the rows."""
        return 1 - self.width**2

    @property
    def value(self) -> float:
        return self._at(0.0)

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of its 80 % interval."""
        return self._at(-END), self._at(END)

    def _at(self, deviations: float) -> float:
        where = self.deviation + self.width * deviations
        return float(self.parameter.prior.at(np.array(where)))


class FittedRow(Record, eq=False):
    """A row's errors, predicted over measured less one, by the rows left out of the fit."""

    row: Measured
    weight: float
    """1 for a row that the fit meets, near 0 for an outlier."""
    prior: float
    fitted: float
    without_row: float
    without_configuration: float
    without_stack: float | None
    expected: float
    """Log variance from the parameters, without the row's configuration."""


class Calibration(Record, eq=False):
    """The result of a calibration."""

    parameters: tuple[Fitted, ...]
    rows: tuple[FittedRow, ...]
    better: bool = True
    """True when left-out configurations are predicted better than by the start."""
    correlations: tuple[tuple[ParameterPlace, ParameterPlace, float], ...]
    """Correlations of parameter pairs that rows determine together."""
    spreads: Mapping[str, Spread]
    """Scatter by stack; `unseen`: scatter about predictions of stacks without rows."""
    small_spreads: Mapping[str, Spread]
    """Scatter of small models by stack, where enough of them tell."""
    unseen: Spread | None

    @property
    def outliers(self) -> tuple[FittedRow, ...]:
        """Rows that no other row supports, the farthest first."""
        found = [one for one in self.rows if one.weight < OUTLIER]
        return tuple(sorted(found, key=lambda one: one.weight))

    @property
    def inseparable(self) -> tuple[tuple[ParameterPlace, ParameterPlace, float], ...]:
        return tuple(pair for pair in self.correlations if abs(pair[2]) > INSEPARABLE)

    def of(self, owner: str) -> Mapping[str, Fitted]:
        """Numbers of one calibration by key, tied ones too."""
        found = {one.parameter.key: one for one in self.parameters if one.parameter.owner == owner}
        for row in self.rows_of(owner)[:1]:
            ranges = ranges_of(row.row.efficiency) | chip_ranges(row.row.efficiency.chip)
            for key, source in TIED.items():
                if source in found and key in ranges:
                    tied = replace(found[source].parameter, key=key, prior=ranges[key])
                    found[key] = replace(found[source], parameter=tied)
        return found

    def rows_of(self, owner: str) -> tuple[FittedRow, ...]:
        return tuple(one for one in self.rows if owner in (one.row.chip, one.row.stack))


def calibrate(rows: Sequence[Measured], *, held: Collection[str] = ()) -> Calibration:
    """The calibration by these rows; calibrations in `held` stay as they are."""
    if not rows:
        raise InputError("no row can be fitted")
    alone = len({row.configuration for row in rows}) == 1
    factors = {(row.stack, FACTOR) for row in rows if row.stack not in held}
    # The first fit only finds which parameters the rows determine; the second frees just these,
    # with the scatter that the first one saw.
    # Steps of more or fewer micro-batches tell these from what a step costs once.
    level_only = alone and len({_micro_batches(row) for row in rows}) == 1
    first = fit(problem(rows, held=held, free=factors if level_only else None))
    widths = dict(zip((one.place for one in first.problem.parameters), first.widths, strict=True))
    moved = {place for place, width in widths.items() if width < UNMOVED}
    near = dict(zip(widths, map(float, first.deviations), strict=True))
    found = fit(problem(rows, free=moved, misfit=_misfit(first)), near=near)
    judged = _judged(found)
    better = (
        alone
        or not moved
        or _distance(judged, lambda row: row.prior)
        > _distance(judged, lambda row: row.without_configuration)
    )
    kernels = [i for i, row in enumerate(rows) if row.quantity == KERNEL]
    told = _by(steps_of(judged), lambda row: row.stack)
    large = {
        stack: [one for one in of if not one.row.small] or list(of) for stack, of in told.items()
    }
    small = {stack: [one for one in of if one.row.small] for stack, of in told.items()}
    after = {
        one.place: (float(where), float(width), 1 - float(alone) ** 2)
        for one, where, width, alone in zip(
            found.problem.parameters,
            found.deviations,
            found.widths,
            widths_by(found, kernels),
            strict=True,
        )
        if better
    }
    return Calibration(
        parameters=tuple(
            Fitted(parameter=one, deviation=where, width=min(width, 1.0), by_kernels=alone)
            for one in first.problem.parameters
            for untold in [float(widths[one.place]) if better else 1.0]
            for where, width, alone in [after.get(one.place, (0.0, untold, 0.0))]
        ),
        rows=judged,
        better=better,
        correlations=_correlations(found) if better else (),
        # One configuration tells a level; how far others lie about it is as before.
        spreads={
            stack: spread_of(rows_of)
            if better and not alone
            else rows_of[0].row.efficiency.stack.spread
            for stack, rows_of in large.items()
        },
        small_spreads={
            stack: spread_of(of)
            for stack, of in small.items()
            if better and of != large[stack] and len(of) >= SCATTERED
        },
        unseen=_unseen([one for of in large.values() for one in of]) if better else None,
    )


def _micro_batches(row: Measured) -> int:
    """Micro-batches of a step; 0 of anything else."""
    one = row.layout
    return 0 if one is None else int(-(-one.global_batch // (one.dp * one.micro_batch)))


def families_told(rows: Sequence[FittedRow]) -> list[str]:
    """Model families with enough rows to determine a stack's scatter.

    A few rows of models with experts are not enough: these differ more from each other than others.
    """
    families = [row.row.family for row in rows]
    few = [name for name in families if name.endswith(WITH_EXPERTS)]
    return [name for name in families if len(few) >= PRIOR_ROWS or name not in few] or families


def steps_of(rows: Iterable[FittedRow]) -> list[FittedRow]:
    """Rows of whole steps, of families that determine the scatter."""
    steps = [row for row in rows if row.row.quantity == STEP]
    stacks = _by(steps, lambda row: row.stack)
    told = {stack: set(families_told(of_stack)) for stack, of_stack in stacks.items()}
    return [row for row in steps if row.row.family in told[row.row.stack]]


def _distance(rows: Sequence[FittedRow], error: Callable[[FittedRow], float]) -> float:
    alike = _by(rows, lambda row: row.configuration).values()
    return float(np.mean([np.mean([abs(math.log1p(error(row))) for row in of]) for of in alike]))


def _misfit(found: Fit) -> dict[str, float]:
    """Log scatter of a stack's configurations, by stack, where there are enough."""
    scattered: dict[str, dict[str, list[float]]] = {}
    for row, residual in zip(found.problem.rows, found.residuals, strict=True):
        of_stack = scattered.setdefault(row.stack, {})
        of_stack.setdefault(row.configuration, []).append(float(residual))
    return {
        stack: NORMAL * median(np.array([abs(np.mean(of)) for of in configurations.values()]))
        for stack, configurations in scattered.items()
        if len(configurations) >= SCATTERED
    }


def mean_error(errors: Iterable[float]) -> float:
    return float(np.mean(np.abs(list(errors))))


def _judged(found: Fit) -> tuple[FittedRow, ...]:
    rows = found.problem.rows
    start = np.zeros((1, len(found.problem.parameters)))
    prior = np.expm1(found.problem.logs(start)[:, 0] - found.problem.measured)
    several = len({row.stack for row in rows}) > 1
    groupings = [_alike(rows, lambda row: row.configuration), _alike(rows, lambda row: row.id)]
    if several:
        groupings.append(_alike(rows, lambda row: row.stack))
    groups = list(dict.fromkeys(group for grouping in groupings for group in grouping))
    left_out = dict(zip(groups, without(found, groups), strict=True))
    errors = [
        {
            row: (float(error), float(expected))
            for group in grouping
            for row, error, expected in zip(group, *left_out[group], strict=True)
        }
        for grouping in groupings
    ]
    return tuple(
        FittedRow(
            row=row,
            weight=float(found.weights[i]),
            prior=float(prior[i]),
            fitted=float(found.errors[i]),
            without_row=errors[1][i][0],
            without_configuration=errors[0][i][0],
            without_stack=errors[2][i][0] if several else None,
            expected=errors[0][i][1],
        )
        for i, row in enumerate(rows)
    )


def _alike(rows: Sequence[Measured], name: Callable[[Measured], str]) -> list[tuple[int, ...]]:
    """The places of the rows of each name."""
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(name(row), []).append(i)
    return [tuple(places) for places in groups.values()]


def _by(
    rows: Iterable[FittedRow], name: Callable[[Measured], str]
) -> Mapping[str, list[FittedRow]]:
    found: dict[str, list[FittedRow]] = {}
    for row in rows:
        found.setdefault(name(row.row), []).append(row)
    return found


def spread_of(rows: Sequence[FittedRow]) -> Spread:
    """Conformal spread of measured over predicted times, predicted without their configuration.

    An interval adds the squares of what uncertain parameters and this spread reach, so a row asks
    for what its parameters leave of its error. Each side is its own quantile of what the
    configurations ask for, each as the root of its rows. The prior spread counts as a few, so that
    one lucky row proves nothing, and no side is narrower than the repeatability of measurements.
    """
    before = rows[0].row.efficiency.stack.spread
    asked = [
        (
            math.copysign(math.sqrt(max(error**2 - END**2 * row.expected, 0.0)), error),
            1 / math.sqrt(len(of)),
        )
        for of in _by(rows, lambda row: row.configuration).values()
        for row in of
        for error in [-math.log1p(row.without_configuration)]
    ]
    return Spread(
        low=math.exp(-reach([(-error, weight) for error, weight in asked], -math.log(before.low))),
        high=math.exp(reach(asked, math.log(before.high))),
    )


def reach(asked: Sequence[tuple[float, float]], believed: float) -> float:
    """Conformal quantile of weighted reaches to one side, with the prior's among them.

    A case stands for the middle of its own weight (Hazen): of few cases the largest is asked for.
    """
    normal = NormalDist(sigma=believed / END)
    likely = [normal.inv_cdf((place + 0.5) / PRIOR_POINTS) for place in range(PRIOR_POINTS)]
    every = sorted([*asked, *((one, PRIOR_CASES / PRIOR_POINTS) for one in likely)])
    whole = sum(weight for _, weight in every)
    wanted = (1 - TAIL) * whole + 0.5
    passed = accumulate(weight for _, weight in every)
    found = (one for (one, _), sofar in zip(every, passed, strict=True) if sofar >= wanted)
    within = next(found, every[-1][0])
    return max(within, END * ROW_SCATTER)


def _unseen(rows: Sequence[FittedRow]) -> Spread | None:
    """Spread of stacks about predictions made without any of their rows.

    Stacks err to one side, by different distances: each side has a scatter of its own.
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
