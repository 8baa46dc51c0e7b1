"""Predicted step times of training cases, for scalars or rows of samples.

A case is prepared once: layouts are lowered, and those that fit are chosen. Preparation does not
depend on fitted numbers, so a fit prices the same prepared cases repeatedly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Literal, TypeAlias

import numpy as np

from trnbench.engines.analytic.step.job_time import JobPrices
from trnbench.engines.analytic.step.memory import stage_parts
from trnbench.engines.analytic.step.memory_parts import StageParts
from trnbench.engines.analytic.step.time import StepTime
from trnbench.engines.analytic.step.utilization import mfu
from trnbench.evidence.lowered import (
    GridPart,
    LoweredLayout,
    PlacedLayout,
    family_of,
    lowered,
    modes_of,
)
from trnbench.evidence.published import LayoutMix
from trnbench.evidence.rows import RowFault
from trnbench.evidence.training_cases import EvidenceCase
from trnbench.facts.arrays import FloatArray, keep_freed_memory
from trnbench.facts.calibration.hosts import PLAIN
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, fields, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Model
from trnbench.predict.fit import LayoutMemory, MemoryDraws, WhoseMemory
from trnbench.predict.prices import SharedPrices, prices_of, shared_prices, unpriced
from trnbench.predict.ranges import numbers_by_key
from trnbench.predict.sampling import interval
from trnbench.predict.setup import SetupMemo, TrainSetup
from trnbench.program.step import StepProgram

GridPlace: TypeAlias = tuple[SetupMemo | None, GridPart]
"""Key of prices, by identity: a machine with its calibrations (None: that of all layouts of the
part, in any release), and layouts priced together."""
_Member: TypeAlias = tuple[Model, int, tuple[int, ...]]
"""A model, the number of its family, and its sizes."""
Mixture: TypeAlias = tuple[tuple[float, LoweredLayout], ...]
StepPart = Literal["step", "device", "optimizer"]
"""A whole step by wall clock, or device time: a micro-batch (both passes), or the optimizer."""
_SECONDS: Mapping[StepPart, str] = {
    "step": "time_s",
    "device": "device_s_per_microbatch",
    "optimizer": "optimizer_s",
}


class PricedSteps(State, kw_only=False):
    """Prices of programs, one efficiency per set-up; rows of a grid share them."""

    _prices: Memo[tuple[GridPlace, StepProgram], tuple[JobPrices, StepTime]] = field(
        default_factory=Memo
    )
    _shared: Memo[GridPlace, SharedPrices] = field(default_factory=Memo)
    _ideal: Memo[GridPlace, FloatArray] = field(default_factory=Memo)
    _efficiencies: Memo[GridPart, TrainingEfficiency] = field(default_factory=Memo)
    efficiency: TrainingEfficiency | None = None
    """The single efficiency for all, if any."""
    factors: dict[GridPart, FloatArray] = field(default_factory=dict)
    """Factors on all times by layout and sample, of parts with layouts in several releases."""

    def time_s(
        self,
        setup: TrainSetup,
        one: LoweredLayout,
        efficiency: TrainingEfficiency,
        of: StepPart = "step",
    ) -> FloatArray:
        """Time of a layout's step or a part of it, s; RowFault if unpriced."""
        place, factors = self._place(setup, one.part), self.factors.get(one.part)
        if factors is not None:
            given = efficiency
            efficiency = self._efficiencies.of(one.part, lambda: replace(given, factors=factors))

        def begun() -> SharedPrices:
            return shared_prices(setup, one.program, efficiency, one.part.wanted)

        def priced() -> tuple[JobPrices, StepTime]:
            shared = self._shared.of(place, begun)
            prices = prices_of(setup, one.program, efficiency, shared)
            return prices, prices.time()

        prices, step = self._prices.of((place, one.program), priced)
        refused = unpriced(prices, one.index)
        if refused:
            raise RowFault("; ".join(refused))
        return one.of(getattr(step, _SECONDS[of]))

    def forget(self) -> None:
        """Let go of the prices: times that were asked for are known by then."""
        self._prices, self._shared = Memo(), Memo()

    def ideal_s(self, setup: TrainSetup, one: LoweredLayout) -> float:
        """Time of a step's model FLOP at the chips' peak, s."""

        def ideal() -> FloatArray:
            known = setup.logical_size
            return mfu(one.program, setup.platform, np.ones(()), logical_size=known)

        # (The same whatever is repeated, and however states are cut.)
        return float(one.of(self._ideal.of(self._place(setup, one.part), ideal)))

    def _place(self, setup: TrainSetup, part: GridPart) -> GridPlace:
        return None if part in self.factors else setup.memo, part


