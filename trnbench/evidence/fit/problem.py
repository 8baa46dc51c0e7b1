"""What a calibration is fitted to and what it may change: measurements, parameters, predictions.

A parameter is a number of one file, of a chip or of a training stack; rows on the same chip share
the chip's. It is counted in standard deviations from its prior's median, on the prior's own scale,
so the prior of every parameter is the standard normal distribution. Numbers that one kernel sets
are one parameter. Kernels of stacks on one chip are thought alike as far as nothing was known to
tell them apart: their priors go together, and with what attention kernels of the chip take by
themselves. The effects of a chip's releases are a random walk: each
is the one after it and a step, so the fewer releases lie between two, the more alike they are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.training_stack import CHIP_PREFIX, TrainingEfficiency
from trnbench.facts.catalog.provenance import join
from trnbench.facts.records import Record
from trnbench.predict.ranges import (
    CHIP,
    CHIP_RELEASES,
    KERNELS,
    OF_KERNELS,
    RELEASES,
    TIED,
    Range,
    chip_ranges,
    correlation_matrix,
    ranges_of,
    replaced,
)

ParameterPlace: TypeAlias = tuple[str, str]
"""The name of a calibration, and a key in it."""

STEP = "step"
"""What most rows measure; others are parts of one, and kernels."""
KERNEL = "kernel"
"""What a row measures that timed an attention kernel by itself."""
REPEAT_SCATTER = 0.03
"""Standard deviation of the logarithm of a time that is measured twice in one configuration."""
ROW_SCATTER = 0.035
"""The same of a published time about a true one, with what is particular to its configuration."""
ASSUMED_SCATTER = 0.07
"""The same where a row leaves cells open that its time depends on."""
KERNEL_SHARES = {f"{OF_KERNELS}forward_share", f"{KERNELS}.attention_forward_share"}
"""What a chip's kernels reach by themselves, and in the steps of a stack."""
ALIKE = 0.8
"""Correlation of the priors of like numbers of stacks on one chip."""
_STEP = 1e-3
"""By how many standard deviations a parameter moves to see what that does."""
_MOST_POINTS = 256
"""Points at which rows are priced at once: more cost memory, and save no time."""


class Timed(Protocol):
    """Something that takes a time by an efficiency: a step, a part of one, a kernel."""

    def times_s(self, efficiency: TrainingEfficiency) -> FloatArray:
        """The time [ways it may have run, samples], s; the shortest way counts."""
        ...


class FitParameter(Record):
    """A number that may be fitted: the calibration it belongs to, its key there, and its prior."""

    owner: str
    key: str
    chip: str
    prior: Range

    @property
    def place(self) -> ParameterPlace:
        """Where the number stands."""
        return self.owner, self.key


class Measured(Record, eq=False):
    """A measured time: how to predict it, with which efficiency before the fit.

    `quantity` says of what. `configuration` is alike for rows that repeat one experiment, on as
    many `nodes` or others: those on as many share what is particular to it. `family`: the kind of
    its model. A kernel has the efficiency of any stack of its chip, and is no stack's own.
    """

    id: str
    configuration: str
    measured_s: float
    scatter: float
    prepared: Timed
    efficiency: TrainingEfficiency
    nodes: int = 1
    family: str = ""
    quantity: str = STEP
    instance: str = ""

    @property
    def chip(self) -> str:
        """The name of the chip's calibration."""
        return self.efficiency.chip.name

    @property
    def stack(self) -> str:
        """The name of the stack's calibration; of a kernel, that it is one of its chip."""
        of_chip = self.efficiency.chip.name.removeprefix(CHIP_PREFIX)
        return f"kernels of {of_chip}" if self.quantity == KERNEL else self.efficiency.stack.name


