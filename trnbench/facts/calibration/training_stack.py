"""What a training stack makes of a chip: overlaps, fixed costs, what it supports, how sure it is.

One file a stack (a library of training code with its release on one family of chips), beside one
file a chip. Numbers of the chip and of the stack stand apart, because one chip carries many stacks.
A number may be a row of samples, as in `compute_efficiency`.
"""

from __future__ import annotations

from typing import Literal

from trnbench.errors import InputError, did_you_mean
from trnbench.facts.calibration.chip_efficiency import (
    ChipEfficiency,
    ComputeEfficiency,
    ExpertEfficiency,
    KernelEfficiency,
    Numbers,
    Ratios,
    Times,
    check_numbers,
    ends_of,
    numbers_of,
    samples_of,
)
from trnbench.facts.calibration.host_launch import Dispatch, HostLaunch
from trnbench.facts.calibration.memory_overheads import PLAIN, MemoryOverheads
from trnbench.facts.calibration.stack_names import STACK_KEYS as STACK_KEYS
from trnbench.facts.calibration.stack_names import STACK_PREFIX as STACK_PREFIX
from trnbench.facts.calibration.stack_names import known_stacks, unknown_stack
from trnbench.facts.calibration.supports import (
    ANYTHING_ELSE,
    KEY,
    Support,
    SupportLine,
    named_twice,
)
from trnbench.facts.calibration.transfer import (
    HANDED_ON,
    Nearest,
    entries_of,
    listed_in,
    listing,
    nearest_chip,
    stack_file,
    widened,
)
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced, join
from trnbench.facts.catalog.quantity import Correlation, Ratio
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Entry
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.layout import AttentionKernel, FrozenFormat, StageSplit, ZeroStage
from trnbench.facts.workload.recompute import PlainRecompute

CHIP_PREFIX = "chip-"

