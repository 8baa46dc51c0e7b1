"""Calibration of a training stack: overlaps, fixed costs, supported features, uncertainty.

One file per stack (a training library and release on one family of chips), next to one file per
chip: a chip runs many stacks. A number may be a row of samples, as in `chip_efficiency`.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Literal

from trnbench.errors import InputError, did_you_mean
from trnbench.facts.calibration import transfer
from trnbench.facts.calibration.buckets import GradientBuckets
from trnbench.facts.calibration.chip_efficiency import (
    ChipEfficiency,
    ComputeEfficiency,
    DispatchEfficiency,
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
from trnbench.facts.calibration.coverage import BeyondRows, Covered, Spread, between, widest
from trnbench.facts.calibration.hosts import PLAIN, Dispatch, HostLaunch, MemoryOverheads
from trnbench.facts.calibration.supports import (
    ANYTHING_ELSE,
    KEY,
    Support,
    SupportLine,
    named_twice,
)
from trnbench.facts.calibration.transfer import STACK_KEYS as STACK_KEYS
from trnbench.facts.calibration.transfer import STACK_PREFIX as STACK_PREFIX
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced, join
from trnbench.facts.catalog.quantity import Correlation, Ratio
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Entry
from trnbench.facts.hardware.instance import Instance, Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.choices import Dispatcher
from trnbench.facts.workload.layout import (
    AttentionKernel,
    FrozenFormat,
    LossKernel,
    Overlapped,
    StageSplit,
    ZeroStage,
)
from trnbench.facts.workload.recompute import PlainRecompute

CHIP_PREFIX = "chip-"

RankOrder = Literal["megatron", "nxd-trn1", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp"]
Basis = Literal["measured", "transferred", "assumed"]

WITH_EXPERTS = " with experts"
"""Ending of the names of model families whose layers have experts."""


class Overlaps(Record):
    """Share of each kind of communication hidden behind compute, 0 (none) to 1 (all)."""

    tensor: Ratios
    """Exchanges inside a block, as `context` and `expert`."""
    context: Ratios
    expert: Ratios
    pipeline: Ratios
    data: Ratios
    """Used share of the time that a step leaves for gradients and parameters."""


class Software(Record):
    """The stack's software."""

    state: str
    """Maturity, in a few words."""


class Habits(Record):
    """Settings of the stack where a publication states none."""

    zero: ZeroStage = 0
    sequence_parallel: bool = False
    recompute: PlainRecompute | None = None
    """None: the least recomputation that fits in memory."""
    precision: str = "bf16-master"
    """Recipe of a bare format such as bf16."""
    selective: Literal["attention", "half"] = "attention"
    """Meaning of `selective` recompute: the attention core, or half of a forward pass."""
    fp8_frozen: FrozenFormat = "none"
    """Format of frozen weights in adapter jobs with fp8 products."""


class SmallSpread(Spread):
    """Spread of the steps of small models, which wait for their host's launches."""

    parameters: float
    """Models with fewer parameters are small."""


class FitErrors(Record):
    """Quality of a fit: mean errors of its rows, |predicted / measured - 1|."""

    rows: int
    error: Ratio
    """Error with all rows in the fit."""
    without_row: Ratio
    """Leave-one-out errors: without the row, its configuration, or its whole stack."""
    without_configuration: Ratio
    without_stack: Ratio | None = None


