"""What a training stack makes of a chip: overlaps, fixed costs, what it supports, how sure it is.

One file a stack (a library of training code with its release on one family of chips), beside one
file a chip. Numbers of the chip and of the stack stand apart, because one chip carries many stacks.
A number may be a row of samples, as in `compute_efficiency`.
"""

from __future__ import annotations

from typing import Literal

import attrs

from trnbench.calibration.chip_efficiency import (
    ChipEfficiency,
    ComputeEfficiency,
    KernelEfficiency,
    Numbers,
    Ratios,
    Times,
    check_numbers,
    ends_of,
    numbers_of,
    samples_of,
)
from trnbench.calibration.transfer import HANDED_ON, nearest_chip, widened
from trnbench.catalog.document import load_named, load_once
from trnbench.catalog.provenance import Provenance, join
from trnbench.catalog.quantity import Correlation, Ratio
from trnbench.catalog.schema import keys_of
from trnbench.catalog.search import BUILT_IN, Catalog, Entry
from trnbench.errors import did_you_mean
from trnbench.hardware.instance import Instance
from trnbench.workload.layout import AttentionKernel, Recompute, Schedule, ZeroStage

CHIP_PREFIX = "chip-"
STACK_PREFIX = "training-"
"""Calibrations of all sorts share a folder; the names of these begin so."""

RankOrder = Literal["megatron", "nxd-trn1"]
ExpertTokens = Literal["copies", "once-a-node"]
Basis = Literal["measured", "transferred", "assumed"]


@attrs.frozen(kw_only=True)
class Overlaps:
    """The share of each kind of communication that runs beside compute, 0 (none) to 1 (all).

    `tensor`, `context`, `expert`: exchanges inside a block. `pipeline`: messages between stages.
    `data`: of the time that a step leaves for gradients and parameters to travel, the share used.
    """

    tensor: Ratios
    context: Ratios
    expert: Ratios
    pipeline: Ratios
    data: Ratios


@attrs.frozen(kw_only=True)
class Supported:
    """What the stack's software can do; a search goes no further, a question may.

    Without `tensor_parallel` or `pipeline_parallel` that degree is 1.
    """

    schedules: tuple[Schedule, ...]
    recompute: tuple[Recompute, ...]
    zero: tuple[ZeroStage, ...]
    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    sequence_parallel: bool
    context_parallel: bool
    expert_parallel: bool


@attrs.frozen(kw_only=True)
class Habits:
    """Settings of the stack where a publication states none.

    `selective` recompute repeats the core of attention, or `half` of a forward pass.
    """

    zero: ZeroStage = 0
    sequence_parallel: bool = False
    selective: Literal["attention", "half"] = "attention"


@attrs.frozen(kw_only=True)
class Spread:
    """How far measured times lie from predicted ones: ends of an 80 % interval, as ratios.

    `low` and `high` multiply a predicted time, on top of what unsure parameters make of it.
    """

    low: float
    high: float

    def __attrs_post_init__(self) -> None:
        """Refuse ends that are on the wrong side."""
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError("`low` must be above 0 and at most 1, `high` at least 1")


def _between(one: Spread, other: Spread) -> Spread:
    """Return the spread half way between two, as logarithms."""
    return Spread(low=(one.low * other.low) ** 0.5, high=(one.high * other.high) ** 0.5)


@attrs.frozen(kw_only=True)
class FitErrors:
    """How a fit came out: mean errors of its rows, predicted over measured less one.

    `error` with all rows in the fit; the others by fits without the row, without all rows of its
    configuration, without any row of the stack.
    """

    rows: int
    error: Ratio
    without_row: Ratio
    without_configuration: Ratio
    without_stack: Ratio | None = None


