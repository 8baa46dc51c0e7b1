"""Training steps carried out with real numbers."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.execute.exchange import TrafficLine
from trnbench.facts.records import Record
from trnbench.facts.units import HOUR_S
from trnbench.show.row import Row
from trnbench.verbs.train.answer import TrainAnswer

AGREEMENT = 0.02
"""By how much the memory model may miss what was measured."""


class FormatFlop(Record):
    """Operations of all steps over all ranks on operands of a format."""

    number_format: str
    flop: int
    program_flop: float

    @property
    def agrees(self) -> bool:
        """Whether both figures are the same."""
        return self.flop == self.program_flop


class StageHeld(Record):
    """What a rank of one class of stages held at most, measured and as the memory model says.

    `peaks_bytes` adds up the peak of each category, as the model does; `peak_bytes` is what was
    there at one time.
    """

    role: str
    by_category: Mapping[str, float]
    model_by_category: Mapping[str, float]
    peak_bytes: float

    @property
    def peaks_bytes(self) -> float:
        """The peaks of all categories."""
        return sum(self.by_category.values())

    @property
    def model_bytes(self) -> float:
        """What the memory model says."""
        return sum(self.model_by_category.values())

    @property
    def agrees(self) -> bool:
        """Whether the model lies between what was there at one time and the peaks added up."""
        above = self.peak_bytes <= self.model_bytes * (1 + AGREEMENT)
        return above and self.peaks_bytes >= self.model_bytes * (1 - AGREEMENT)


class FunctionalRun(Record):
    """Some training steps with real numbers; `reasons` tell why there are none.

    `answer` is the modelled step on the instance; `resumed` counts the steps that a checkpoint
    brought, `measured` those that this run carried out and measured. Without a published price
    `usd_per_hour` (of all instances) is None.
    """

    answer: TrainAnswer
    task: str
    seed: int
    losses: tuple[float, ...]
    tokens_per_step: int
    resumed: int = 0
    measured: int = 0
    usd_per_hour: float | None = None
    region: str | None = None
    traffic: tuple[TrafficLine, ...] = ()
    flop: tuple[FormatFlop, ...] = ()
    stages: tuple[StageHeld, ...] = ()
    busiest_link: tuple[int, int, float] | None = None
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def agrees(self) -> bool:
        """Whether all that was measured is what the program and the models say."""
        parts: tuple[TrafficLine | FormatFlop | StageHeld, ...] = (
            *self.traffic,
            *self.flop,
            *self.stages,
        )
        return all(part.agrees for part in parts)

    def rows(self) -> tuple[Row, ...]:
        """Return a row for each step."""
        step = self.answer.step
        return tuple(
            self._row(i + 1, loss, step.step_time_s if step else None)
            for i, loss in enumerate(self.losses)
        )

    def _row(self, number: int, loss: float, step_s: float | None) -> Row:
        time_s = None if step_s is None else number * step_s
        per_hour = self.usd_per_hour
        cost = None if time_s is None or per_hour is None else per_hour * time_s / HOUR_S
        return {
            "step": number,
            "loss": loss,
            "tokens": number * self.tokens_per_step,
            "modelled_time_s": time_s,
            "modelled_cost_usd": cost,
        }
