"""A measured step from rows of evidence: its run, and its measured quantities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trnbench.evidence.explain.change import Ran
from trnbench.evidence.fit.bounds import impossible
from trnbench.evidence.predict import Predictor, PricedSteps
from trnbench.evidence.rows import RowFault
from trnbench.evidence.training_cases import EvidenceCase
from trnbench.facts.records import Record
from trnbench.predict.assumption import Assumption

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
    doubt: str | None = None
    """Reason why the time is impossible for the stated cluster, if so."""


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
        doubt=impossible(prepared, step.step_time_s, found.time_s, PricedSteps()),
    )