class TrainingStack(Sourced):
    """A training stack on a family of chips."""

    name: str
    title: str
    stands_for: str | None = None
    """Name of the stack that this file replaces."""
    begun_as: str | None = None
    """Stack whose numbers every fit starts from."""
    instances: tuple[str, ...]
    default_for: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    """Names of the software in publications."""
    habits: Habits = Habits()
    inherits_from: str | None = None
    basis: Basis
    """Fitted to steps of these chips, transferred from `inherits_from`, or assumed."""
    fitted_rows: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Fitted rows as predicted without their configuration (`evidence.fit.left_out`)."""
    memory_left_out: tuple[str, ...] = ()
    """The same of their memory."""
    fitted_on: tuple[str, ...] = ()
    """Instances of the measured steps; `fitted_to`: their model families."""
    fitted_to: tuple[str, ...] = ()
    covers: Covered | None = None
    """Reach of the measured steps; None where there are none."""
    claimed_mfu: float | None = None
    """MFU that the software's maker claims on these chips."""
    fit: FitErrors | None = None
    collectives: str | None = None
    """Communication stack, where other than the instance's own."""
    order: RankOrder
    attention: AttentionKernel
    """Default attention kernel."""
    loss: LossKernel = "full"
    """Default kernel of the logits and their loss."""
    stage_split: StageSplit = "layers"
    """Quantity that pipeline stages share evenly by default."""
    dispatcher: Dispatcher = "alltoall"
    """Default dispatcher of tokens to experts; over EFA it is alltoall."""
    supports: tuple[SupportLine, ...]
    kernels: KernelEfficiency
    overlaps: Overlaps
    factor: Ratios
    """Factor on all times; the default `release` multiplies them again."""
    release: str | None = None
    releases: dict[str, Ratios] = field(default_factory=dict)
    """Factors by release that replace those of the chip's file."""
    communication: Ratios
    """Factor on the time of every exchange."""
    step_s: Times
    """Fixed cost per step, s."""
    micro_batch_s: Times
    """Fixed cost per micro-batch on every stage, s."""
    piped_micro_batch_s: Times
    """Extra fixed cost per micro-batch in a pipeline, s."""
    node_scatter: Ratios
    """Relative scatter of computing time between nodes; a step waits for the slowest."""
    host: HostLaunch | None = None
    experts: ExpertEfficiency | None = None
    efa: DispatchEfficiency | None = None
    """Cost of dispatchers over EFA; None on other networks."""
    fragmentation: float
    """Share of temporary memory lost by the allocator."""
    memory: MemoryOverheads = PLAIN
    memory_margin: float = 1.0
    """Tolerated memory demand, as a factor, of a run known to have fit."""
    spread: Spread
    """Scatter on what was measured; `unseen`: elsewhere; the others: with experts, small models."""
    unseen: Spread | None = None
    expert_spread: Spread | None = None
    small_spread: SmallSpread | None = None
    untested: Spread | None = None
    """Scatter for features the software was never seen to run."""
    software: Software | None = None
    correlations: dict[str, dict[str, Correlation]] = field(default_factory=dict)
    """Correlations of jointly fitted numbers; `chip.` begins those of the chip."""

    def __post_init__(self) -> None:
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
        keys = number_keys()
        for key in dict.fromkeys(key for pair in self.correlated for key in pair):
            # A stack that takes over another's numbers keeps its correlations, but no releases.
            if key not in keys and not key.startswith(("releases.", "chip.releases.")):
                near = did_you_mean(key, keys)
                raise ValueError(f"`correlations` names {key!r}, which this file lacks{near}")

    @property
    def correlated(self) -> dict[tuple[str, str], float]:
        """Correlations by pair of keys."""
        return {
            (key, other): value
            for key, others in self.correlations.items()
            for other, value in others.items()
        }

    @property
    def told_by(self) -> tuple[str, ...]:
        """Measured steps behind its numbers, those of dispatchers included."""
        return self.fitted_rows if self.efa is None else self.fitted_rows + self.efa.fitted_rows

    @property
    def short_name(self) -> str:
        """The name that `--stack` takes."""
        return self.name.removeprefix(STACK_PREFIX)

    def dispatcher_of(self, named: Dispatcher | None) -> Dispatcher:
        """The dispatcher of a layout: the one named, or the stack's on this network."""
        return named or (self.dispatcher if self.efa is None else "alltoall")

    def overlap_of_experts(self, named: Dispatcher | None, overlapped: Overlapped | None) -> Ratios:
        """Share of exchanges between nodes, of tokens with experts, hidden behind compute."""
        if overlapped == "off":
            return self.overlaps.expert
        if self.efa is not None:
            sent_by = self.dispatcher_of(named)
            return self.efa.overlap(sent_by) if overlapped == "on" else self.overlaps.expert
        return self.overlaps.expert if self.experts is None else self.experts.overlap_between_nodes

    @property
    def state(self) -> str | None:
        return self.software.state if self.software else None

    @cached_property
    def _place_of(self) -> dict[str, int]:
        return {name: i for i, line in enumerate(self.supports) for name in line.features}

    def support_of(self, feature: str) -> Support | None:
        """Status of a feature by the stack's file; None where the file is silent."""
        place = self._place_of.get(feature, self._place_of.get(ANYTHING_ELSE))
        if place is None:
            return None
        line, source = self.supports[place], self.provenance.source_of(f"{KEY}[{place}].status")
        return Support(
            feature=feature, status=line.status, since=line.since, note=line.note, source=source
        )

    def basis_on(self, instance: str, family: str | None = None) -> Basis:
        """Basis on an instance, and for a family: transferred without measured steps there."""
        there = instance in self.fitted_on and (family is None or family in self.fitted_to)
        return "transferred" if self.basis == "measured" and not there else self.basis

    def spread_on(self, instance: str, family: str | None = None) -> Spread:
        """Scatter on an instance; others with its chips lie half way to an unmeasured chip."""
        # What was never seen scatters no less than what was.
        unseen = widest(self.spread, self.unseen or self.spread)
        if family is not None and family.endswith(WITH_EXPERTS) and self.expert_spread is not None:
            unseen = widest(unseen, self.expert_spread)
            if family not in self.fitted_to:
                return unseen
        if family is not None and self.fitted_to and family not in self.fitted_to:
            return unseen
        measured = self.basis_on(instance) == self.basis
        return self.spread if measured else between(self.spread, unseen)

    @property
    def own_numbers(self) -> dict[str, Numbers]:
        """Numbers by name, without kernels and chip."""
        named = ("factor", "communication", "step_s", "micro_batch_s", "piped_micro_batch_s")
        own: dict[str, Numbers] = {name: getattr(self, name) for name in (*named, "node_scatter")}
        overlaps = {f"overlaps.{name}": row for name, row in numbers_of(self.overlaps).items()}
        releases = {f"releases.{name}": row for name, row in self.releases.items()}
        parts = {"host": self.host, "experts": self.experts, "efa": self.efa}
        tables = {
            f"{table}.{name}": row
            for table, part in parts.items()
            for name, row in (numbers_of(part).items() if part is not None else ())
        }
        return {**own, **overlaps, **releases, **tables}


