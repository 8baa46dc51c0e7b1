"""What a training step is predicted with: model, cluster and calibrations, read by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trnbench.engines.analytic.step.engines import Engines
from trnbench.errors import InputError
from trnbench.facts.calibration.collective_stack import CollectiveStack, load_stack, stack_of
from trnbench.facts.calibration.stack_names import serving_by_name
from trnbench.facts.calibration.supports import Support
from trnbench.facts.calibration.training_stack import (
    WITH_EXPERTS,
    Basis,
    Spread,
    TrainingEfficiency,
    TrainingStack,
    load_chip_efficiency,
    load_training_stack,
    training_stack_of,
)
from trnbench.facts.calibration.transfer import taken_over
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.sampling import SAMPLES, sampled
from trnbench.predict.supported import beyond

if TYPE_CHECKING:
    from trnbench.engines.emulate.step.compute import RankUse
    from trnbench.engines.emulate.step.exchanges import PlayedSite
    from trnbench.engines.emulate.step.rank import Runs


class SetupMemo(Record, eq=False):
    """What every prediction of a set-up needs and one of them made: placed groups, samples, and
    what was played of products and exchanges.
    """

    engines: Engines = field(default_factory=dict)
    runs: Runs = field(default_factory=Memo)
    sites: Memo[tuple[RankUse, int], PlayedSite] = field(default_factory=Memo)
    samples: Memo[int, TrainingEfficiency] = field(default_factory=Memo)


class TrainSetup(Record, eq=False):
    """A model on so many instances of a platform, and how well these are known.

    `own_stack`: whether the stack is that of the software in question, not one that stands in for
    it. `measured` is the stack from whose measured rows the stack's numbers were taken over, None
    where they are its own. `taken_over` says in words which stacks were not made for the platform.
    `assume_supported`: what its software refuses is predicted as if it ran. The memo holds for any
    model and number of nodes; whoever replaces more
    needs a new one.
    """

    model: Model
    platform: Platform
    nodes: int
    logical_size: int | None = None
    efficiency: TrainingEfficiency
    collectives: CollectiveStack
    own_stack: bool = True
    assume_supported: bool = False
    measured: TrainingStack | None = None
    taken_over: tuple[str, ...] = ()
    memo: SetupMemo = field(default_factory=SetupMemo)

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

    def beyond(self, layout: PartialLayout) -> tuple[Support, ...]:
        """Return what a layout asks of the stack that its software is not known to run.

        Of software that another stack stands in for, nothing is known.
        """
        return beyond(self.stack, self.model, layout) if self.own_stack else ()

    def spread_in(self, layout: Layout) -> Spread:
        """Return the spread in a layout, wider where it asks for what was never seen to run."""
        known, untested = self.spread, self.stack.untested
        if untested is None or not self.beyond(PartialLayout.of(layout)):
            return known
        return Spread(low=min(known.low, untested.low), high=max(known.high, untested.high))

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

    def training(self, layout: Layout | PartialLayout) -> TrainSetup:
        """Return the set-up of the nodes that train: those that only write answers are others."""
        known = layout if isinstance(layout, PartialLayout) else PartialLayout.of(layout)
        apart = known.number("generation_nodes")
        if apart is not None and apart >= self.nodes:
            raise InputError(
                f"--generation-nodes {apart} leaves no node of {self.nodes} to train",
                hint="give fewer of them, or more nodes with --on",
            )
        return replace(self, nodes=self.nodes - apart) if apart else self

    @property
    def domain(self) -> Platform:
        """The platform as exchanges see it: instances that one switch joins are one."""
        return self.platform.joined(self.platform.domain_of(self.nodes))

    def node_ranks(self, ranks: int) -> int | None:
        """Return how many ranks of each node of the domain are in use, the first ones; None: all.

        They are divided evenly among the nodes, unless they fill some of them or do not divide.
        """
        whole = self.platform.ranks(self.logical_size)
        if ranks % whole == 0 or (self.nodes > 1 and ranks % self.nodes):
            return None
        return ranks // self.nodes * self.domain.joined_nodes

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
    assume_supported: bool = False,
) -> TrainSetup:
    """Return the set-up of a model on a platform; names stand for what the catalogue has.

    The stack is the platform's own unless one is given.
    """
    platform = load_platform(catalog, instance) if isinstance(instance, str) else instance
    if logical_size is not None:
        from trnbench.machine.placement import place

        place(platform, logical_size=logical_size)  # refuses sizes the chip does not have
    efficiency = training_efficiency(catalog, platform, stack)
    collectives = collectives_of(catalog, platform, efficiency.stack)
    return TrainSetup(
        model=load_model(catalog, model) if isinstance(model, str) else model,
        platform=platform,
        nodes=nodes,
        logical_size=logical_size,
        efficiency=efficiency,
        collectives=collectives,
        assume_supported=assume_supported,
        measured=_measured(catalog, efficiency.stack),
        taken_over=(
            *strangers(catalog, platform, (efficiency.stack, collectives)),
            *(_first_of_several(catalog, platform) if stack is None else ()),
        ),
    )


def _first_of_several(catalog: Catalog, platform: Platform) -> tuple[str, ...]:
    """Return in words that several stacks of the user's serve a platform, where they do."""
    own = serving_by_name(catalog, platform.instance.name)
    if not own:
        return ()
    return (
        f"{len(own)} of your own stacks serve {platform.instance.name}: {', '.join(own)}; "
        f"{own[0]}, the first by name, is used: --stack names another",
    )


def strangers(
    catalog: Catalog, platform: Platform, stacks: Iterable[TrainingStack | CollectiveStack]
) -> tuple[str, ...]:
    """Return in words which stacks were not made for a platform, and whose numbers it uses."""
    made_for = {stack.name: stack.instances for stack in stacks}
    return taken_over(catalog, platform.instance, made_for)


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
        from trnbench.facts.calibration.stack_of import Stacks

        stack = Stacks(catalog).by_name(stack, platform).stack
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
    return f"{model.family}{WITH_EXPERTS}" if experts else model.family
