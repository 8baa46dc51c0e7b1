"""What a training step is predicted with: model, cluster and calibrations, read by name."""

from __future__ import annotations

from dataclasses import dataclass, field

from trnbench.analytic.step.collectives import Engines
from trnbench.calibration.collective_stack import CollectiveStack, load_stack, stack_of
from trnbench.calibration.training_stack import (
    Basis,
    Spread,
    TrainingEfficiency,
    TrainingStack,
    load_chip_efficiency,
    load_training_stack,
    training_stack_of,
)
from trnbench.catalog.provenance import Kind
from trnbench.catalog.search import Catalog
from trnbench.hardware.instance import Platform
from trnbench.hardware.library import load_platform
from trnbench.mapping.placement import place
from trnbench.memo import Memo
from trnbench.predict.sampling import SAMPLES, sampled
from trnbench.workload.library import load_model
from trnbench.workload.model import Model


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetupMemo:
    """What every prediction of a set-up needs and one of them made: placed groups, samples."""

    engines: Engines = field(default_factory=dict)
    samples: Memo[int, TrainingEfficiency] = field(default_factory=Memo)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainSetup:
    """A model on so many instances of a platform, and how well these are known.

    `own_stack`: whether the stack is that of the software in question, not one that stands in for
    it. `measured` is the stack from whose measured rows the stack's numbers were taken over, None
    where they are its own. The memo holds for any model and number of nodes; whoever replaces more
    needs a new one.
    """

    model: Model
    platform: Platform
    nodes: int
    logical_size: int | None = None
    efficiency: TrainingEfficiency
    collectives: CollectiveStack
    own_stack: bool = True
    measured: TrainingStack | None = None
    memo: SetupMemo = field(default_factory=SetupMemo, repr=False)

    @property
    def stack(self) -> TrainingStack:
        """The training stack."""
        return self.efficiency.stack

    @property
    def basis(self) -> Basis:
        """What the stack's numbers rest on here, for models of this kind."""
        if not self.own_stack:
            return "transferred"
        return self.stack.basis_on(self.platform.instance.name, family_of(self.model))

    @property
    def spread(self) -> Spread:
        """How far measured times lie from predicted ones here, for models of this kind."""
        if not self.own_stack and self.stack.unseen is not None:
            return self.stack.unseen
        return self.stack.spread_on(self.platform.instance.name, family_of(self.model))

    @property
    def samples(self) -> TrainingEfficiency:
        """The efficiency, and samples of what it may be instead."""
        return self.memo.samples.of(SAMPLES, lambda: sampled(self.efficiency))

    @property
    def chips(self) -> int:
        """Chips of the cluster."""
        return self.nodes * self.platform.instance.chips

    @property
    def ranks(self) -> int:
        """Ranks of the cluster."""
        return self.chips * self.platform.chip.ranks(self.logical_size)

    @property
    def evidence(self) -> Kind:
        """The weakest kind among the numbers of the calibrations."""
        known = (self.efficiency.chip, self.stack, self.collectives)
        return max(one.provenance.weakest() for one in known)


def train_setup(
    catalog: Catalog,
    model: str | Model,
    instance: str | Platform,
    nodes: int,
    *,
    stack: str | TrainingStack | None = None,
    logical_size: int | None = None,
) -> TrainSetup:
    """Return the set-up of a model on a platform; names stand for what the catalogue has.

    The stack is the platform's own unless one is given.
    """
    platform = load_platform(catalog, instance) if isinstance(instance, str) else instance
    if logical_size is not None:
        place(platform, logical_size=logical_size)  # refuses sizes the chip does not have
    efficiency = training_efficiency(catalog, platform, stack)
    return TrainSetup(
        model=load_model(catalog, model) if isinstance(model, str) else model,
        platform=platform,
        nodes=nodes,
        logical_size=logical_size,
        efficiency=efficiency,
        collectives=collectives_of(catalog, platform, efficiency.stack),
        measured=_measured(catalog, efficiency.stack),
    )


def _measured(catalog: Catalog, stack: TrainingStack) -> TrainingStack | None:
    """Return the nearest stack with measured rows that a stack was taken over from."""
    found, seen = stack, {stack.name}
    while found.fit is None and found.inherits_from and found.inherits_from not in seen:
        seen.add(found.inherits_from)
        found = load_training_stack(catalog, found.inherits_from)
    return None if found is stack else found


def training_efficiency(
    catalog: Catalog, platform: Platform, stack: str | TrainingStack | None
) -> TrainingEfficiency:
    """Return the calibration of a platform with a stack, or with the platform's own."""
    if stack is None:
        stack = training_stack_of(catalog, platform.instance.name)
    elif isinstance(stack, str):
        stack = load_training_stack(catalog, stack)
    return TrainingEfficiency(chip=load_chip_efficiency(catalog, platform.chip.name), stack=stack)


def collectives_of(catalog: Catalog, platform: Platform, stack: TrainingStack) -> CollectiveStack:
    """Return the communication stack that a training stack uses on a platform."""
    if stack.collectives is not None:
        return load_stack(catalog, stack.collectives)
    return stack_of(catalog, platform.instance.name)


def family_of(model: Model) -> str:
    """Return the kind of a model, as far as measured steps of one tell of another.

    That is its family, and whether it has experts.
    """
    experts = model.transformer is not None and model.transformer.moe is not None
    return f"{model.family} with experts" if experts else model.family
