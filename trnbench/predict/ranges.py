"""Uncertain numbers of a training efficiency: ranges by key, and efficiencies with other values.

Keys are the key paths of the stack's file (`kernels.elementwise_traffic`, `releases.2.18`), and
those of the chip's file with `chip.` in front. Model of a number: the `low` and `high` that a file
gives beside it are the ends of its 80 % interval and the number is its median, so each side has a
spread of its own. Numbers above 0 scatter in their logarithm; overlaps, and numbers that may be 0,
scatter linearly. Shares are cut at 1.
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
    DispatchEfficiency,
    ExpertEfficiency,
    KernelEfficiency,
    Numbers,
    numbers_of,
)
from trnbench.facts.calibration.hosts import HostLaunch
from trnbench.facts.calibration.training_stack import Overlaps, TrainingEfficiency, TrainingStack
from trnbench.facts.catalog.provenance import Evidence, join
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.records import Record, fields, replace

R = TypeVar(
    "R",
    ChipEfficiency,
    KernelEfficiency,
    Overlaps,
    HostLaunch,
    ExpertEfficiency,
    DispatchEfficiency,
    TrainingStack,
)

INTERVAL = 0.80
"""Share of cases that an interval should contain."""
TAIL = (1 - INTERVAL) / 2
END = NormalDist().inv_cdf(1 - TAIL)
"""Standard deviations from the median to an end of the interval."""

LEAST_EIGENVALUE = 1e-3
"""Smallest eigenvalue of a correlation: rounded pairs may contradict each other a little."""

CHIP = "chip"
KERNELS = "kernels"
OVERLAPS = "overlaps"
RELEASES = "releases"
HOST = "host"
CHIP_RELEASES = "chip.releases"
EXPERTS = "experts"
EFA = "efa"
OF_KERNELS = f"{CHIP}.attention_"
"""Prefix of a chip's numbers that only kernels timed by themselves depend on, and no step."""
TIED: Mapping[str, str] = {
    "kernels.attention_backward_share": "kernels.attention_forward_share",
    "kernels.score_touches_backward": "kernels.score_touches_forward",
    "chip.attention_backward_share": "chip.attention_forward_share",
}
"""Numbers that one kernel sets -> the number whose deviations they share."""


def drawn_with(key: str, ranges: Mapping[str, object]) -> str:
    """Key whose deviations a number takes: its own, or that of the number to which it is tied."""
    leader = TIED.get(key, key)
    return leader if leader in ranges else key


class Range(Record):
    """A number and the ends of its 80 % interval."""

    value: float
    low: float
    high: float
    linear: bool = False
    """True where the number scatters linearly, not in its logarithm."""
    most: float = math.inf
    """Largest possible value, such as 1 for a share."""

    @property
    def reach(self) -> float:
        """Half of the interval's length in the logarithm, for a number above 0."""
        return math.log(self.high / self.low) / 2

    def at(self, deviations: FloatArray) -> FloatArray:
        """The number at these standard deviations from its median."""
        (numbers,) = numbers_at([self], deviations[np.newaxis])
        return np.asarray(numbers)

    @property
    def _sides(self) -> tuple[float, float]:
        """Spread below and above the median, each side's own: of the logarithm unless linear."""
        if self.linear:
            return self.value - self.low, self.high - self.value
        return math.log(self.value / self.low), math.log(self.high / self.value)


def numbers_at(ranges: Sequence[Range], deviations: FloatArray) -> FloatArray:
    """Numbers [number, draw] at their standard deviations [number, draw] from their medians."""
    found = np.empty_like(deviations)
    for linear in (True, False):
        rows = [place for place, known in enumerate(ranges) if known.linear == linear]
        if not rows:
            continue
        listed = [(one.value, one.most, *one._sides) for one in (ranges[row] for row in rows)]
        value, most, below, above = np.array(listed).T[..., np.newaxis]
        drawn = deviations[rows]
        reached = drawn / END * np.where(drawn < 0, below, above)
        numbers = np.maximum(value + reached, 0.0) if linear else value * np.exp(reached)
        found[rows] = np.minimum(numbers, most)
    return found


_UNIT = ("factor", "communication")
"""Factors on what the chip and the links do by themselves: 1 is their own speed."""


def best_of(key: str, known: Range) -> float:
    """The end of a number's range at which a step is fastest, as far as physics allows.

    Software is no faster than its chip and its links: factors on them end at 1. An overlap may be
    complete.
    """
    if key in _UNIT or key.startswith((RELEASES, CHIP_RELEASES)):
        return min(known.value, 1.0)
    if key.startswith(f"{OVERLAPS}."):
        return 1.0
    return min(known.high, known.most) if known.most == 1.0 else known.low


