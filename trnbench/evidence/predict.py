"""Predicted step times of training cases, for single numbers or rows of samples at once.

A case is prepared once: its layouts are lowered and those that fit are chosen. Preparing does not
depend on what a fit changes, so a fit prices the same prepared cases again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trnbench.analytic.memory import memory
from trnbench.analytic.step_collectives import Engines
from trnbench.analytic.step_time import step_prices
from trnbench.analytic.step_utilization import utilization
from trnbench.arrays import FloatArray
from trnbench.catalog.search import Catalog
from trnbench.evidence.collectives import fitted
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.model_family import family_of
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.evidence.sampling import interval, sampled
from trnbench.evidence.training_cases import Reader, TrainingCase, Variant
from trnbench.program.step import StepProgram, training_step
from trnbench.spec.collective_efficiency import CollectiveStack, load_stack, stack_of
from trnbench.spec.instance import Platform
from trnbench.spec.training_stack import TrainingEfficiency
from trnbench.workload.layout import DEGREES, RANK_DEGREES, Layout
from trnbench.workload.model import Model

Mixture: TypeAlias = tuple[tuple[float, StepProgram], ...]

MEMORY_DOUBT = 1.15
"""A run that is known to have run may need so much more by the model: some drop single tensors."""
SAMPLES = 200
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A case that can be priced: for each micro-batch to be tried, programs and their shares."""

    platform: Platform
    collectives: CollectiveStack
    engines: Engines
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
        prices = step_prices(
            program, self.platform, efficiency, self.collectives, engines=self.engines
        )
        at = {name: int(getattr(program.layout, name)) for name in DEGREES}
        refused = [reason.words(at) for reason in prices.refused if reason.broken.any()]
        if prices.reasons or refused:
            raise RowFault("; ".join([*prices.reasons, *refused]))
        return prices.time().time_s


