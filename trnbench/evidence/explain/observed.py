"""Measured steps from rows of evidence: their runs and quantities, beside their predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from trnbench.evidence.explain.change import Ran
from trnbench.evidence.fit.bounds import impossible
from trnbench.evidence.predict import Predictor, PricedSteps
from trnbench.evidence.readers.devices import DeviceSummary
from trnbench.evidence.rows import RowFault
from trnbench.evidence.training_cases import EvidenceCase
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import KNOBS
from trnbench.predict.assumption import Assumption, merged
from trnbench.program.slots import StepCategory

Quantity = Literal["step", "micro-batch", "optimizer", "memory"]
"""Wall time of a step; device time of a micro-batch and of the optimizer, s; a rank's memory,
bytes.
"""


class ObservedStep(Record, eq=False):
    """A measured step."""

    id: str
    ran: Ran
    measured: Mapping[Quantity, float]
    assumed: tuple[Assumption, ...] = ()
    """Assumptions for unstated cells."""
    recompilations: int = 0
    """Compilations between steps, after the first few, as its log tells."""
    doubt: str | None = None
    """Reason why the time is impossible for the stated cluster, if so."""


Went = Literal["as predicted", "faster", "slower"]


class StepFigure(Record, eq=False):
    """A measured figure of a step, with its prediction."""

    step: ObservedStep
    quantity: Quantity
    measured: float
    predicted: float
    low: float
    """Ends of the 80 % interval."""
    high: float
    samples: FloatArray
    """Logs of sampled predictions."""

    @property
    def gap(self) -> float:
        """Log of measured over predicted."""
        return float(np.log(self.measured / self.predicted))

    @property
    def inside(self) -> bool:
        """True when the interval contains the measurement."""
        return self.low <= self.measured <= self.high

    @property
    def went(self) -> Went:
        """Outcome of the step; as predicted anywhere in the interval."""
        if self.inside:
            return "as predicted"
        return "faster" if self.measured < self.low else "slower"


class RunCompared(Record, eq=False):
    """Measured figures beside their predictions, and the rows that could not be used, and why.

    `terms`: seconds of the first predicted step by category; `remarks` say how files were read,
    `devices` what monitors and profilers say beside them.
    """

    figures: tuple[StepFigure, ...]
    terms: Mapping[StepCategory, float]
    unused: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    devices: tuple[DeviceSummary, ...] = ()

    @property
    def steps(self) -> tuple[StepFigure, ...]:
        """The figures that are whole steps."""
        return tuple(figure for figure in self.figures if figure.quantity == "step")

    @property
    def as_predicted(self) -> bool:
        """True when every step lies inside its interval."""
        return all(step.inside for step in self.steps)

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """Assumptions where the rows are silent, each once."""
        steps = {figure.step.id: figure.step for figure in self.figures}
        return merged({name: step.assumed for name, step in steps.items()})

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The options that would say what is assumed of the run."""
        named = dict.fromkeys(one.name for one in self.assumed)
        return tuple(
            KNOBS[name].option if name in KNOBS else f"--{name}"
            for name in named
            if name in KNOBS or name == "stack"
        )

    @property
    def largest(self) -> tuple[tuple[StepCategory, float], ...]:
        """The three terms that take most of a step."""
        return tuple(sorted(self.terms.items(), key=lambda one: -one[1])[:3])


def observed(predictor: Predictor, case: EvidenceCase | str) -> ObservedStep:
    """The measured step of a row; RowFault if it cannot be predicted.

    An unstated micro-batch is the fastest of those tried.
    """
    if isinstance(case, str):
        raise RowFault(case)
    step = case.step
    measured: dict[Quantity, float | None] = {
        "step": step.step_time_s,
        "micro-batch": step.device_s_per_microbatch,
        "optimizer": step.optimizer_s,
        "memory": step.memory.bytes if step.memory and step.memory.of == "rank" else None,
    }
    if not step.ran or step.step_time_s is None:
        raise RowFault("no step time was measured")
    found = predictor.predict(case)
    mixture, prepared = found.mixture, predictor.prepared(case)
    return ObservedStep(
        id=step.id,
        ran=Ran(setup=case.setup, parts=tuple((share, one.layout) for share, one in mixture)),
        measured={name: value for name, value in measured.items() if value is not None},
        assumed=case.assumed,
        recompilations=step.recompilations,
        doubt=impossible(prepared, step.step_time_s, found.time_s, PricedSteps()),
    )