def ranges_of(efficiency: TrainingEfficiency) -> dict[str, Range]:
    """Range of every uncertain number of a step by key, in the order of the records."""
    chip, stack = efficiency.chip, efficiency.stack
    evidence = stack.provenance.evidence
    ranges = {
        **{
            key: bounds
            for key, bounds in chip_ranges(chip).items()
            if not key.startswith(OF_KERNELS)
        },
        **{
            join(CHIP_RELEASES, name): _range(factor, chip.provenance.evidence.get(key))
            for name, factor in chip.releases.items()
            for key in [join(RELEASES, name)]
            if name == stack.release
            and not stack.releases  # answers and fits of a release depend on no other
        },
        **_of_record(stack.kernels, evidence, KERNELS, KERNELS),
        **_of_record(stack.overlaps, evidence, OVERLAPS, OVERLAPS, linear=True),
        **{
            join(RELEASES, name): _range(factor, evidence.get(join(RELEASES, name)))
            for name, factor in stack.releases.items()
        },
        **{
            key: _range(getattr(stack, name), evidence.get(key))
            for name, key in _own_keys().items()
        },
        **(_of_record(stack.host, evidence, HOST, HOST) if stack.host else {}),
        **(_of_record(stack.experts, evidence, EXPERTS, EXPERTS) if stack.experts else {}),
        **(_of_record(stack.efa, evidence, EFA, EFA) if stack.efa else {}),
    }
    return {key: bounds for key, bounds in ranges.items() if bounds is not None}


def chip_ranges(chip: ChipEfficiency) -> dict[str, Range]:
    """Range of every uncertain number of a chip's file, by key."""
    ranges = _of_record(chip, chip.provenance.evidence, "", CHIP)
    return {key: bounds for key, bounds in ranges.items() if bounds is not None}


def chip_with(chip: ChipEfficiency, rows: Mapping[str, Numbers]) -> ChipEfficiency:
    """A chip's efficiency with some numbers replaced, by single values or rows of samples."""
    return _with(chip, rows, CHIP)


def numbers_by_key(efficiency: TrainingEfficiency) -> dict[str, Numbers]:
    """Numbers of the chip's and the stack's files by key, releases excepted."""
    stack = efficiency.stack
    parts = (
        *((CHIP, efficiency.chip), (KERNELS, stack.kernels), (OVERLAPS, stack.overlaps)),
        *(((HOST, stack.host),) if stack.host else ()),
        *(((EXPERTS, stack.experts),) if stack.experts else ()),
        *(((EFA, stack.efa),) if stack.efa else ()),
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
"""Draws per matrix product: with more, BLAS starts threads and waits longer than the product
takes."""


def correlated(
    draws: FloatArray, keys: Sequence[str], pairs: Mapping[tuple[str, str], float]
) -> FloatArray:
    """Independent deviations [key, draw] turned into correlated ones."""
    # Without stated pairs independent draws are correlated already: by the unit matrix.
    if not pairs or not keys:
        return draws
    root = np.linalg.cholesky(correlation_matrix(keys, pairs))
    starts = range(0, draws.shape[1], _COLUMNS)
    return np.hstack([root @ draws[:, start : start + _COLUMNS] for start in starts])


def correlation_matrix(keys: Sequence[str], pairs: Mapping[tuple[str, str], float]) -> FloatArray:
    """Correlation of these keys: the valid matrix nearest to the stated pairs."""
    place = {key: i for i, key in enumerate(keys)}
    matrix = np.eye(len(keys))
    for (first, other), value in pairs.items():
        if first in place and other in place:
            matrix[place[first], place[other]] = matrix[place[other], place[first]] = value
    # Clip eigenvalues and rescale the diagonal to 1: pairs alone may not be positive definite.
    values, vectors = np.linalg.eigh(matrix)
    if np.any(values < LEAST_EIGENVALUE):
        matrix = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
        scale = np.sqrt(np.diag(matrix))
        matrix = matrix / np.outer(scale, scale)
    return matrix


def replaced(efficiency: TrainingEfficiency, rows: Mapping[str, Numbers]) -> TrainingEfficiency:
    """Efficiency with some numbers replaced, by single values or rows of samples."""
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
        efa=_with(stack.efa, rows, EFA) if stack.efa else None,
        releases=releases,
    )
    shared = {
        name: rows.get(join(CHIP_RELEASES, name), factor) for name, factor in chip.releases.items()
    }
    return TrainingEfficiency(
        chip=replace(_with(chip, rows, CHIP), releases=shared),
        stack=_evolved(parts, own),
        buckets=efficiency.buckets,
    )


def _own_keys() -> dict[str, str]:
    names = ("factor", "communication", "step_s", "micro_batch_s", "piped_micro_batch_s")
    keys = keys_of(TrainingStack)
    return {name: keys[name] for name in (*names, "node_scatter")}


def _of_record(
    record: ChipEfficiency
    | KernelEfficiency
    | Overlaps
    | HostLaunch
    | ExpertEfficiency
    | DispatchEfficiency,
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
    value: Numbers, evidence: Evidence | None, *, linear: bool = False, most: float = math.inf
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
