"""What a training stack makes of a chip: overlaps, fixed costs, what it supports, how sure it is.

One file a stack (a library of training code with its release on one family of chips), beside one
file a chip. Numbers of the chip and of the stack stand apart, because one chip carries many stacks.
A number may be a row of samples, as in `compute_efficiency`.
"""

from __future__ import annotations

from typing import Literal

import attrs

from trnbench.catalog.document import load
from trnbench.catalog.provenance import Provenance
from trnbench.catalog.search import BUILT_IN, Catalog, Entry
from trnbench.catalog.toml_file import read_toml
from trnbench.errors import InputError
from trnbench.spec.compute_efficiency import (
    ChipEfficiency,
    ComputeEfficiency,
    KernelEfficiency,
    Numbers,
    Ratios,
    Times,
    check_numbers,
    numbers_of,
    samples_of,
)
from trnbench.workload.layout import AttentionKernel, Recompute, Schedule, ZeroStage

CHIP_PREFIX = "chip-"
STACK_PREFIX = "training-"
"""Calibrations of all sorts share a folder; the names of these begin so."""

RankOrder = Literal["megatron", "nxd-trn1"]
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
    """What the stack does unless told otherwise, for publications that do not say.

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


@attrs.frozen(kw_only=True)
class TrainingStack:
    """A training stack on a family of chips.

    `instances` it describes, `default_for` those that use it unasked. `frameworks`: what
    publications call its software. `basis`: whether its numbers
    were fitted to step times of these chips, taken over from `inherits_from`, or only assumed.
    `collectives`: the communication stack, where it is not the instance's own. `order`: how it
    counts ranks. `attention`: the kernel it uses unasked. `factor` multiplies everything, and
    `releases` by name again (`release` is the one taken unasked). `communication` multiplies the
    time of every exchange. `step`: once a step; `micro_batch`: once a micro-batch on every stage;
    `piped_micro_batch`: once more where there is a pipeline. `node_scatter`: the relative scatter
    of computing times between nodes, of which every step waits for the slowest. `fragmentation`:
    what an allocator loses of passing memory.
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
    collectives: str | None = None
    order: RankOrder
    attention: AttentionKernel
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
    spread: Spread
    provenance: Provenance = attrs.field(
        factory=Provenance, repr=False, eq=False, metadata={"derived": True}
    )

    def __attrs_post_init__(self) -> None:
        """Refuse shares that are none, uneven rows, and what names things that are not there."""
        check_numbers(self.own_numbers | {"fragmentation": self.fragmentation})
        for instance in self.default_for:
            if instance not in self.instances:
                raise ValueError(f"`default_for` has {instance!r}, `instances` has not")
        if self.basis == "transferred" and self.inherits_from is None:
            raise ValueError("a transferred stack must say which it `inherits_from`")
        if any(
            not 0 <= share <= 1
            for row in numbers_of(self.overlaps).values()
            for share in ([row] if isinstance(row, float | int) else row.tolist())
        ):
            raise ValueError("an overlap must be from 0 to 1")
        if self.release is not None and self.release not in self.releases:
            raise ValueError(f"no release {self.release!r}; known: {', '.join(self.releases)}")

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
    """Return what is known of a chip's reached shares, by the chip's name."""
    entry = _listing(catalog, CHIP_PREFIX, "chips", chip)
    if entry is None:
        known = _names(catalog, CHIP_PREFIX)
        raise InputError(f"no efficiency is calibrated for chip {chip}", hint=f"known: {known}")
    return load(entry.path, ChipEfficiency)


def load_training_stack(catalog: Catalog, name: str) -> TrainingStack:
    """Return the training stack with this name, with or without its prefix."""
    full = name if name.startswith(STACK_PREFIX) else STACK_PREFIX + name
    return load(catalog.find("calibration", full).path, TrainingStack)


def training_stack_of(catalog: Catalog, instance: str) -> TrainingStack:
    """Return the stack an instance (by name, not alias) uses unasked; or raise InputError."""
    entry = _listing(catalog, STACK_PREFIX, "default_for", instance)
    if entry is None:
        entry = _listing(catalog, STACK_PREFIX, "instances", instance)
    if entry is None:
        known = _names(catalog, STACK_PREFIX)
        raise InputError(
            f"no training stack is calibrated for {instance}",
            hint=f"name one that comes near with --stack: {known}",
        )
    return load(entry.path, TrainingStack)


def _listing(catalog: Catalog, prefix: str, key: str, name: str) -> Entry | None:
    """Return the first file with this name in the list under `key`, the user's before our own."""
    entries = sorted(_entries(catalog, prefix), key=lambda entry: entry.origin == BUILT_IN)
    return next((entry for entry in entries if name in _listed(entry, key)), None)


def _listed(entry: Entry, key: str) -> list[object]:
    """Return the list under `key`, without building the record: only one of many is wanted."""
    listed = read_toml(entry.path).get(key)
    return listed if isinstance(listed, list) else []


def _entries(catalog: Catalog, prefix: str) -> list[Entry]:
    return [entry for entry in catalog.entries("calibration") if entry.name.startswith(prefix)]


def _names(catalog: Catalog, prefix: str) -> str:
    return ", ".join(entry.name for entry in _entries(catalog, prefix)) or "none"