@attrs.frozen(kw_only=True)
class TrainingStack:
    """A training stack on a family of chips.

    `instances` it describes, `default_for` those that use it unasked. `frameworks`: what
    publications call its software. `basis`: whether its numbers
    were fitted to step times of these chips, taken over from `inherits_from`, or only assumed;
    `fitted_on` the instances where they were measured, `fitted_to` the families of models, `fit`
    how that came out, `correlations` of numbers that were fitted together (the chip's are named
    `chip.` and their name). `spread` is that of what was measured, `unseen` that of what
    no measured step tells of.
    `collectives`: the communication stack, where it is not the instance's own. `order`: how it
    counts ranks. `attention`: the kernel it uses unasked. `expert_tokens`: whether a token crosses
    to a node once for each of its experts there, or just once and is handed on inside it. `factor`
    multiplies everything, and `releases` by name again (`release` is the one taken unasked).
    `communication` multiplies the time of every exchange. `step`: once a step; `micro_batch`: once
    a micro-batch on every stage; `piped_micro_batch`: once more where there is a pipeline.
    `node_scatter`: the relative scatter of computing times between nodes, of which every step waits
    for the slowest. `fragmentation`: what an allocator loses of passing memory.
    `memory_margin`: a run that is known to have run may need so many times its rank's memory by the
    model, which is that unsure.
    """

    name: str
    title: str
    instances: tuple[str, ...]
    default_for: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    habits: Habits = Habits()
    inherits_from: str | None = None
    basis: Basis
    fitted_rows: tuple[str, ...] = ()
    fitted_on: tuple[str, ...] = ()
    fitted_to: tuple[str, ...] = ()
    fit: FitErrors | None = None
    collectives: str | None = None
    order: RankOrder
    attention: AttentionKernel
    expert_tokens: ExpertTokens = "copies"
    supports: Supported
    kernels: KernelEfficiency
    overlaps: Overlaps
    factor: Ratios
    release: str | None = None
    releases: dict[str, Ratios] = attrs.field(factory=dict)
    communication: Ratios
    step_s: Times
    micro_batch_s: Times
    piped_micro_batch_s: Times
    node_scatter: Ratios
    fragmentation: float
    memory_margin: float = 1.0
    spread: Spread
    unseen: Spread | None = None
    correlations: dict[str, dict[str, Correlation]] = attrs.field(factory=dict)
    provenance: Provenance = attrs.field(
        factory=Provenance, repr=False, eq=False, metadata={"derived": True}
    )

    def __attrs_post_init__(self) -> None:
        """Refuse shares that are none, uneven rows, and what names things that are not there."""
        check_numbers(self.own_numbers | {"fragmentation": self.fragmentation})
        if self.memory_margin < 1:
            raise ValueError("`memory_margin` must be at least 1")
        for instance in self.default_for:
            if instance not in self.instances:
                raise ValueError(f"`default_for` has {instance!r}, `instances` has not")
        if self.basis == "transferred" and self.inherits_from is None:
            raise ValueError("a transferred stack must say which it `inherits_from`")
        overlaps = [ends_of(row) for row in numbers_of(self.overlaps).values()]
        if not all(0 <= least <= largest <= 1 for least, largest in overlaps):
            raise ValueError("an overlap must be from 0 to 1")
        if self.release is not None and self.release not in self.releases:
            raise ValueError(f"no release {self.release!r}; known: {', '.join(self.releases)}")
        known = self._correlatable()
        for key in dict.fromkeys(key for pair in self.correlated for key in pair):
            # A stack that takes over another's numbers keeps its correlations, but no releases.
            if key not in known and not key.startswith("releases."):
                near = did_you_mean(key, known)
                raise ValueError(f"`correlations` names {key!r}, which is no number here{near}")

    def _correlatable(self) -> frozenset[str]:
        """Return the keys of the numbers that may go together: of the stack and of its chip."""
        parts = {"chip": ChipEfficiency, "kernels": KernelEfficiency, "overlaps": Overlaps}
        return frozenset(
            [
                *keys_of(TrainingStack).values(),
                *(join(part, key) for part, of in parts.items() for key in keys_of(of).values()),
            ]
        )

    @property
    def correlated(self) -> dict[tuple[str, str], float]:
        """Return the correlations of pairs of keys."""
        return {
            (one, other): value
            for one, others in self.correlations.items()
            for other, value in others.items()
        }

    def basis_on(self, instance: str, family: str | None = None) -> Basis:
        """Return the evidence behind its numbers at an instance, for a family of models if given.

        Where no step was measured, they are taken over from where some were.
        """
        there = instance in self.fitted_on and (family is None or family in self.fitted_to)
        return "transferred" if self.basis == "measured" and not there else self.basis

    def spread_on(self, instance: str, family: str | None = None) -> Spread:
        """Return the scatter at an instance, and for a family of models if given.

        On other machines of its chips the stack is half way to one that nobody measured.
        """
        unseen = self.unseen or self.spread
        if family is not None and self.fitted_to and family not in self.fitted_to:
            return unseen
        known = self.basis_on(instance) == self.basis
        return self.spread if known else _between(self.spread, unseen)

    @property
    def own_numbers(self) -> dict[str, Numbers]:
        """Its numbers by name, without those of its kernels and its chip."""
        named = ("factor", "communication", "step_s", "micro_batch_s", "piped_micro_batch_s")
        own: dict[str, Numbers] = {name: getattr(self, name) for name in (*named, "node_scatter")}
        overlaps = {f"overlaps.{name}": row for name, row in numbers_of(self.overlaps).items()}
        releases = {f"releases.{name}": row for name, row in self.releases.items()}
        return {**own, **overlaps, **releases}

    @property
    def whole_factor(self) -> Numbers:
        """The factor on all times, with the release's."""
        return self.factor * (self.releases[self.release] if self.release else 1.0)