RankOrder = Literal["megatron", "nxd-trn1", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp"]
ExpertTokens = Literal["copies", "once-a-node"]
Basis = Literal["measured", "transferred", "assumed"]

WITH_EXPERTS = " with experts"
"""What the name of a family of models ends in where its layers have experts."""


class Overlaps(Record):
    """The share of each kind of communication that runs beside compute, 0 (none) to 1 (all).

    `tensor`, `context`, `expert`: exchanges inside a block. `pipeline`: messages between stages.
    `data`: of the time that a step leaves for gradients and parameters to travel, the share used.
    """

    tensor: Ratios
    context: Ratios
    expert: Ratios
    pipeline: Ratios
    data: Ratios


class Software(Record):
    """The stack's software: in which `state` it is, in a few words."""

    state: str


class Habits(Record):
    """Settings of the stack where a publication states none.

    `selective` recompute repeats the core of attention, or `half` of a forward pass. Without a
    `recompute` it is the least that fits in memory. `precision` is the recipe that a bare format
    such as bf16 stands for. `fp8_frozen` is in what jobs with adapters keep the weights that they
    do not train, where products are of fp8.
    """

    zero: ZeroStage = 0
    sequence_parallel: bool = False
    recompute: PlainRecompute | None = None
    precision: str = "bf16-master"
    selective: Literal["attention", "half"] = "attention"
    fp8_frozen: FrozenFormat = "none"


class Spread(Record):
    """How far measured times lie from predicted ones: ends of an 80 % interval, as ratios.

    `low` and `high` multiply a predicted time, on top of what unsure parameters make of it.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse ends that are on the wrong side."""
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError("`low` must be above 0 and at most 1, `high` at least 1")


def _between(one: Spread, other: Spread) -> Spread:
    """Return the spread half way between two, as logarithms."""
    return Spread(low=(one.low * other.low) ** 0.5, high=(one.high * other.high) ** 0.5)


class FitErrors(Record):
    """How a fit came out: mean errors of its rows, predicted over measured less one.

    `error` with all rows in the fit; the others by fits without the row, without all rows of its
    configuration, without any row of the stack.
    """

    rows: int
    error: Ratio
    without_row: Ratio
    without_configuration: Ratio
    without_stack: Ratio | None = None


class TrainingStack(Sourced):
    """A training stack on a family of chips.

    `stands_for`: the stack's name, where its file has another. `begun_as`: the stack whose numbers
    its fit began with, which a new fit begins with again. `instances` it describes,
    `default_for` those that use it unasked. `frameworks`: what publications call its software.
    `basis`: whether its numbers were fitted to step times of these chips, taken over from
    `inherits_from`, or only assumed; `fitted_on` the instances where they were measured,
    `fitted_to` the families of models, `fit` how that came out, `correlations` of numbers that were
    fitted together (the chip's are named `chip.` and their name). `spread` is that of what was
    measured, `unseen` that of what no measured step tells of, `untested` that of what its
    software was never seen to run. `supports`: what that software runs, refuses, or was never seen
    to run.
    `collectives`: the communication stack, where it is not the instance's own. `order`: how it
    counts ranks. `attention`: the kernel it uses unasked, `stage_split`: what its pipeline stages
    share evenly unasked. `expert_tokens`: whether a token crosses
    to a node once for each of its experts there, or just once and is handed on inside it. `factor`
    multiplies everything, and the effect of a release again: `release` is the one taken unasked,
    `releases` by name those of a stack that goes its own way, instead of those that the chip's file
    has for all.
    `communication` multiplies the time of every exchange. `step`: once a step; `micro_batch`: once
    a micro-batch on every stage; `piped_micro_batch`: once more where there is a pipeline.
    `host`: what launching costs beside these, where anything is known of that; `experts`: what
    layers with experts take longer, and `expert_spread` the spread of models that have some, until
    one was measured.
    `node_scatter`: the relative scatter of computing times between nodes, of which every step waits
    for the slowest. `fragmentation`: what an allocator loses of passing memory. `memory`: what the
    software holds beside the tensors of a step.
    `memory_margin`: a run that is known to have run may need so many times its rank's memory by the
    model, which is that unsure.
    """

    name: str
    title: str
    stands_for: str | None = None
    begun_as: str | None = None
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
    stage_split: StageSplit = "layers"
    expert_tokens: ExpertTokens = "copies"
    supports: tuple[SupportLine, ...]
    kernels: KernelEfficiency
    overlaps: Overlaps
    factor: Ratios
    release: str | None = None
    releases: dict[str, Ratios] = field(default_factory=dict)
    communication: Ratios
    step_s: Times
    micro_batch_s: Times
    piped_micro_batch_s: Times
    node_scatter: Ratios
    host: HostLaunch | None = None
    experts: ExpertEfficiency | None = None
    fragmentation: float
    memory: MemoryOverheads = PLAIN
    memory_margin: float = 1.0
    spread: Spread
    unseen: Spread | None = None
    expert_spread: Spread | None = None
    untested: Spread | None = None
    software: Software | None = None
    correlations: dict[str, dict[str, Correlation]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse shares that are none, uneven rows, and what names things that are not there."""
        check_numbers(self.own_numbers | {"fragmentation": self.fragmentation})
        factors = {"factor": self.factor, "communication": self.communication}
        for name, value in (
            factors | {f"releases.{k}": v for k, v in self.releases.items()}
        ).items():
            if not ends_of(value)[0] > 0:
                raise ValueError(f"`{name}` must be above 0")
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
        if twice := named_twice(self.supports):
            raise ValueError(f"`supports` names {twice!r} in two lines")
        known = number_keys()
        for key in dict.fromkeys(key for pair in self.correlated for key in pair):
            # A stack that takes over another's numbers keeps its correlations, but no releases.
            if key not in known and not key.startswith(("releases.", "chip.releases.")):
                near = did_you_mean(key, known)
                raise ValueError(f"`correlations` names {key!r}, which is no number here{near}")

    @property
    def correlated(self) -> dict[tuple[str, str], float]:
        """Return the correlations of pairs of keys."""
        return {
            (one, other): value
            for one, others in self.correlations.items()
            for other, value in others.items()
        }

    @property
    def short_name(self) -> str:
        """Its name as `--stack` takes it."""
        return self.name.removeprefix(STACK_PREFIX)

    @property
    def state(self) -> str | None:
        """The state of its software in a few words, where its file tells."""
        return self.software.state if self.software else None

    def support_of(self, feature: str) -> Support | None:
        """Return what its file says of a feature, None where it says nothing."""
        for wanted in (feature, ANYTHING_ELSE):
            for place, line in enumerate(self.supports):
                if wanted in line.features:
                    return Support(
                        feature=feature,
                        status=line.status,
                        since=line.since,
                        note=line.note,
                        source=self.provenance.source_of(f"{KEY}[{place}].status"),
                    )
        return None

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
        if family is not None and family.endswith(WITH_EXPERTS) and self.expert_spread is not None:
            unseen = self.expert_spread
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
        parts = {"host": self.host, "experts": self.experts}
        tables = {
            f"{table}.{name}": row
            for table, part in parts.items()
            for name, row in (numbers_of(part).items() if part is not None else ())
        }
        return {**own, **overlaps, **releases, **tables}


def number_keys() -> frozenset[str]:
    """Return the keys of the numbers of a stack and of its chip."""
    parts = {
        "chip": ChipEfficiency,
        "kernels": KernelEfficiency,
        "overlaps": Overlaps,
        "host": HostLaunch,
        "memory": MemoryOverheads,
        "experts": ExpertEfficiency,
    }
    return frozenset(
        [
            *keys_of(TrainingStack).values(),
            *(join(part, key) for part, of in parts.items() for key in keys_of(of).values()),
        ]
    )


class TrainingEfficiency(Record):
    """All that turns a program's work into time on a chip: chip and stack."""

    chip: ChipEfficiency
    stack: TrainingStack

    def __post_init__(self) -> None:
        """Refuse rows of samples of different length, and a release of which nothing is known."""
        check_numbers(self._numbers)
        release = self.stack.release
        if release is not None and self.releases and release not in self.releases:
            near = did_you_mean(release, self.releases)
            raise InputError(f"{self.stack.name}: no release {release!r} is known{near}")

    @property
    def releases(self) -> dict[str, Numbers]:
        """What each release makes of all times, by the stack's own list, or else by its chip's."""
        return self.stack.releases or self.chip.releases

    @property
    def whole_factor(self) -> Numbers:
        """The factor on all times, with the release's; of chips that tell of none it has none."""
        return self.stack.factor * self.releases.get(self.stack.release or "", 1.0)

    @property
    def compute(self) -> ComputeEfficiency:
        """The part that prices computing."""
        return ComputeEfficiency(
            chip=self.chip, kernels=self.stack.kernels, experts=self.stack.experts
        )

    @property
    def samples(self) -> int | None:
        """How many samples its rows have; None where every number is just one."""
        return samples_of(self._numbers)

    @property
    def _numbers(self) -> dict[str, Numbers]:
        return {
            **{f"chip.{name}": row for name, row in numbers_of(self.chip).items()},
            **{f"chip.releases.{name}": row for name, row in self.chip.releases.items()},
            **{f"kernels.{name}": row for name, row in numbers_of(self.stack.kernels).items()},
            **self.stack.own_numbers,
        }


def load_chip_efficiency(catalog: Catalog, chip: str) -> ChipEfficiency:
    """Return the shares of its peaks that a chip reaches, by the chip's name.

    Of a chip that no calibration lists: that of the nearest one, with wider ranges.
    """
    entry = listing(catalog, CHIP_PREFIX, "chips", chip)
    if entry is not None:
        return load_once(catalog, entry.path, ChipEfficiency)
    nearest = load_chip_efficiency(catalog, nearest_chip(catalog, chip, _described(catalog)))
    return replace(
        nearest,
        inherits_from=nearest.name,
        provenance=widened(nearest.provenance, HANDED_ON),
    )


def load_training_stack(
    catalog: Catalog, name: str, *, instance: str | None = None
) -> TrainingStack:
    """Return the training stack with this name, with or without its prefix.

    It is meant for an instance, if one is named.
    """
    entry = training_file(catalog, name)
    if entry is None:
        raise unknown_stack(catalog, name, instance)
    refuse_other_sort(catalog, entry, instance)
    return load_once(catalog, entry.path, TrainingStack)


def refuse_other_sort(catalog: Catalog, entry: Entry, instance: str | None = None) -> None:
    """Refuse a calibration that is not of a training stack."""
    keys = catalog.table(entry.path)
    for key, sort in (("tunings", "communication"), ("tensor_share", "chip")):
        if key in keys and "overlaps" not in keys:
            raise InputError(
                f"--stack: {entry.name} is a {sort} calibration, and a training stack is wanted",
                hint=f"known: {', '.join(known_stacks(catalog, instance))}",
            )


def training_file(catalog: Catalog, name: str) -> Entry | None:
    """Return the file of the training stack with this name, with or without its prefix, if any.

    A user's file under another name that stands for the stack comes first.
    """
    full = full_name(name)
    for entry in entries_of(catalog, STACK_PREFIX):
        if entry.origin == BUILT_IN:
            break
        if catalog.table(entry.path).get("stands_for") == full:
            return entry
    for known in (full, name):
        if known in catalog.names("calibration"):
            return catalog.find("calibration", known)
    return None


def full_name(name: str) -> str:
    """Return the name of a training stack with its prefix."""
    return name if name.startswith(STACK_PREFIX) else STACK_PREFIX + name


def training_stack_of(catalog: Catalog, instance: str) -> TrainingStack:
    """Return the stack an instance (by name, not alias) uses unasked.

    Of an instance that no stack lists: that of the nearest one, with wider ranges.
    """
    return _serving(catalog, *stack_file(catalog, instance, STACK_PREFIX, STACK_KEYS))


def generic_stack(catalog: Catalog, dispatch: Dispatch, instance: Instance) -> TrainingStack:
    """Return what is assumed of software on an instance by how it launches work alone."""
    prefix = f"{STACK_PREFIX}{dispatch}-"
    return _serving(catalog, *stack_file(catalog, instance, prefix, STACK_KEYS[1:]))


def _serving(catalog: Catalog, entry: Entry, nearest: Nearest | None) -> TrainingStack:
    """Return a file's stack as it serves an instance: its own, or one that takes it over."""
    found = load_once(catalog, entry.path, TrainingStack)
    if nearest is None:
        return found
    unseen = found.unseen or found.spread
    same = nearest.same
    return replace(
        found,
        inherits_from=found.name,
        basis="transferred" if found.basis == "measured" else "assumed",
        spread=_between(found.spread, unseen) if same else unseen,
        provenance=found.provenance if same else widened(found.provenance, HANDED_ON),
    )


def stacks_fitted_on(catalog: Catalog, instance: str) -> tuple[TrainingStack, ...]:
    """Return the training stacks with measured steps of an instance (by name), the user's first."""
    return tuple(
        load_training_stack(catalog, entry.name)
        for entry in entries_of(catalog, STACK_PREFIX)
        if instance in listed_in(catalog, entry, "fitted_on")
    )


def _described(catalog: Catalog) -> list[str]:
    """Return the chips that have a calibration."""
    return [
        chip
        for entry in entries_of(catalog, CHIP_PREFIX)
        for chip in listed_in(catalog, entry, "chips")
        if chip in catalog.names("chips")
    ]