@cache
def number_keys() -> frozenset[str]:
    """Keys of all numbers of a stack and its chip."""
    parts = {
        "chip": ChipEfficiency,
        "kernels": KernelEfficiency,
        "overlaps": Overlaps,
        "host": HostLaunch,
        "memory": MemoryOverheads,
        "experts": ExpertEfficiency,
        "efa": DispatchEfficiency,
    }
    return frozenset(
        [
            *keys_of(TrainingStack).values(),
            *(join(part, key) for part, of in parts.items() for key in keys_of(of).values()),
        ]
    )


class TrainingEfficiency(Record):
    """A chip's and a stack's calibration: the conversion of work into time."""

    chip: ChipEfficiency
    stack: TrainingStack
    beyond_rows: BeyondRows | None = None
    """Scatter of steps beyond the rows of the stack; None where no catalogue was read."""
    buckets: GradientBuckets | None = None
    """Messages of the software at the end of a step; None: one for each layer."""
    factors: Numbers | None = None
    """Factor on all times by layout, then by sample, where layouts differ in their release."""

    def __post_init__(self) -> None:
        check_numbers(self._numbers)
        release = self.stack.release
        if release is not None and self.releases and release not in self.releases:
            near = did_you_mean(release, self.releases)
            raise InputError(f"{self.stack.name}: no release {release!r} is known{near}")

    @property
    def releases(self) -> dict[str, Numbers]:
        """Factor on all times by release: the stack's, or else the chip's."""
        return self.stack.releases or self.chip.releases

    @cached_property
    def whole_factor(self) -> Numbers:
        """Factor on all times, including the release's; an unlisted release has 1."""
        if self.factors is not None:
            return self.factors
        return self.stack.factor * self.releases.get(self.stack.release or "", 1.0)

    @cached_property
    def compute(self) -> ComputeEfficiency:
        return ComputeEfficiency(
            chip=self.chip, kernels=self.stack.kernels, experts=self.stack.experts
        )

    @cached_property
    def samples(self) -> int | None:
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
    """Efficiency of a chip by name; without one, the nearest chip's, with wider ranges."""
    entry = transfer.listing(catalog, CHIP_PREFIX, "chips", chip)
    if entry is not None:
        return load_once(catalog, entry.path, ChipEfficiency)
    other = transfer.nearest_chip(catalog, chip, _described(catalog))
    nearest = load_chip_efficiency(catalog, other)
    wider = transfer.widened(nearest.provenance, transfer.HANDED_ON)
    return replace(nearest, inherits_from=nearest.name, provenance=wider)