class Prepared(Record, eq=False):
    """A case ready for pricing: for each micro-batch tried, layouts with their shares.

    Cases of one predictor share `latest`, the prices by the last efficiency.
    """

    setup: TrainSetup
    tried: tuple[Mixture, ...]
    fits: bool
    latest: list[PricedSteps] = field(default_factory=list)

    def times_s(
        self,
        efficiency: TrainingEfficiency,
        priced: PricedSteps | None = None,
        of: StepPart = "step",
    ) -> FloatArray:
        """Time of a step or a part of it [micro-batches tried, samples], s.

        `priced` are steps priced by their set-ups' efficiencies before; default: by this
        efficiency.
        """
        if priced is None and (not self.latest or self.latest[0].efficiency is not efficiency):
            self.latest[:] = [PricedSteps(efficiency=efficiency)]
        known = priced or self.latest[0]
        times = np.stack(
            [
                sum(
                    (
                        share * known.time_s(self.setup, one, efficiency, of)
                        for share, one in mixture
                    ),
                    start=np.zeros(()),
                )
                for mixture in self.tried
            ]
        )
        return times.reshape(len(self.tried), -1)


class RowMemory(Record):
    """Memory of a rank or of a chip's used ranks, bytes, with an 80 % interval."""

    bytes: float
    low_bytes: float
    high_bytes: float
    fit_probability: float
    """Probability that the layout fits."""


class RowPrediction(Record):
    """A predicted step time with its 80 % interval, s."""

    time_s: float
    low_s: float
    high_s: float
    ideal_s: float
    """Time of the model FLOP at the chips' peak."""
    mixture: Mixture
    fits: bool

    @property
    def layout(self) -> Layout:
        return self.mixture[0][1].layout


