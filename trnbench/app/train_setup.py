"""What a training step is priced with: model, cluster and calibrations, read by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnbench.catalog.provenance import Kind
from trnbench.catalog.search import Catalog
from trnbench.evidence.model_family import family_of
from trnbench.mapping.placement import place
from trnbench.plan.search_question import Question
from trnbench.spec.collective_efficiency import CollectiveStack, load_stack, stack_of
from trnbench.spec.instance import Platform
from trnbench.spec.library import load_platform
from trnbench.spec.training_stack import (
    Basis,
    Spread,
    TrainingEfficiency,
    TrainingStack,
    load_chip_efficiency,
    load_training_stack,
    training_stack_of,
)
from trnbench.workload.library import load_model
from trnbench.workload.model import Model
from trnbench.workload.partial_layout import PartialLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSetup:
    """A model on so many instances of a platform, and how well these are known."""

    model: Model
    platform: Platform
    nodes: int
    logical_size: int | None
    efficiency: TrainingEfficiency
    collectives: CollectiveStack

    @property
    def stack(self) -> TrainingStack:
        """The training stack."""
        return self.efficiency.stack

    @property
    def basis(self) -> Basis:
        """What the stack's numbers rest on here, for models of this kind."""
        return self.stack.basis_on(self.platform.instance.name, family_of(self.model))

    @property
    def spread(self) -> Spread:
        """How far measured times lie from predicted ones here, for models of this kind."""
        return self.stack.spread_on(self.platform.instance.name, family_of(self.model))

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

    def question(
        self, layout: PartialLayout, nodes: Sequence[int], *, headroom: float = 0.0
    ) -> Question:
        """Return what a search is asked: whatever the layout leaves open is looked for."""
        return Question(
            model=self.model,
            platform=self.platform,
            efficiency=self.efficiency,
            collectives=self.collectives,
            nodes=tuple(nodes),
            layout=layout,
            headroom=headroom,
            logical_size=self.logical_size,
            # With replicas fixed too, a layout says itself how many ranks it wants.
            whole_nodes=layout["dp"] is None,
        )


def train_setup(
    catalog: Catalog,
    model: str,
    instance: str,
    nodes: int,
    *,
    stack: str | None = None,
    logical_size: int | None = None,
) -> TrainSetup:
    """Return what the names stand for; the instance's own stack unless one is named."""
    platform = load_platform(catalog, instance)
    if logical_size is not None:
        place(platform, logical_size=logical_size)  # refuses sizes the chip does not have
    efficiency = training_efficiency(catalog, platform, stack)
    return TrainSetup(
        model=load_model(catalog, model),
        platform=platform,
        nodes=nodes,
        logical_size=logical_size,
        efficiency=efficiency,
        collectives=collectives_of(catalog, platform, efficiency.stack),
    )


def training_efficiency(
    catalog: Catalog, platform: Platform, stack: str | None
) -> TrainingEfficiency:
    """Return the calibration of a platform with a stack by name, or with its own."""
    training = (
        training_stack_of(catalog, platform.instance.name)
        if stack is None
        else load_training_stack(catalog, stack)
    )
    chip = load_chip_efficiency(catalog, platform.chip.name)
    return TrainingEfficiency(chip=chip, stack=training)


def collectives_of(catalog: Catalog, platform: Platform, stack: TrainingStack) -> CollectiveStack:
    """Return the communication stack that a training stack uses on a platform."""
    if stack.collectives is not None:
        return load_stack(catalog, stack.collectives)
    return stack_of(catalog, platform.instance.name)