@dataclass
class Preparer:
    """Lowers the layouts of cases; each program, placed group and communication stack once."""

    catalog: Catalog
    _programs: dict[tuple[int, Layout], StepProgram] = field(default_factory=dict, init=False)
    _engines: dict[tuple[str, str], Engines] = field(default_factory=dict, init=False)
    _stacks: dict[str, CollectiveStack] = field(default_factory=dict, init=False)
    _prepared: dict[tuple[object, ...], Prepared] = field(default_factory=dict, init=False)

    def prepared(self, case: TrainingCase) -> Prepared:
        """Return the case ready to be priced; or raise RowFault where no layout divides."""
        key = (id(case.model), case.platform.instance.name, case.stack.name, case.ways)
        if key not in self._prepared:
            self._prepared[key] = self._prepare(case)
        return self._prepared[key]

    def _prepare(self, case: TrainingCase) -> Prepared:
        chosen = [self._chosen(case, variants) for variants in case.ways]
        fitting = [mixture for mixture, fits in chosen if fits]
        collectives = self._collectives(case)
        instance = case.platform.instance.name
        return Prepared(
            platform=case.platform,
            collectives=collectives,
            engines=self._engines.setdefault((instance, collectives.name), {}),
            tried=tuple(fitting or [chosen[0][0]]),
            fits=bool(fitting),
        )

    def _chosen(self, case: TrainingCase, variants: Sequence[Variant]) -> tuple[Mixture, bool]:
        """Return the first variant that fits in memory, or else the last; and whether it fits."""
        mixture: Mixture = ()
        for variant in variants:
            mixture = tuple(
                (share, self._program(case.model, layout)) for share, layout in variant.parts
            )
            if all(_fits(case, program) for _, program in mixture):
                return mixture, True
        return mixture, False

    def _program(self, model: Model, layout: Layout) -> StepProgram:
        key = (id(model), layout)
        if key not in self._programs:
            self._programs[key] = training_step(model, layout)
        program = self._programs[key]
        refusals = program.refusals()
        if refusals:
            raise RowFault("; ".join(refusals))
        return program

    def _collectives(self, case: TrainingCase) -> CollectiveStack:
        name = case.stack.collectives or case.platform.instance.name
        if name not in self._stacks:
            self._stacks[name] = (
                load_stack(self.catalog, name)
                if case.stack.collectives
                else stack_of(self.catalog, name)
            )
        return self._stacks[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted step time with its 80 % interval, and what it would be at the chips' peak, s."""

    time_s: float
    low_s: float
    high_s: float
    ideal_s: float
    program: StepProgram
    fits: bool


@dataclass
class Predictor:
    """Predicts cases; those that are alike, and samples of an efficiency, once."""

    reader: Reader
    preparer: Preparer
    _found: dict[tuple[object, ...], Prediction] = field(default_factory=dict, init=False)
    _sampled: dict[tuple[object, ...], TrainingEfficiency] = field(default_factory=dict, init=False)

    def predict(self, case: TrainingCase) -> Prediction:
        """Return the prediction of a case; or raise RowFault for why there is none."""
        prepared = self.preparer.prepared(case)
        key = (id(prepared), case.stack.name, case.stack.release, case.own_stack)
        if key not in self._found:
            self._found[key] = self._predict(case, prepared)
        return self._found[key]

    def _predict(self, case: TrainingCase, prepared: Prepared) -> Prediction:
        # The first sample is the calibration itself.
        times = prepared.times_s(self._samples(case))
        best = int(np.argmin(times[:, 0]))
        time_s = float(times[best, 0])
        spread = case.stack.spread_on(case.platform.instance.name, family_of(case.model))
        if not case.own_stack:
            spread = case.stack.unseen or spread
        # Where several micro-batches may have been in use, the interval spans all of them.
        ends = [interval(samples, spread) for samples in times]
        program = prepared.tried[best][0][1]
        used = utilization(program, case.platform, np.ones(()))
        return Prediction(
            time_s=time_s,
            low_s=min(time_s, *(low for low, _ in ends)),
            high_s=max(time_s, *(high for _, high in ends)),
            ideal_s=float(used.mfu),
            program=program,
            fits=prepared.fits,
        )

    def _samples(self, case: TrainingCase) -> TrainingEfficiency:
        key = (case.platform.chip.name, case.stack.name, case.stack.release)
        if key not in self._sampled:
            efficiency = self.reader.efficiency(case)
            self._sampled[key] = sampled(efficiency, count=SAMPLES, seed=SEED, median_first=True)
        return self._sampled[key]


def compare_training(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Return every row of a set of training runs beside its prediction."""
    reader = Reader(catalog)
    predictor = Predictor(reader, Preparer(catalog))
    return tuple(
        _compared(predictor, file, row, case)
        for row, case in zip(file.rows, reader.cases(file), strict=True)
    )


def _compared(
    predictor: Predictor, file: EvidenceFile, row: EvidenceRow, case: TrainingCase | str
) -> Comparison:
    system = row.text("system") or row.text("instance")
    if isinstance(case, str):
        return Comparison(
            id=row.id,
            set=file.set,
            use=row.text("use"),
            model=row.text("model"),
            system=system,
            reason=case,
        )
    prediction: Prediction | None = None
    reason = None
    try:
        prediction = predictor.predict(case)
    except RowFault as fault:
        reason = str(fault)
    layout = prediction.program.layout if prediction else case.layout
    assumed = case.assumed
    if prediction and not prediction.fits:
        assumed = (*assumed, "memory: enough, though by the model it is not")
    where, stack = case.platform.instance.name, case.stack
    return Comparison(
        id=row.id,
        set=file.set,
        use=row.text("use"),
        model=row.text("model"),
        system=system,
        platform=where,
        nodes=case.nodes,
        ranks=int(layout.ranks),
        layout=layout_text(layout),
        family=family_of(case.model),
        precision=layout.precision,
        configuration=case.configuration,
        question=f"{case.model.name} {where} {layout.sequence} {layout.precision} {stack.name}",
        tokens=float(layout.global_batch * layout.sequence),
        measured_s=case.told.measured_s,
        predicted_s=prediction.time_s if prediction else None,
        low_s=prediction.low_s if prediction else None,
        high_s=prediction.high_s if prediction else None,
        ideal_s=prediction.ideal_s if prediction else None,
        fitted=fitted(stack.fitted_rows, row.id),
        stack=stack.name,
        basis=stack.basis_on(where, family_of(case.model)) if case.own_stack else "transferred",
        own_stack=case.own_stack,
        assumed=assumed,
        reason=reason,
    )


def layout_text(layout: Layout) -> str:
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


def _fits(case: TrainingCase, program: StepProgram) -> bool:
    """Return whether what did run may have run so: with no reserve, and no memory lost."""
    held = memory(program, case.platform, fragmentation_ratio=0.0)
    return float(held.total_bytes) <= MEMORY_DOUBT * held.capacity_bytes