class Problem(Record, eq=False):
    """Rows and parameters of one fit.

    `mixing` turns independent standard normal numbers into parameters whose priors go together.
    `scatter`: of a row about what its configuration takes, in logarithms. `groups`: the number of
    each row's configuration and nodes; `group_scatter`: of these about what is predicted.
    """

    rows: tuple[Measured, ...]
    parameters: tuple[FitParameter, ...]
    mixing: FloatArray
    scatter: FloatArray
    groups: tuple[int, ...]
    group_scatter: FloatArray
    _alike: tuple[tuple[int, ...], ...]
    """Places of rows of which one efficiency says how long they take."""
    _places: Mapping[ParameterPlace, int]

    @property
    def measured(self) -> FloatArray:
        """The logarithms of the measured times."""
        return np.log([row.measured_s for row in self.rows])

    def logs(self, deviations: FloatArray) -> FloatArray:
        """The logarithms of the rows' times at several points [rows, points]."""
        logs = np.zeros((len(self.rows), len(deviations)))
        for alike in self._alike:
            for first in range(0, len(deviations), _MOST_POINTS):
                some = slice(first, first + _MOST_POINTS)
                logs[list(alike), some] = self._logs(alike, deviations[some])
        return logs

    def slopes(self, deviations: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Logarithms of times at one point [rows], and derivatives [rows, parameters]."""
        logs = np.zeros(len(self.rows))
        slopes = np.zeros((len(self.rows), len(self.parameters)))
        for alike in self._alike:
            rows = list(alike)
            places = sorted(self._places[key] for key in self._free(self.rows[rows[0]]).values())
            moved = np.repeat(deviations[np.newaxis], len(places) + 1, axis=0)
            moved[np.arange(1, len(places) + 1), places] += _STEP
            found = self._logs(alike, moved)
            logs[rows] = found[:, 0]
            slopes[np.ix_(rows, places)] = (found[:, 1:] - found[:, :1]) / _STEP
        return logs, slopes

    def _logs(self, alike: Sequence[int], deviations: FloatArray) -> FloatArray:
        """The logarithms of rows that one efficiency is about [rows, points]."""
        first = self.rows[alike[0]]
        ranges = _ranges(first)
        samples: dict[str, FloatArray] = {
            key: ranges[key].at(deviations[:, self._places[place]])
            for key, place in self._free(first).items()
        }
        if first.efficiency.stack.release is not None:
            samples[_release_key(first.efficiency)] = self._release(first, deviations)
        efficiency = replaced(first.efficiency, samples)
        times_s = [self.rows[i].prepared.times_s(efficiency).min(axis=0) for i in alike]
        return np.log([np.broadcast_to(one, len(deviations)) for one in times_s])

    def _release(self, row: Measured, deviations: FloatArray) -> FloatArray:
        """Return what its release makes of a row's times, at several points."""
        key = _release_key(row.efficiency)
        place = self._places.get(_key(row, key))
        if place is None:
            release = row.efficiency.stack.release or ""
            return np.full(len(deviations), row.efficiency.releases.get(release, 1.0))
        return _ranges(row)[key].at(deviations[:, place])

    def _free(self, row: Measured) -> dict[str, ParameterPlace]:
        keys = {key: _key(row, key) for key in _ranges(row)}
        return {key: place for key, place in keys.items() if place in self._places}


def problem(
    rows: Sequence[Measured],
    *,
    held: Collection[str] = (),
    free: Collection[ParameterPlace] | None = None,
    misfit: Mapping[str, float] | None = None,
) -> Problem:
    """The fit of some rows; `held` calibrations stay, and all but `free` parameters.

    `misfit`: by stack, how far its configurations were seen to scatter, where that is more than
    published times do.
    """
    found: dict[ParameterPlace, FitParameter] = {}
    for row in sorted(rows, key=lambda row: (row.chip, row.stack)):
        for key, one in _ranges(row).items():
            place = _key(row, key)
            wanted = place[0] not in held and (free is None or place in free)
            if wanted and key not in TIED:
                found[place] = FitParameter(owner=place[0], key=key, chip=row.chip, prior=one)
    alike = [(row.configuration, row.quantity, row.nodes) for row in rows]
    names = {name: place for place, name in enumerate(dict.fromkeys(alike))}
    groups = tuple(names[name] for name in alike)
    parameters = tuple(found.values())
    return Problem(
        rows=tuple(rows),
        parameters=parameters,
        mixing=np.asarray(np.linalg.cholesky(_correlation(parameters, rows))),
        scatter=np.array([min(row.scatter, REPEAT_SCATTER) for row in rows]),
        groups=groups,
        group_scatter=_group_scatter(rows, groups, misfit or {}),
        _alike=_alike(rows),
        _places={place: i for i, place in enumerate(found)},
    )


def _alike(rows: Sequence[Measured]) -> tuple[tuple[int, ...], ...]:
    """The places of rows of one chip, stack and release."""
    found: dict[tuple[object, ...], list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault((row.chip, row.stack, row.efficiency.stack.release), []).append(i)
    return tuple(map(tuple, found.values()))


def _group_scatter(
    rows: Sequence[Measured], groups: Sequence[int], misfit: Mapping[str, float]
) -> FloatArray:
    found = np.full(max(groups) + 1, 1e-6)
    for row, group in zip(rows, groups, strict=True):
        beyond = max(row.scatter, misfit.get(row.stack, 0.0)) ** 2 - REPEAT_SCATTER**2
        found[group] = max(found[group], max(beyond, 0.0) ** 0.5)
    return found


def _ranges(row: Measured) -> dict[str, Range]:
    """The numbers that a row's time may depend on: those of its release alone."""
    if row.quantity == KERNEL:
        of_chip = chip_ranges(row.efficiency.chip)
        return {key: one for key, one in of_chip.items() if key.startswith(OF_KERNELS)}
    release = row.efficiency.stack.release
    return {
        key: one
        for key, one in ranges_of(row.efficiency).items()
        if not key.startswith(RELEASES) or (release and key == join(RELEASES, release))
    }


def _release_key(efficiency: TrainingEfficiency) -> str:
    release = efficiency.stack.release or ""
    return join(RELEASES if efficiency.stack.releases else CHIP_RELEASES, release)


def _key(row: Measured, key: str) -> ParameterPlace:
    owner = row.chip if key.startswith(f"{CHIP}.") else row.stack
    return owner, TIED.get(key, key)


def _correlation(parameters: Sequence[FitParameter], rows: Sequence[Measured]) -> FloatArray:
    """The correlation of the priors: that of an earlier fit, kernels alike, releases."""
    names = [_name(one.place) for one in parameters]
    pairs: dict[tuple[str, str], float] = {}
    for i, one in enumerate(parameters):
        for j, other in enumerate(parameters[:i]):
            alike = (one.key, one.chip, one.prior) == (other.key, other.chip, other.prior)
            if alike and one.key.startswith(KERNELS):
                pairs[names[i], names[j]] = ALIKE
            if one.chip == other.chip and {one.key, other.key} == KERNEL_SHARES:
                # Stacks that go with their chip's kernels so go with each other as they do.
                pairs[names[i], names[j]] = math.sqrt(ALIKE)
            walked = one.owner == other.owner and one.key.startswith(CHIP_RELEASES)
            if walked and other.key.startswith(CHIP_RELEASES):
                # Both are sums of steps from the newest release; they have the fewer in common.
                reaches = sorted((one.prior.reach, other.prior.reach))
                pairs[names[i], names[j]] = reaches[0] / reaches[1]
    for row in rows:
        for (key, second), value in row.efficiency.stack.correlated.items():
            pairs[_name(_key(row, key)), _name(_key(row, second))] = value
    return correlation_matrix(names, pairs)


def _name(place: ParameterPlace) -> str:
    return " ".join(place)
