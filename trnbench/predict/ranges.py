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
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import (
    ChipEfficiency,
    ExpertEfficiency,
    KernelEfficiency,
    Numbers,
    numbers_of,
)
from trnbench.facts.calibration.host_launch import HostLaunch
from trnbench.facts.calibration.training_stack import Overlaps, TrainingEfficiency, TrainingStack
from trnbench.facts.catalog.provenance import Evidence, join
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.records import Record, fields, replace

R = TypeVar(
    "R", ChipEfficiency, KernelEfficiency, Overlaps, HostLaunch, ExpertEfficiency, TrainingStack
)

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
HOST = "host"
CHIP_RELEASES = "chip.releases"
EXPERTS = "experts"
OF_KERNELS = f"{CHIP}.attention_"
"""So begin the keys of a chip's numbers that kernels timed by themselves depend on, and no step."""
TIED: Mapping[str, str] = {
    "kernels.attention_backward_share": "kernels.attention_forward_share",
    "kernels.score_touches_backward": "kernels.score_touches_forward",
    "chip.attention_backward_share": "chip.attention_forward_share",
}
"""Numbers that one kernel sets -> the number with which they go up and down."""


def drawn_with(key: str, ranges: Mapping[str, object]) -> str:
    """Return the key whose deviations a number takes: its own, unless it is tied to one of them."""
    leader = TIED.get(key, key)
    return leader if leader in ranges else key


class Range(Record):
    """A number and the ends of its 80 % interval; `linear` where it scatters in itself."""

    value: float
    low: float
    high: float
    linear: bool = False
    most: float = math.inf

    @property
    def reach(self) -> float:
        """Half of the interval's length, as a logarithm; of a number above 0."""
        return math.log(self.high / self.low) / 2

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
    """Return the range of every number of a step that has one, by key, in order of the records."""
    chip, stack = efficiency.chip, efficiency.stack
    known = stack.provenance.evidence
    found = {
        **{key: one for key, one in chip_ranges(chip).items() if not key.startswith(OF_KERNELS)},
        **{
            join(CHIP_RELEASES, name): _range(factor, chip.provenance.evidence.get(key))
            for name, factor in chip.releases.items()
            for key in [join(RELEASES, name)]
            if name == stack.release
            and not stack.releases  # answers and fits of a release depend on no other
        },
        **_of_record(stack.kernels, known, KERNELS, KERNELS),
        **_of_record(stack.overlaps, known, OVERLAPS, OVERLAPS, linear=True),
        **{
            join(RELEASES, name): _range(factor, known.get(join(RELEASES, name)))
            for name, factor in stack.releases.items()
        },
        **{key: _range(getattr(stack, name), known.get(key)) for name, key in _own_keys().items()},
        **(_of_record(stack.host, known, HOST, HOST) if stack.host else {}),
        **(_of_record(stack.experts, known, EXPERTS, EXPERTS) if stack.experts else {}),
    }
    return {key: one for key, one in found.items() if one is not None}


def chip_ranges(chip: ChipEfficiency) -> dict[str, Range]:
    """Return the range of every number of a chip's own that has one, by key."""
    found = _of_record(chip, chip.provenance.evidence, "", CHIP)
    return {key: one for key, one in found.items() if one is not None}


def chip_with(chip: ChipEfficiency, rows: Mapping[str, Numbers]) -> ChipEfficiency:
    """Return a chip's efficiency with other numbers, or rows of samples, by key."""
    return _with(chip, rows, CHIP)


def numbers_by_key(efficiency: TrainingEfficiency) -> dict[str, Numbers]:
    """Return the numbers of the chip's and the stack's files by key, but those of releases."""
    stack = efficiency.stack
    parts = (
        *((CHIP, efficiency.chip), (KERNELS, stack.kernels), (OVERLAPS, stack.overlaps)),
        *(((HOST, stack.host),) if stack.host else ()),
        *(((EXPERTS, stack.experts),) if stack.experts else ()),
    )
    return {
        **{
            join(prefix, keys_of(type(record))[name]): value
            for prefix, record in parts
            for name, value in numbers_of(record).items()
        },
        **{key: getattr(stack, name) for name, key in _own_keys().items()},
    }


_COLUMNS = 128
"""Draws of so many at a time: more, and BLAS lets threads wait for each other for longer than the
product takes."""


def correlated(
    draws: FloatArray, keys: Sequence[str], pairs: Mapping[tuple[str, str], float]
) -> FloatArray:
    """Return independent deviations [key, draw] as ones that go together as the pairs say."""
    if not pairs or not keys:
        return draws
    root = np.linalg.cholesky(correlation_matrix(keys, pairs))
    starts = range(0, draws.shape[1], _COLUMNS)
    return np.hstack([root @ draws[:, start : start + _COLUMNS] for start in starts])


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
    parts = replace(
        stack,
        kernels=_with(stack.kernels, rows, KERNELS),
        overlaps=_with(stack.overlaps, rows, OVERLAPS),
        host=_with(stack.host, rows, HOST) if stack.host else None,
        experts=_with(stack.experts, rows, EXPERTS) if stack.experts else None,
        releases=releases,
    )
    shared = {
        name: rows.get(join(CHIP_RELEASES, name), factor) for name, factor in chip.releases.items()
    }
    return TrainingEfficiency(
        chip=replace(_with(chip, rows, CHIP), releases=shared), stack=_evolved(parts, own)
    )


def _own_keys() -> dict[str, str]:
    """Return attribute -> key of a stack's own numbers that may scatter."""
    names = ("factor", "communication", "step_s", "micro_batch_s", "piped_micro_batch_s")
    keys = keys_of(TrainingStack)
    return {name: keys[name] for name in (*names, "node_scatter")}


def _of_record(
    record: ChipEfficiency | KernelEfficiency | Overlaps | HostLaunch | ExpertEfficiency,
    known: Mapping[str, Evidence],
    path: str,
    prefix: str,
    *,
    linear: bool = False,
) -> dict[str, Range | None]:
    keys = keys_of(type(record))
    known_of = {field.name: field.metadata for field in fields(type(record))}
    return {
        join(prefix, keys[name]): _range(
            value,
            known.get(join(path, keys[name])),
            linear=linear or "linear" in known_of[name],
            most=1.0 if linear or "most" in known_of[name] else math.inf,
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
    changed: Callable[..., R] = replace  # whose stub wants one type for all names
    return changed(record, **rows)
