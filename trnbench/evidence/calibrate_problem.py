"""What a calibration is fitted to and what it may change: rows, parameters, predictions of both.

A parameter is a number of one file, of a chip or of a training stack; rows on the same chip share
the chip's. It is counted in standard deviations from its prior's median, on the prior's own scale,
so the prior of every parameter is the standard normal distribution. Numbers that one kernel sets
are one parameter. Kernels of stacks on one chip are thought alike as far as nothing was known to
tell them apart: their priors go together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.calibration.training_stack import TrainingEfficiency
from trnbench.catalog.provenance import join
from trnbench.evidence.predict import Prepared
from trnbench.predict.ranges import (
    CHIP,
    KERNELS,
    RELEASES,
    TIED,
    Range,
    correlation_matrix,
    ranges_of,
    replaced,
)

ParameterPlace: TypeAlias = tuple[str, str]
"""The name of a calibration, and a key in it."""

ROW_SCATTER = 0.035
"""Standard deviation of the logarithm of a measured time: what repeated publications differ by."""
ASSUMED_SCATTER = 0.07
"""The same where a row leaves cells open that its time depends on."""
ALIKE = 0.8
"""Correlation of the priors of like numbers of stacks on one chip."""
_STEP = 1e-3
"""By how many standard deviations a parameter moves to see what that does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitParameter:
    """A number that may be fitted: the calibration it belongs to, its key there, and its prior."""

    owner: str
    key: str
    chip: str
    prior: Range

    @property
    def place(self) -> ParameterPlace:
        """Where the number stands."""
        return self.owner, self.key


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """A measured step: how to predict it, with which efficiency before the fit.

    `configuration` is alike for rows that repeat one experiment, which count together as one.
    """

    id: str
    configuration: str
    measured_s: float
    scatter: float
    prepared: Prepared
    efficiency: TrainingEfficiency

    @property
    def chip(self) -> str:
        """The name of the chip's calibration."""
        return self.efficiency.chip.name

    @property
    def stack(self) -> str:
        """The name of the stack's calibration."""
        return self.efficiency.stack.name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Rows and parameters of one fit.

    `mixing` turns independent standard normal numbers into parameters whose priors go together.
    `scatter`: of each row, widened by how many repeat its configuration.
    """

    rows: tuple[Measured, ...]
    parameters: tuple[FitParameter, ...]
    mixing: FloatArray
    scatter: FloatArray
    _places: Mapping[ParameterPlace, int] = field(repr=False)

    def predicted(
        self, deviations: FloatArray, rows: Iterable[int] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the logarithms of the rows' times, and their derivatives by every parameter."""
        wanted = range(len(self.rows)) if rows is None else list(rows)
        logs = np.zeros(len(wanted))
        slopes = np.zeros((len(wanted), len(self.parameters)))
        for i, number in enumerate(wanted):
            row = self.rows[number]
            ranges = self._free(row)
            places = sorted({self._place(row, key) for key in ranges})
            moved = np.tile(deviations[places], (len(places) + 1, 1))
            moved[np.arange(1, len(places) + 1), np.arange(len(places))] += _STEP
            column = {place: j for j, place in enumerate(places)}
            samples = {
                key: one.at(moved[:, column[self._place(row, key)]]) for key, one in ranges.items()
            }
            times = row.prepared.times_s(replaced(row.efficiency, samples))
            found = np.log(times[np.argmin(times[:, 0])])
            logs[i] = found[0]
            slopes[i, places] = (found[1:] - found[0]) / _STEP
        return logs, slopes

    def _free(self, row: Measured) -> dict[str, Range]:
        ranges = _ranges(row)
        return {key: one for key, one in ranges.items() if _key(row, key) in self._places}

    def _place(self, row: Measured, key: str) -> int:
        return self._places[_key(row, key)]


def problem(
    rows: Sequence[Measured],
    *,
    held: Collection[str] = (),
    free: Collection[ParameterPlace] | None = None,
) -> Problem:
    """Return the fit of some rows; `held` calibrations stay, and all but `free` parameters."""
    found: dict[ParameterPlace, FitParameter] = {}
    for row in sorted(rows, key=lambda row: (row.chip, row.stack)):
        for key, one in _ranges(row).items():
            place = _key(row, key)
            wanted = place[0] not in held and (free is None or place in free)
            if wanted and key not in TIED:
                found[place] = FitParameter(owner=place[0], key=key, chip=row.chip, prior=one)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.configuration] = counts.get(row.configuration, 0) + 1
    parameters = tuple(found.values())
    return Problem(
        rows=tuple(rows),
        parameters=parameters,
        mixing=np.asarray(np.linalg.cholesky(_correlation(parameters, rows))),
        scatter=np.array([row.scatter * counts[row.configuration] ** 0.5 for row in rows]),
        _places={place: i for i, place in enumerate(found)},
    )


def _ranges(row: Measured) -> dict[str, Range]:
    """Return the numbers that a row's time may depend on: those of its release alone."""
    release = row.efficiency.stack.release
    return {
        key: one
        for key, one in ranges_of(row.efficiency).items()
        if not key.startswith(RELEASES) or (release and key == join(RELEASES, release))
    }


def _key(row: Measured, key: str) -> ParameterPlace:
    """Return whose number it is, and the key of the parameter that it goes with."""
    owner = row.chip if key.startswith(f"{CHIP}.") else row.stack
    return owner, TIED.get(key, key)


def _correlation(parameters: Sequence[FitParameter], rows: Sequence[Measured]) -> FloatArray:
    """Return the correlation of the priors: that of an earlier fit, and of kernels alike."""
    names = [_name(one.place) for one in parameters]
    pairs: dict[tuple[str, str], float] = {}
    for i, one in enumerate(parameters):
        for j, other in enumerate(parameters[:i]):
            alike = (one.key, one.chip, one.prior) == (other.key, other.chip, other.prior)
            if alike and one.key.startswith(KERNELS):
                pairs[names[i], names[j]] = ALIKE
    for row in rows:
        for (key, second), value in row.efficiency.stack.correlated.items():
            pairs[_name(_key(row, key)), _name(_key(row, second))] = value
    return correlation_matrix(names, pairs)


def _name(place: ParameterPlace) -> str:
    return " ".join(place)
