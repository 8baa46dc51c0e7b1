"""The fit's problem: measurements, parameters, priors and predictions.

A parameter is a number in one file, of a chip or a training stack; all rows on a chip share the
chip's. Parameters are counted in standard deviations from the prior's median, on the prior's own
scale, so every prior is standard normal. Numbers set by one kernel are one parameter. Kernels of
stacks on one chip have correlated priors, also with the chip's attention kernels timed alone. The
effects of a chip's releases are a random walk: the closer two releases, the more alike they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.training_stack import CHIP_PREFIX, TrainingEfficiency
from trnbench.facts.catalog.provenance import join
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import Layout
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
"""Quantity of most rows; other rows measure parts of a step, or kernels."""
KERNEL = "kernel"
"""Quantity of a row with an attention kernel timed alone."""
REPEAT_SCATTER = 0.03
"""Log standard deviation of repeated measurements of one configuration."""
ROW_SCATTER = 0.035
"""Log standard deviation of published times, including the configuration's peculiarities."""
ASSUMED_SCATTER = 0.07
"""The same for rows that leave influential cells open."""
KERNEL_SHARES = {f"{OF_KERNELS}forward_share", f"{KERNELS}.attention_forward_share"}
"""Efficiency of a chip's kernels alone, and in the steps of a stack."""
ALIKE = 0.8
"""Prior correlation of equal numbers of stacks on one chip."""
_SPAN = 0.02
"""Half of the span of a slope, in standard deviations.

A slope looks to both sides: a number that starts at its limit moves one way only, and where the
longest of several times changes, a look to one side would tell how a processor rounds.
"""
_MOST_POINTS = 256
"""Points priced at once: more cost memory, and save no time."""


class FitParameter(Record):
    """A number that may be fitted: the calibration it belongs to, its key there, and its prior."""

    owner: str
    key: str
    chip: str
    prior: Range

    @property
    def place(self) -> ParameterPlace:
        return self.owner, self.key


class Measured(Record, eq=False):
    """A measured time, its prediction, and its efficiency before the fit."""

    id: str
    configuration: str
    """Equal for rows that repeat one experiment, on any number of nodes."""
    measured_s: float
    scatter: float
    times_s: Callable[[TrainingEfficiency], FloatArray]
    """Time by an efficiency [ways it may have run, samples], s; the shortest way counts."""
    efficiency: TrainingEfficiency
    nodes: int = 1
    family: str = ""
    """Family of the model."""
    quantity: str = STEP
    """The measured thing: a step, a part of one, or a kernel."""
    small: bool = False
    """True for a step of a small model, which waits for its host's launches."""
    instance: str = ""
    layout: Layout | None = None
    """Layout of a step."""
    node_ranks: int = 1
    """Ranks of a node; `chips`: of all nodes."""
    chips: int = 0
    by_chip: bool = False
    """True for a kernel that depends on all numbers of its chip, not only those of kernels alone.
    """

    @property
    def chip(self) -> str:
        return self.efficiency.chip.name

    @property
    def stack(self) -> str:
        """The name of the stack's calibration; of a kernel, that it is one of its chip."""
        of_chip = self.efficiency.chip.name.removeprefix(CHIP_PREFIX)
        return f"kernels of {of_chip}" if self.quantity == KERNEL else self.efficiency.stack.name


class Problem(Record, eq=False):
    """Rows and parameters of one fit."""

    rows: tuple[Measured, ...]
    parameters: tuple[FitParameter, ...]
    mixing: FloatArray
    """Matrix from independent standard normal numbers to correlated parameters."""
    scatter: FloatArray
    """Log scatter of each row about its configuration's time."""
    groups: tuple[int, ...]
    """Number of each row's configuration and nodes."""
    group_scatter: FloatArray
    """Log scatter of the groups about their predictions."""
    _alike: tuple[tuple[int, ...], ...]
    """Rows priced together, by one efficiency."""
    _places: Mapping[ParameterPlace, int]

    @property
    def measured(self) -> FloatArray:
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
            count = len(places)
            moved = np.repeat(deviations[np.newaxis], 2 * count + 1, axis=0)
            moved[np.arange(count), places] += _SPAN
            moved[np.arange(count, 2 * count), places] -= _SPAN
            found = self._logs(alike, moved)
            logs[rows] = found[:, -1]
            rise = found[:, :count] - found[:, count : 2 * count]
            slopes[np.ix_(rows, places)] = rise / (2 * _SPAN)
        return logs, slopes

    def only_of(self, rows: Collection[int]) -> list[int]:
        """The places of parameters that no rows but these depend on."""
        found: set[int] = set()
        others: set[int] = set()
        for alike in self._alike:
            places = {self._places[key] for key in self._free(self.rows[alike[0]]).values()}
            (found if set(alike) <= set(rows) else others).update(places)
        return sorted(found - others)

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
        times_s = [self.rows[i].times_s(efficiency).min(axis=0) for i in alike]
        return np.log([np.broadcast_to(one, len(deviations)) for one in times_s])

    def _release(self, row: Measured, deviations: FloatArray) -> FloatArray:
        """Factor of a row's release at several points."""
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
    """The fit of some rows; `held` calibrations are fixed, and all parameters not in `free`.

    `misfit`: observed log scatter of a stack's configurations, where larger than published times'.
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
    """The places of rows of one chip, stack, release and kind of network."""
    found: dict[tuple[object, ...], list[int]] = {}
    for i, row in enumerate(rows):
        stack = row.efficiency.stack
        found.setdefault((row.chip, row.stack, stack.release, stack.efa is None), []).append(i)
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
        wanted = (key for key in of_chip if row.by_chip or key.startswith(OF_KERNELS))
        return {key: of_chip[key] for key in wanted}
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
