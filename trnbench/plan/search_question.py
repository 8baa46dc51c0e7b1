"""What a search is asked: a model, clusters to train it on, and what is settled beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite

from trnbench.errors import InputError
from trnbench.program.grid import Choices
from trnbench.program.precision import recipe_named
from trnbench.spec.collective_efficiency import CollectiveStack
from trnbench.spec.instance import Platform
from trnbench.spec.training_stack import TrainingEfficiency, TrainingStack
from trnbench.workload.layout import AttentionKernel, Layout, Recompute, Schedule, ZeroStage
from trnbench.workload.model import Model
from trnbench.workload.sizes import MAX_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What the user settled of a layout; None is for the search to choose."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    vpp: int | None = None
    micro_batch: int | None = None
    zero: ZeroStage | None = None
    sequence_parallel: bool | None = None
    recompute: Recompute | None = None
    schedule: Schedule | None = None
    attention: AttentionKernel | None = None
    capacity_factor: float | None = None

    @property
    def settled(self) -> Mapping[str, object]:
        """What is fixed, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A step to be laid out on clusters of `nodes` instances each.

    `headroom` is the share of a rank's usable memory to be left free. Without `whole_nodes` a
    layout may leave ranks of a single node idle, if `dp` is fixed.
    """

    model: Model
    platform: Platform
    efficiency: TrainingEfficiency
    collectives: CollectiveStack
    nodes: tuple[int, ...]
    global_batch: int
    sequence: int
    precision: str
    fixed: Fixed = Fixed()
    headroom: float = 0.0
    logical_size: int | None = None
    whole_nodes: bool = True
    choices: Choices = field(default_factory=Choices)

    def __post_init__(self) -> None:
        """Refuse what means nothing on any machine, whatever is still to be chosen."""
        if not self.nodes or not all(1 <= count < MAX_SIZE for count in self.nodes):
            raise InputError(f"node counts must be from 1 to {MAX_SIZE - 1}: {self.nodes}")
        if len(set(self.nodes)) != len(self.nodes):
            raise InputError(f"a node count stands twice: {self.nodes}")
        if not (isfinite(self.headroom) and 0 <= self.headroom < 1):
            raise InputError(f"the memory headroom must be from 0 to below 1: {self.headroom}")
        recipe_named(self.precision)
        try:
            Layout(
                global_batch=self.global_batch,
                sequence=self.sequence,
                precision=self.precision,
                **self.fixed.settled,  # type: ignore[arg-type]
            )
        except ValueError as fault:
            raise InputError(str(fault)) from fault
        if self.efficiency.samples is not None:
            raise InputError("layouts are ranked by one number each, not by samples")

    @property
    def stack(self) -> TrainingStack:
        """The training stack, which bounds what is looked at."""
        return self.efficiency.stack

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one instance."""
        return self.platform.instance.chips * self.platform.chip.ranks(self.logical_size)

    @property
    def attention(self) -> AttentionKernel:
        """The attention kernel used."""
        return self.fixed.attention or self.stack.attention
