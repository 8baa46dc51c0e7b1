"""SearchQuestion of a search: a model, clusters to train on, and knobs settled beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.coverage import DEGREES
from trnbench.facts.calibration.hosts import JobRates
from trnbench.facts.calibration.supports import Support
from trnbench.facts.calibration.training_stack import TrainingEfficiency, TrainingStack
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import MAX_SIZE, Record
from trnbench.facts.units import Dimension, show
from trnbench.facts.workload.layout import KNOBS, Layout
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.fit import fragmentation_range, reserve_range
from trnbench.predict.setup import beyond, refusal, runs, support_of
from trnbench.program.features import features_of_knob, plain_features
from trnbench.program.precision import recipe_named

if TYPE_CHECKING:
    from trnbench.predict.setup import TrainSetup


class SearchQuestion(Record):
    """A training step to be laid out on each of several clusters."""

    model: Model
    platform: Platform
    efficiency: TrainingEfficiency
    collectives: CollectiveStack
    rates: JobRates
    nodes: tuple[int, ...]
    """Instances of each cluster."""
    layout: PartialLayout
    """Settled knobs. Open ones are searched or get their default; batch, sequence and precision
    have none."""
    headroom: float | None = None
    """Share of a rank's usable memory to leave free. None leaves free the upper ends of the
    platform's reserve and of the allocator's losses."""
    logical_size: int | None = None
    generation_nodes: int = 0
    """Further instances that only generate answers, not part of `nodes`."""
    whole_nodes: bool = True
    """False allows layouts with idle ranks on a single node, if `dp` is fixed."""
    assume_supported: bool = False
    """True searches asked-for features that the stack refuses."""
    plainer: bool = False
    """True keeps the simplest layout near the fastest, and the usual one, of each cluster."""

    def __post_init__(self) -> None:
        """Refuse values that are invalid on every machine."""
        if not self.nodes or not all(1 <= count < MAX_SIZE for count in self.nodes):
            raise InputError(f"node counts must be from 1 to {MAX_SIZE - 1}: {self.nodes}")
        if len(set(self.nodes)) != len(self.nodes):
            raise InputError(f"a node count is given twice: {self.nodes}")
        share = self.headroom
        if share is not None and not (isfinite(share) and 0 <= share < 1):
            raise InputError(f"the memory headroom must be from 0 to below 1: {self.headroom}")
        silent = [name for name in self.layout.open if KNOBS[name].needed]
        if silent:
            raise InputError(f"a search needs the {' and the '.join(silent)}")
        try:
            recipe_named(self.completed.precision)
        except ValueError as fault:
            raise InputError(str(fault)) from fault
        if self.efficiency.samples is not None:
            raise InputError("layouts are ranked by one number each, not by samples")

    @property
    def stack(self) -> TrainingStack:
        return self.efficiency.stack

    def runs(self, feature: str) -> bool:
        return runs(self.stack, feature)

    def allows(self, feature: str) -> bool:
        """True where a feature may be searched if its knob is asked for."""
        return self.assume_supported or support_of(self.stack, feature).status != "refused"

    def doubt(self, degrees: Mapping[str, FloatArray]) -> FloatArray:
        """Factor on the times of layouts by which a search ranks them; 1 within the rows.

        Of a thousand layouts that nobody measured, the fastest is the one whose error is most
        optimistic. So a layout beyond the rows must be faster even at the slow end of what such
        rows turned out to be.
        """
        covers, amounts = self.stack.covers, self.efficiency.beyond_rows
        if covers is None or amounts is None:
            return np.ones(())
        beyond = np.zeros((), dtype=np.bool_)
        for name in DEGREES:
            beyond = beyond | covers.degree_is_beyond(name, degrees[name], self.ranks_per_node)
        return np.where(beyond, amounts.degrees.high, 1.0)

    @property
    def refused(self) -> tuple[str, ...]:
        """Refusals of the model and the settled knobs by the stack, as text."""
        if self.assume_supported:
            return ()
        refusals = dict.fromkeys(
            support for support in self._beyond() if support.status == "refused"
        )
        return (
            *(refusal(self.stack, support) for support in refusals),
            *(
                refusal(self.stack, support)
                for support in map(self._none_of, self.layout.wanted)
                if support
            ),
        )

    def _beyond(self) -> Iterator[Support]:
        """Yield features that the stack is not known to run; open degrees count as 2."""
        yield from beyond(self.stack, self.model, self.layout)
        for name, _ in self.layout.pairs:
            degrees = [
                partner for partner in KNOBS[name].acts_with if self.layout.number(partner) is None
            ]
            if degrees:
                of_knob = features_of_knob(KNOBS[name])
                cut = self.layout.changed(**dict.fromkeys(degrees, 2))
                supports = beyond(self.stack, self.model, cut)
                yield from (support for support in supports if support.feature in of_knob)

    def _none_of(self, name: str) -> Support | None:
        """Support of an asked-for knob, if the stack refuses all its values but the plain one.

        The plain value runs wherever a stack's file does not mention the knob.
        """
        plain = plain_features()
        asked = [feature for feature in features_of_knob(KNOBS[name]) if feature not in plain]
        if any(map(self.allows, asked)):
            return None
        return support_of(self.stack, asked[0])

    @property
    def fragmentation_ratio(self) -> float:
        """Share of transient memory that the allocator is assumed to lose."""
        if self.headroom is None:
            return fragmentation_range(self.stack).high
        return self.stack.fragmentation

    @property
    def available_bytes(self) -> float:
        """Bytes of a rank's memory that a layout may use."""
        capacity = self.platform.memory_per_rank_bytes(self.logical_size)
        reserve = reserve_range(self.platform, self.logical_size)
        if self.headroom is None:
            return capacity - reserve.high
        return (capacity - reserve.value) * (1 - self.headroom)

    @property
    def kept_free(self) -> str:
        """Memory that has to stay free, as text."""
        if self.headroom is not None:
            return f"a headroom of {self.headroom:.0%}"
        reserve = show(reserve_range(self.platform, self.logical_size).high, Dimension.BYTES)
        return (
            f"a reserve of {reserve} and {self.fragmentation_ratio:.0%} lost to fragmentation, "
            "their upper ends (--headroom 0 counts with their values)"
        )

    @property
    def ranks_per_node(self) -> int:
        return self.platform.instance.chips * self.platform.chip.ranks(self.logical_size)

    @cached_property
    def completed(self) -> Layout:
        """The layout with open knobs at their defaults, or as the stack has them."""
        return self.layout.complete(
            {
                "attention": self.stack.attention,
                "loss": self.stack.loss,
                "stage_split": self.stack.stage_split,
            }
        )


def question_of(
    setup: TrainSetup,
    layout: PartialLayout,
    nodes: Sequence[int],
    *,
    headroom: float | None = None,
    plainer: bool = False,
) -> SearchQuestion:
    """The question of a search for the knobs that the layout leaves open."""
    apart = layout.number("generation_nodes") or 0
    return SearchQuestion(
        model=setup.model,
        platform=setup.platform,
        efficiency=setup.efficiency,
        collectives=setup.collectives,
        rates=setup.rates,
        nodes=tuple(count - apart for count in nodes),
        generation_nodes=apart,
        layout=layout,
        headroom=headroom,
        logical_size=setup.logical_size,
        # With replicas fixed too, a layout says itself how many ranks it wants.
        whole_nodes=layout["dp"] is None,
        assume_supported=setup.assume_supported,
        plainer=plainer,
    )
