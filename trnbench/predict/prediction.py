"""What is predicted of a training step in one layout: records, without names of fronts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trnbench.analytic.step.memory import MemoryCategory, StepMemory

if TYPE_CHECKING:
    from trnbench.emulate.schedule.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What a step takes: `exposed_s` adds up to `step_time_s`, `hidden_s` runs beside compute.

    `low_` and `high_step_time_s` are the ends of its 80 % interval. An engine that does not tell
    what is hidden leaves it out.
    """

    step_time_s: float
    low_step_time_s: float
    high_step_time_s: float
    exposed_s: Mapping[str, float]
    hidden_s: Mapping[str, float]
    mfu: float
    mfu_headline: float | None
    hfu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """What a rank of the worst stage holds, and what it has; how likely it is that this fits."""

    stage: str
    by_category: Mapping[MemoryCategory, float]
    total_bytes: float
    capacity_bytes: float
    reserve_bytes: float
    fit_probability: float

    @property
    def available_bytes(self) -> float:
        """What the program may use."""
        return self.capacity_bytes - self.reserve_bytes

    @classmethod
    def of(cls, held: StepMemory, fit_probability: float) -> RankMemory:
        """Return the memory of the one layout of a scalar program."""
        return cls(
            stage=held.worst().role,
            by_category=held.by_category(),
            total_bytes=float(held.total_bytes),
            capacity_bytes=held.capacity_bytes,
            reserve_bytes=held.reserve_bytes,
            fit_probability=fit_probability,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A training step in one layout: either `step`, or `reasons` why it cannot run.

    `step` is the closed form. `played` is the step as the schedule emulator ran it, with its
    `timeline`, where that was asked for. `memory` is known of every layout that is legal.
    """

    step: StepFigures | None = None
    played: StepFigures | None = None
    timeline: Timeline | None = None
    memory: RankMemory | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