class Predictor(State, kw_only=False):
    """Predictor of cases: lowers each layout once, and prices equal cases once."""

    _lowered: dict[PlacedLayout, LoweredLayout] = field(default_factory=dict)
    _families: dict[Model, int] = field(default_factory=dict)
    _family: Memo[tuple[object, ...], _Member] = field(default_factory=Memo)
    _priced: PricedSteps = field(default_factory=PricedSteps)
    _latest: list[PricedSteps] = field(default_factory=list)
    _held: Memo[StepProgram, FloatArray] = field(default_factory=Memo)
    _draws: Memo[SetupMemo, MemoryDraws] = field(default_factory=Memo)
    _parts: Memo[StepProgram, tuple[StageParts, ...]] = field(default_factory=Memo)
    _drawn: Memo[tuple[GridPart, StepProgram], tuple[FloatArray, ...]] = field(default_factory=Memo)
    _prepared: Memo[tuple[object, ...], Prepared] = field(default_factory=Memo)
    _found: Memo[Prepared, RowPrediction] = field(default_factory=Memo)
    _memories: Memo[tuple[object, ...], RowMemory] = field(default_factory=Memo)
    _alike: dict[SetupMemo, SetupMemo] = field(default_factory=dict)
    """Set-ups in several releases -> the first that differs from them in nothing else."""

    def lower_together(self, cases: Iterable[EvidenceCase]) -> None:
        """Lower the layouts of all cases, similar ones on one grid."""
        alike: dict[Hashable, tuple[Model, list[PlacedLayout]]] = {}
        for case in cases:
            setup = case.setup
            for layout in _layouts_of(case):
                key = self._number_of(setup.model, layout)[0], modes_of(layout)
                alike.setdefault(key, (setup.model, []))[1].append(self._placed(setup, layout))
        for model, placed in alike.values():
            self._lowered.update(lowered(model, placed))

    def work_through(self, cases: Sequence[EvidenceCase]) -> None:
        """Lower, choose, price and weigh all cases; faults are left to whoever asks for a row.

        One kind of work after the other, and one place after the other: rows of samples, which
        are large, live no longer than their place is worked on.
        """
        keep_freed_memory()
        self._join_releases([case.setup for case in cases])
        self.lower_together(cases)
        self._factor_releases(cases)
        by_place: dict[GridPart, list[EvidenceCase]] = {}
        for case in cases:
            with suppress(RowFault):
                by_place.setdefault(self.prepared(case).tried[0][0][1].part, []).append(case)
        for here in by_place.values():
            for case in here:
                with suppress(RowFault):
                    self.predict(case)
            self._priced.forget()
        for here in by_place.values():
            for case in here:
                with suppress(RowFault):
                    self.memory(case, self.predict(case).mixture)
            self._drawn = Memo()

    def _join_releases(self, setups: Iterable[TrainSetup]) -> None:
        leaders: dict[tuple[object, ...], list[TrainSetup]] = {}
        for setup in {setup.memo: setup for setup in setups}.values():
            key = setup.platform.instance.name, setup.stack.name, setup.logical_size
            known = leaders.setdefault(key, [])
            first = next((one for one in known if _alike_but_for_release(one, setup)), None)
            if first is None:
                known.append(setup)
            else:
                self._alike[first.memo] = self._alike[setup.memo] = first.memo

    def _factor_releases(self, cases: Iterable[EvidenceCase]) -> None:
        factors = self._priced.factors
        for case in cases:
            setup = case.setup
            if setup.memo not in self._alike:
                continue
            samples = setup.samples
            for layout in _layouts_of(case):
                one = self._lowered[self._placed(setup, layout)]
                shape = *one.part.wanted.shape, samples.samples
                factors.setdefault(one.part, np.ones(shape))[one.index] = samples.whole_factor

    def _number_of(self, model: Model, layout: Layout) -> tuple[int, tuple[int, ...]]:
        """Number of the family of a model in a layout, and its sizes."""

        def member() -> _Member:
            family, sizes = family_of(model, layout)
            return model, self._families.setdefault(family, len(self._families)), sizes

        # A model is told by its identity, which is quick; the answer keeps it from being let go.
        key = id(model), layout.job, layout.attention
        return self._family.of(key, member)[1:]

    def _placed(self, setup: TrainSetup, layout: Layout) -> PlacedLayout:
        """A layout with the key of layouts that are priced together.

        Layouts that fill their nodes share a key for any number of nodes.
        """
        ranks = int(layout.ranks)
        filled = ranks % setup.platform.ranks(setup.logical_size) == 0
        used = None if filled else (setup.nodes, setup.node_ranks(ranks))
        family, sizes = self._number_of(setup.model, layout)
        memo = self._alike.get(setup.memo)
        place = family, memo or setup.memo, used, setup.domain.joined_nodes
        return place, layout, (setup.stack.release if memo else None, sizes)

    def prepared(self, case: EvidenceCase) -> Prepared:
        # Cases of one machine and stack share the memo of their set-ups.
        setup = case.setup
        key = (id(setup.model), setup.memo, setup.nodes, setup.own_stack, case.ways)
        return self._prepared.of(key, lambda: self._prepare(case))

    def _prepare(self, case: EvidenceCase) -> Prepared:
        chosen = [self._chosen(case, variants) for variants in case.ways]
        fitting = tuple(mixture for mixture, fits in chosen if fits)
        return Prepared(
            setup=case.setup,
            tried=fitting or (chosen[0][0],),
            fits=bool(fitting),
            latest=self._latest,
        )

    def predict(self, case: EvidenceCase) -> RowPrediction:
        prepared = self.prepared(case)
        return self._found.of(prepared, lambda: _predicted(prepared, self._priced))

    def memory(self, case: EvidenceCase, mixture: Mixture) -> RowMemory:
        """Memory of a case's mixture of layouts, weighted by their shares."""
        setup, of = case.setup, case.counted
        key = (setup.memo, of, mixture)
        return self._memories.of(key, lambda: self._memory(setup, mixture, of))

    def _chosen(self, case: EvidenceCase, variants: Sequence[LayoutMix]) -> tuple[Mixture, bool]:
        """The first variant that fits in memory, or else the last; and True if it fits."""
        mixture: Mixture = ()
        for variant in variants:
            mixture = tuple((share, self._legal(case.setup, layout)) for share, layout in variant)
            # Variants are ordered by recomputation: the first that fits recomputes least.
            if sum(share * self._filled(case.setup, one) for share, one in mixture) <= 1:
                return mixture, True
        return mixture, False

    def _legal(self, setup: TrainSetup, layout: Layout) -> LoweredLayout:
        key = self._placed(setup, layout)
        if key not in self._lowered:
            self._lowered.update(lowered(setup.model, [key]))
        one = self._lowered[key]
        refusals = one.refusals(setup.model)
        if refusals:
            raise RowFault("; ".join(refusals))
        return one

    def _filled(self, setup: TrainSetup, one: LoweredLayout) -> float:
        """Share of a rank's memory filled by a layout, without reserve and fragmentation.

        A run that did happen may have used any layout up to 1.
        """

        def held() -> FloatArray:
            sizes = (stage.total_bytes(PLAIN, 0.0) for stage in self._parts_of(one.program))
            return reduce(np.maximum, sizes)

        found = self._held.of(one.program, held)
        capacity = setup.platform.memory_per_rank_bytes(setup.logical_size)
        return float(one.of(found)) / float(setup.stack.memory_margin * capacity)

    def _parts_of(self, program: StepProgram) -> tuple[StageParts, ...]:
        return self._parts.of(program, lambda: stage_parts(program))

    def _memory(self, setup: TrainSetup, mixture: Mixture, of: WhoseMemory) -> RowMemory:
        """Memory of the worst rank, of one rank, as in logs, or of all ranks on the first chip."""

        def drawn() -> MemoryDraws:
            return MemoryDraws.of(setup.platform, setup.stack, setup.logical_size)

        alike = self._alike.get(setup.memo, setup.memo)
        draws, found = self._draws.of(alike, drawn), np.zeros(4)
        for share, one in mixture:
            program = one.program
            known = LayoutMemory(
                program=program,
                platform=setup.platform,
                stack=setup.stack,
                logical_size=setup.logical_size,
                index=one.index,
                parts=self._parts_of(program),
                draws=draws,
                drawn=self._drawn_bytes(one, draws),
            )
            held = known.held(of)
            sizes = (held.value, held.low, held.high)
            found += share * np.array([*sizes, known.fit_probability])
        expected, low, high, likely = map(float, found)
        return RowMemory(bytes=expected, low_bytes=low, high_bytes=high, fit_probability=likely)

    def _drawn_bytes(self, one: LoweredLayout, draws: MemoryDraws) -> tuple[FloatArray, ...]:
        """Bytes of each class of stages by some draws, worked out for all layouts of a place."""
        places, program = one.part.places, one.program

        def drawn() -> tuple[FloatArray, ...]:
            parts = (stage.of(one.part.rows) for stage in self._parts_of(program))
            return tuple(draws.stage_bytes(stage) for stage in parts)

        found = self._drawn.of((one.part, program), drawn)
        if not one.index:
            return found
        return tuple(sizes[int(places[one.index])] if sizes.ndim else sizes for sizes in found)