def load_training_stack(
    catalog: Catalog, name: str, *, instance: str | None = None
) -> TrainingStack:
    """The training stack of a name; `instance` only orders the suggestions of an error."""
    entry = training_file(catalog, name)
    if entry is None:
        raise transfer.unknown_stack(catalog, name, instance)
    refuse_other_sort(catalog, entry, instance)
    return load_once(catalog, entry.path, TrainingStack)


def refuse_other_sort(catalog: Catalog, entry: Entry, instance: str | None = None) -> None:
    """Refuse a calibration of another sort than a training stack."""
    keys = catalog.table(entry.path)
    for key, sort in (("tunings", "communication"), ("tensor_share", "chip")):
        if key in keys and "overlaps" not in keys:
            raise InputError(
                f"--stack: {entry.name} is a {sort} calibration, and a training stack is wanted",
                hint=f"known: {', '.join(transfer.known_stacks(catalog, instance))}",
            )


def training_file(catalog: Catalog, name: str) -> Entry | None:
    """File of a training stack, first a user's that replaces it by name; None if unknown."""
    full = full_name(name)
    # The user's files come first in the list, so the first shipped one ends the look.
    for entry in transfer.entries_of(catalog, STACK_PREFIX):
        if entry.origin == BUILT_IN:
            break
        if catalog.table(entry.path).get("stands_for") == full:
            return entry
    for candidate in (full, name):
        if catalog.has("calibration", candidate):
            return catalog.find("calibration", candidate)
    return None


def full_name(name: str) -> str:
    return name if name.startswith(STACK_PREFIX) else STACK_PREFIX + name


def training_stack_of(catalog: Catalog, instance: str) -> TrainingStack:
    """Default stack of an instance (by name), or the nearest one's, with wider ranges."""
    return _serving(catalog, *transfer.stack_file(catalog, instance, STACK_PREFIX, STACK_KEYS))


def generic_stack(catalog: Catalog, dispatch: Dispatch, instance: Instance) -> TrainingStack:
    """Stack assumed for software known only by its way of launching work."""
    prefix = f"{STACK_PREFIX}{dispatch}-"
    return _serving(catalog, *transfer.stack_file(catalog, instance, prefix, STACK_KEYS[1:]))


def _serving(catalog: Catalog, entry: Entry, nearest: transfer.Nearest | None) -> TrainingStack:
    """The stack of a file for an instance: unchanged, or transferred with a wider spread."""
    stack = load_once(catalog, entry.path, TrainingStack)
    if nearest is None:
        return stack
    # A transferred stack was never measured here: its scatter is that of unseen machines.
    unseen = stack.unseen or stack.spread
    same = nearest.same
    return replace(
        stack,
        inherits_from=stack.name,
        basis="transferred" if stack.basis == "measured" else "assumed",
        spread=between(stack.spread, unseen) if same else unseen,
        provenance=stack.provenance
        if same
        else transfer.widened(stack.provenance, transfer.HANDED_ON),
    )


def passed_over(catalog: Catalog, stack: TrainingStack, platform: Platform) -> tuple[str, ...]:
    """Short names of stacks with measured steps on a platform, or else on its chips.

    Empty beside a stack that is measured itself.
    """
    if stack.basis == "measured":
        return ()
    found: set[str] = set()
    # Files of other instances are read only where no stack names this one.
    for here in (True, False):
        found = found or {
            entry.name.removeprefix(STACK_PREFIX)
            for entry in transfer.entries_of(catalog, STACK_PREFIX)
            for name in transfer.listed_in(catalog, entry, "fitted_on")
            if (name == platform.instance.name) == here
            and (here or catalog.has("instances", name))
            and transfer.of_one_generation(load_platform(catalog, name).chip, platform.chip)
        }
    return tuple(sorted(found))


def stacks_fitted_on(catalog: Catalog, instance: str) -> tuple[TrainingStack, ...]:
    """Training stacks with measured steps on an instance (by name), the user's first."""
    return tuple(
        load_training_stack(catalog, entry.name)
        for entry in transfer.entries_of(catalog, STACK_PREFIX)
        if instance in transfer.listed_in(catalog, entry, "fitted_on")
    )


def _described(catalog: Catalog) -> list[str]:
    return [
        chip
        for entry in transfer.entries_of(catalog, CHIP_PREFIX)
        for chip in transfer.listed_in(catalog, entry, "chips")
        if catalog.has("chips", chip)
    ]
