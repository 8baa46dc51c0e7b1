"""The numbers of a training efficiency by key, and what each may be instead.

Keys are the key paths of the stack's file (`kernels.elementwise_traffic`, `releases.2.18`), and
those of the chip's file behind `chip.`. Model of a number: the `low` and `high` that a file gives
beside it are the ends of its 80 % interval and the number is its median, so each side has a spread
of its own. Numbers above 0 scatter in their logarithm, overlaps (and whatever may be 0) in
themselves; shares are cut at 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import attrs
import numpy as np

from trnbench.arrays import FloatArray
from trnbench.calibration.chip_efficiency import (
    ChipEfficiency,
    KernelEfficiency,
    Numbers,
    numbers_of,
)
from trnbench.calibration.training_stack import Overlaps, TrainingEfficiency, TrainingStack
from trnbench.catalog.provenance import Evidence, join
from trnbench.catalog.schema import keys_of

R = TypeVar("R", ChipEfficiency, KernelEfficiency, Overlaps, TrainingStack)

INTERVAL = 0.80
"""The share of cases that an interval is meant to hold."""
TAIL = (1 - INTERVAL) / 2
END = NormalDist().inv_cdf(1 - TAIL)
"""Standard deviations from the median to an end of the interval."""

LEAST_EIGENVALUE = 1e-3
"""Rounded pairs may contradict each other a little; a correlation has no smaller eigenvalue."""

CHIP = "chip"
KERNELS = "kernels"
OVERLAPS = "overlaps"
RELEASES = "releases"
TIED: Mapping[str, str] = {
    "kernels.attention_backward_share": "kernels.attention_forward_share",
    "kernels.score_touches_backward": "kernels.score_touches_forward",
}
"""Numbers that one kernel sets -> the number with which they go up and down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A number and the ends of its 80 % interval; `linear` where it scatters in itself."""

    value: float
    low: float
    high: float
    linear: bool = False
    most: float = math.inf

    def at(self, deviations: FloatArray) -> FloatArray:
        """Return the number so many standard deviations from its median."""
        ends = deviations / END
        if self.linear:
            reach = np.where(deviations < 0, self.value - self.low, self.high - self.value)
            return np.clip(self.value + ends * reach, 0.0, self.most)
        below, above = math.log(self.value / self.low), math.log(self.high / self.value)
        factor = np.exp(ends * np.where(deviations < 0, below, above))
        return np.minimum(self.value * factor, self.most)


def ranges_of(efficiency: TrainingEfficiency) -> dict[str, Range]:
    """Return the range of every number that has one, by key, in the order of the records."""
    chip, stack = efficiency.chip, efficiency.stack
    known = stack.provenance.evidence
    found = {
        **_of_record(chip, chip.provenance.evidence, "", CHIP),
        **_of_record(stack.kernels, known, KERNELS, KERNELS),
        **_of_record(stack.overlaps, known, OVERLAPS, OVERLAPS, linear=True),
        **{
            join(RELEASES, name): _range(factor, known.get(join(RELEASES, name)))
            for name, factor in stack.releases.items()
        },
        **{key: _range(getattr(stack, name), known.get(key)) for name, key in _own_keys().items()},
    }
    return {key: one for key, one in found.items() if one is not None}


def correlation_matrix(keys: Sequence[str], pairs: Mapping[tuple[str, str], float]) -> FloatArray:
    """Return the correlation of these keys: the nearest to the pairs' that can be one."""
    place = {key: i for i, key in enumerate(keys)}
    found = np.eye(len(keys))
    for (one, other), value in pairs.items():
        if one in place and other in place:
            found[place[one], place[other]] = found[place[other], place[one]] = value
    values, vectors = np.linalg.eigh(found)
    if np.any(values < LEAST_EIGENVALUE):
        found = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
        scale = np.sqrt(np.diag(found))
        found = found / np.outer(scale, scale)
    return found


def replaced(efficiency: TrainingEfficiency, rows: Mapping[str, Numbers]) -> TrainingEfficiency:
    """Return the efficiency with other numbers, or rows of samples, by key."""
    chip, stack = efficiency.chip, efficiency.stack
    releases = {
        name: rows.get(join(RELEASES, name), factor) for name, factor in stack.releases.items()
    }
    own = {name: rows[key] for name, key in _own_keys().items() if key in rows}
    parts = attrs.evolve(
        stack,
        kernels=_with(stack.kernels, rows, KERNELS),
        overlaps=_with(stack.overlaps, rows, OVERLAPS),
        releases=releases,
    )
    return TrainingEfficiency(chip=_with(chip, rows, CHIP), stack=_evolved(parts, own))


def _own_keys() -> dict[str, str]:
    """Return attribute -> key of a stack's own numbers that may scatter."""
    names = ("factor", "communication", "step_s", "micro_batch_s", "piped_micro_batch_s")
    keys = keys_of(TrainingStack)
    return {name: keys[name] for name in (*names, "node_scatter")}


def _of_record(
    record: ChipEfficiency | KernelEfficiency | Overlaps,
    known: Mapping[str, Evidence],
    path: str,
    prefix: str,
    *,
    linear: bool = False,
) -> dict[str, Range | None]:
    keys = keys_of(type(record))
    shares = {field.name for field in attrs.fields(type(record)) if "most" in field.metadata}
    return {
        join(prefix, keys[name]): _range(
            value,
            known.get(join(path, keys[name])),
            linear=linear,
            most=1.0 if linear or name in shares else math.inf,
        )
        for name, value in numbers_of(record).items()
    }


def _range(
    value: Numbers,
    evidence: Evidence | None,
    *,
    linear: bool = False,
    most: float = math.inf,
) -> Range | None:
    if evidence is None or evidence.low is None or evidence.high is None:
        return None
    if not isinstance(value, float | int) or evidence.low == evidence.high:
        return None
    return Range(
        value=value,
        low=evidence.low,
        high=evidence.high,
        linear=linear or evidence.low <= 0,
        most=most,
    )


def _with(record: R, rows: Mapping[str, Numbers], prefix: str) -> R:
    keys = keys_of(type(record))
    named = {name: join(prefix, keys[name]) for name in numbers_of(record)}
    return _evolved(record, {name: rows[key] for name, key in named.items() if key in rows})


def _evolved(record: R, rows: Mapping[str, Numbers]) -> R:
    changed: Callable[..., R] = attrs.evolve  # whose stub wants one type for all names
    return changed(record, **rows)