@attrs.frozen(kw_only=True)
class TrainingEfficiency:
    """All that turns a program's work into time on a chip: chip and stack."""

    chip: ChipEfficiency
    stack: TrainingStack

    def __attrs_post_init__(self) -> None:
        """Refuse rows of samples of different length."""
        check_numbers(self._numbers)

    @property
    def compute(self) -> ComputeEfficiency:
        """The part that prices computing."""
        return ComputeEfficiency(chip=self.chip, kernels=self.stack.kernels)

    @property
    def samples(self) -> int | None:
        """How many samples its rows have; None where every number is just one."""
        return samples_of(self._numbers)

    @property
    def _numbers(self) -> dict[str, Numbers]:
        return {
            **{f"chip.{name}": row for name, row in numbers_of(self.chip).items()},
            **{f"kernels.{name}": row for name, row in numbers_of(self.stack.kernels).items()},
            **self.stack.own_numbers,
        }


def load_chip_efficiency(catalog: Catalog, chip: str) -> ChipEfficiency:
    """Return the shares of its peaks that a chip reaches, by the chip's name.

    Of a chip that no calibration lists: that of the nearest one, with wider ranges.
    """
    entry = _listing(catalog, CHIP_PREFIX, "chips", chip)
    if entry is not None:
        return load_once(catalog, entry.path, ChipEfficiency)
    nearest = load_chip_efficiency(catalog, nearest_chip(catalog, chip, _described(catalog)))
    return attrs.evolve(
        nearest,
        inherits_from=nearest.name,
        provenance=widened(nearest.provenance, HANDED_ON),
    )


def load_training_stack(catalog: Catalog, name: str) -> TrainingStack:
    """Return the training stack with this name, with or without its prefix."""
    known = name.startswith(STACK_PREFIX) or name in catalog.names("calibration")
    full = name if known else STACK_PREFIX + name
    return load_named(catalog, "calibration", full, TrainingStack)


def training_stack_of(catalog: Catalog, instance: str) -> TrainingStack:
    """Return the stack an instance (by name, not alias) uses unasked.

    Of an instance that no stack lists: that of the nearest chip, taken over with wider ranges.
    """
    entry = _listing(catalog, STACK_PREFIX, "default_for", instance)
    if entry is None:
        entry = _listing(catalog, STACK_PREFIX, "instances", instance)
    if entry is not None:
        return load_once(catalog, entry.path, TrainingStack)
    chips = {
        load_named(catalog, "instances", name, Instance).chip: name
        for name in sorted(_defaults(catalog), reverse=True)
    }
    own = load_named(catalog, "instances", instance, Instance).chip
    nearest = training_stack_of(catalog, chips[nearest_chip(catalog, own, chips)])
    return attrs.evolve(
        nearest,
        inherits_from=nearest.name,
        basis="transferred" if nearest.basis == "measured" else "assumed",
        spread=nearest.unseen or nearest.spread,
        provenance=widened(nearest.provenance, HANDED_ON),
    )


def stacks_fitted_on(catalog: Catalog, instance: str) -> tuple[TrainingStack, ...]:
    """Return the training stacks with measured steps of an instance (by name), by their names."""
    return tuple(
        load_training_stack(catalog, entry.name)
        for entry in _entries(catalog, STACK_PREFIX)
        if instance in _listed(catalog, entry, "fitted_on")
    )


def _described(catalog: Catalog) -> list[str]:
    """Return the chips that have a calibration."""
    return [
        str(chip)
        for entry in _entries(catalog, CHIP_PREFIX)
        for chip in _listed(catalog, entry, "chips")
        if chip in catalog.names("chips")
    ]


def _defaults(catalog: Catalog) -> set[str]:
    """Return the instances that have a stack of their own."""
    found = {
        str(n) for e in _entries(catalog, STACK_PREFIX) for n in _listed(catalog, e, "default_for")
    }
    return found & set(catalog.names("instances"))


def _listing(catalog: Catalog, prefix: str, key: str, name: str) -> Entry | None:
    """Return the first file with this name in the list under `key`, the user's before our own."""
    entries = sorted(_entries(catalog, prefix), key=lambda entry: entry.origin == BUILT_IN)
    return next((entry for entry in entries if name in _listed(catalog, entry, key)), None)


def _listed(catalog: Catalog, entry: Entry, key: str) -> list[object]:
    """Return the list under `key`, without building the record: only one of many is wanted."""
    listed = catalog.table(entry.path).get(key)
    return listed if isinstance(listed, list) else []


def _entries(catalog: Catalog, prefix: str) -> list[Entry]:
    return [entry for entry in catalog.entries("calibration") if entry.name.startswith(prefix)]
