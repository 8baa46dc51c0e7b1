"""Predicted step times of training cases, for single numbers or rows of samples at once.

A case is prepared once: its layouts are lowered and those that fit are chosen. Preparing does not
depend on what a fit changes, so a fit prices the same prepared cases again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from trnbench.analytic.step.memory import memory
from trnbench.analytic.step.utilization import utilization
from trnbench.arrays import FloatArray
from trnbench.calibration.training_stack import TrainingEfficiency
from trnbench.catalog.search import Catalog
from trnbench.evidence.collectives import fitted
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.evidence.training_cases import EvidenceCase, LayoutVariant, Reader
from trnbench.memo import Memo
from trnbench.predict.sampling import interval
from trnbench.predict.setup import TrainSetup, family_of
from trnbench.predict.step import prices_of, unpriced
from trnbench.program.step import StepProgram, training_step
from trnbench.workload.layout import RANK_DEGREES, Layout
from trnbench.workload.model import Model

Mixture: TypeAlias = tuple[tuple[float, StepProgram], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A case that can be priced: for each micro-batch to be tried, programs and their shares."""

    setup: TrainSetup
    tried: tuple[Mixture, ...]
    fits: bool

    @property
    def program(self) -> StepProgram:
        """The program of the first layout."""
        return self.tried[0][0][1]

    def times_s(self, efficiency: TrainingEfficiency) -> FloatArray:
        """Return the step time of each micro-batch tried and each sample [tried, samples], s."""
        times = np.stack(
            [
                sum(
                    (share * self._time_s(program, efficiency) for share, program in mixture),
                    start=np.zeros(()),
                )
                for mixture in self.tried
            ]
        )
        return times.reshape(len(self.tried), -1)

    def _time_s(self, program: StepProgram, efficiency: TrainingEfficiency) -> FloatArray:
        prices = prices_of(self.setup, program, efficiency)
        refused = unpriced(prices)
        if refused:
            raise RowFault("; ".join(refused))
        return prices.time().time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPrediction:
    """A predicted step time with its 80 % interval, and what it would be at the chips' peak, s."""

    time_s: float
    low_s: float
    high_s: float
    ideal_s: float
    program: StepProgram
    fits: bool


@dataclass
class Predictor:
    """Predicts cases: lowers each layout once, and prices cases that are alike once."""

    _programs: Memo[tuple[int, Layout], StepProgram] = field(default_factory=Memo, init=False)
    _prepared: Memo[tuple[object, ...], Prepared] = field(default_factory=Memo, init=False)
    _found: Memo[int, RowPrediction] = field(default_factory=Memo, init=False)

    def prepared(self, case: EvidenceCase) -> Prepared:
        """Return the case ready to be priced; or raise RowFault where no layout divides."""
        # Cases of one machine and stack share the memo of their set-ups.
        setup = case.setup
        key = (id(setup.model), id(setup.memo), setup.own_stack, case.ways)
        return self._prepared.of(key, lambda: self._prepare(case))

    def _prepare(self, case: EvidenceCase) -> Prepared:
        chosen = [self._chosen(case, variants) for variants in case.ways]
        fitting = tuple(mixture for mixture, fits in chosen if fits)
        return Prepared(setup=case.setup, tried=fitting or (chosen[0][0],), fits=bool(fitting))

    def predict(self, case: EvidenceCase) -> RowPrediction:
        """Return the prediction of a case; or raise RowFault for why there is none."""
        prepared = self.prepared(case)
        return self._found.of(id(prepared), lambda: _predicted(prepared))

    def _chosen(
        self, case: EvidenceCase, variants: Sequence[LayoutVariant]
    ) -> tuple[Mixture, bool]:
        """Return the first variant that fits in memory, or else the last; and whether it fits."""
        mixture: Mixture = ()
        for variant in variants:
            mixture = tuple(
                (share, self._program(case.setup.model, layout)) for share, layout in variant.parts
            )
            if all(_fits(case, program) for _, program in mixture):
                return mixture, True
        return mixture, False

    def _program(self, model: Model, layout: Layout) -> StepProgram:
        program = self._programs.of((id(model), layout), lambda: training_step(model, layout))
        refusals = program.refusals()
        if refusals:
            raise RowFault("; ".join(refusals))
        return program


def _predicted(prepared: Prepared) -> RowPrediction:
    setup = prepared.setup
    times = prepared.times_s(setup.samples)
    # The first of each row is by the calibration itself.
    best = int(np.argmin(times[:, 0]))
    # Where several micro-batches may have been in use, the interval spans all of them.
    ends = [interval(times_s, setup.spread) for times_s in times]
    program = prepared.tried[best][0][1]
    used = utilization(program, setup.platform, np.ones(()))
    return RowPrediction(
        time_s=float(times[best, 0]),
        low_s=min(low for low, _ in ends),
        high_s=max(high for _, high in ends),
        ideal_s=float(used.mfu),
        program=program,
        fits=prepared.fits,
    )


def compare_training(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Return every row of a set of training runs beside its prediction."""
    predictor = Predictor()
    return tuple(
        _compared(predictor, file, row, case)
        for row, case in zip(file.rows, Reader(catalog).cases(file), strict=True)
    )


def _compared(
    predictor: Predictor, file: EvidenceFile, row: EvidenceRow, case: EvidenceCase | str
) -> Comparison:
    system = "system" if row.text("system") else "instance"
    blank = Comparison.of_row(file, row, model="model", system=system)
    if isinstance(case, str):
        return replace(blank, reason=case)
    found: RowPrediction | None = None
    try:
        found = predictor.predict(case)
    except RowFault as fault:
        blank = replace(blank, reason=str(fault))
    setup = case.setup
    layout = found.program.layout if found else case.layout
    assumed = case.assumed
    if found and not found.fits:
        assumed = (*assumed, "memory: enough, though by the model it is not")
    where, stack = setup.platform.instance.name, setup.stack
    return replace(
        blank,
        platform=where,
        nodes=setup.nodes,
        ranks=int(layout.ranks),
        layout=_layout_text(layout),
        family=family_of(setup.model),
        precision=layout.precision,
        configuration=case.configuration,
        question=f"{setup.model.name} {where} {layout.sequence} {layout.precision} {stack.name}",
        tokens=float(layout.global_batch * layout.sequence),
        measured_s=case.told.measured_s,
        predicted_s=found.time_s if found else None,
        low_s=found.low_s if found else None,
        high_s=found.high_s if found else None,
        ideal_s=found.ideal_s if found else None,
        fitted=fitted(stack.fitted_rows, row.id),
        stack=stack.name,
        basis=setup.basis,
        own_stack=setup.own_stack,
        assumed=assumed,
    )


def _layout_text(layout: Layout) -> str:
    """Return a layout in a few words: degrees above 1, the micro-batch, and modes in use."""
    words = [f"{name}{getattr(layout, name)}" for name in RANK_DEGREES if getattr(layout, name) > 1]
    words.append(f"mbs{layout.micro_batch}")
    if layout.zero:
        words.append(f"zero{layout.zero}")
    if layout.sequence_parallel:
        words.append("sp")
    if layout.recompute != "none":
        words.append(layout.recompute)
    return " ".join(words)


def _fits(case: EvidenceCase, program: StepProgram) -> bool:
    """Return whether what did run may have run so: with no reserve, and no memory lost."""
    held = memory(program, case.setup.platform, fragmentation_ratio=0.0)
    return float(held.total_bytes) <= case.setup.stack.memory_margin * held.capacity_bytes