def _predicted(prepared: Prepared, priced: PricedSteps) -> RowPrediction:
    setup = prepared.setup
    times = prepared.times_s(setup.samples, priced)
    # The first of each row is by the calibration itself.
    best = int(np.argmin(times[:, 0]))
    # Where several micro-batches may have been in use, the interval spans all of them.
    ends = [
        interval(times_s, setup.spread_in(mixture[0][1].layout))
        for times_s, mixture in zip(times, prepared.tried, strict=True)
    ]
    one = prepared.tried[best][0][1]
    return RowPrediction(
        time_s=float(times[best, 0]),
        low_s=min(low for low, _ in ends),
        high_s=max(high for _, high in ends),
        ideal_s=float(priced.ideal_s(setup, one)),
        mixture=prepared.tried[best],
        fits=prepared.fits,
    )


def _layouts_of(case: EvidenceCase) -> Iterable[Layout]:
    return (layout for mixes in case.ways for mix in mixes for _, layout in mix)


def _alike_but_for_release(one: TrainSetup, other: TrainSetup) -> bool:
    """True where two set-ups of a stack on an instance have equal numbers in all samples."""
    first, second = one.efficiency, other.efficiency
    if one.platform is not other.platform or one.collectives is not other.collectives:
        return False
    if first.chip is not second.chip or first.buckets != second.buckets:
        return False
    for known in fields(first.stack):
        if known.name not in ("release", "spread", "unseen") and (
            getattr(first.stack, known.name) != getattr(second.stack, known.name)
        ):
            return False
    ours, theirs = numbers_by_key(one.samples), numbers_by_key(other.samples)
    sampled = one.samples.samples is not None
    return sampled and all(np.array_equal(number, theirs[key]) for key, number in ours.items())
