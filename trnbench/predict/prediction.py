"""What is predicted of a training step in one layout: records, without names of fronts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from trnbench.engines.analytic.step.memory import StepMemory
from trnbench.engines.analytic.step.memory_parts import MemoryCategory
from trnbench.facts.records import Record, replace
from trnbench.predict.differences import Difference
from trnbench.program.slots import StepCategory

if TYPE_CHECKING:
    from trnbench.engines.emulate.schedule.timeline import Timeline

K = TypeVar("K", bound=str)


class StepFigures(Record):
    """What a step takes: `exposed_s` adds up to `step_time_s`, `hidden_s` runs beside compute.

    `low_` and `high_step_time_s` are the ends of its 80 % interval. An engine that does not tell
    what is hidden leaves it out. `device_s_per_microbatch` and `optimizer_s`, as in `StepTime`, are
    of the closed form alone.
    """

    step_time_s: float
    low_step_time_s: float
    high_step_time_s: float
    exposed_s: Mapping[str, float]
    hidden_s: Mapping[str, float]
    mfu: float
    mfu_headline: float | None
    hfu: float
    device_s_per_microbatch: float | None = None
    optimizer_s: float | None = None


class RankMemory(Record):
    """What a rank of the worst stage holds, and what it has; how likely it is that this fits.

    `low_bytes` and `high_bytes` are the ends of the 80 % interval of `total_bytes`.
    """

    stage: str
    by_category: Mapping[MemoryCategory, float]
    total_bytes: float
    low_bytes: float
    high_bytes: float
    capacity_bytes: float
    reserve_bytes: float
    fit_probability: float

    @property
    def available_bytes(self) -> float:
        """What the program may use."""
        return self.capacity_bytes - self.reserve_bytes

    @classmethod
    def of(
        cls, held: StepMemory, interval: tuple[float, float], fit_probability: float
    ) -> RankMemory:
        """Return the memory of the one layout of a scalar program."""
        return cls(
            stage=held.worst().role,
            by_category=held.by_category(),
            total_bytes=float(held.total_bytes),
            low_bytes=interval[0],
            high_bytes=interval[1],
            capacity_bytes=held.capacity_bytes,
            reserve_bytes=held.reserve_bytes,
            fit_probability=fit_probability,
        )


def mean_step(steps: Sequence[StepFigures], ends: tuple[float, float]) -> StepFigures:
    """Return the mean of some steps, with these ends of its interval."""
    time_s = mean(one.step_time_s for one in steps)

    def utilization(of: str) -> float:
        return mean(getattr(one, of) * one.step_time_s for one in steps) / time_s

    first = steps[0]
    known = first.device_s_per_microbatch is not None
    return StepFigures(
        step_time_s=time_s,
        low_step_time_s=ends[0],
        high_step_time_s=ends[1],
        exposed_s=_mean_of_each([one.exposed_s for one in steps]),
        hidden_s=_mean_of_each([one.hidden_s for one in steps]),
        mfu=utilization("mfu"),
        mfu_headline=None if first.mfu_headline is None else utilization("mfu_headline"),
        hfu=utilization("hfu"),
        device_s_per_microbatch=mean(one.device_s_per_microbatch or 0.0 for one in steps)
        if known
        else None,
        optimizer_s=mean(one.optimizer_s or 0.0 for one in steps) if known else None,
    )


def mean_memory(held: Sequence[RankMemory]) -> RankMemory:
    """Return the mean of what ranks hold in some layouts, each on its worst stage."""
    return replace(
        held[0],
        by_category=_mean_of_each([one.by_category for one in held]),
        total_bytes=mean(one.total_bytes for one in held),
        low_bytes=mean(one.low_bytes for one in held),
        high_bytes=mean(one.high_bytes for one in held),
        fit_probability=mean(one.fit_probability for one in held),
    )


def mean(numbers: Iterable[float]) -> float:
    """Return the mean of some numbers."""
    listed = list(numbers)
    return sum(listed) / len(listed)


def _mean_of_each(of: Sequence[Mapping[K, float]]) -> dict[K, float]:
    return {name: mean(one.get(name, 0.0) for one in of) for one in of for name in one}


class PhaseFigures(Record):
    """What a phase of a job's step takes by itself, and what a rank holds meanwhile.

    `step_time_s` of phases that run on nodes of their own are no part of the step's.
    """

    name: str
    step_time_s: float | None
    memory: RankMemory | None


def mean_phases(each: Sequence[Sequence[PhaseFigures]]) -> tuple[PhaseFigures, ...]:
    """Return the mean of the phases of some layouts of a job."""
    return tuple(
        PhaseFigures(
            name=same[0].name,
            step_time_s=mean(one.step_time_s or 0.0 for one in same),
            memory=mean_memory([one.memory for one in same if one.memory])
            if same[0].memory
            else None,
        )
        for same in zip(*each, strict=True)
    )


class Prediction(Record):
    """A training step in one layout: either `step`, or `reasons` why it cannot run.

    `step` is the closed form. `played` is the step as the emulator played it, with its `timeline`,
    where that was asked for; `unplayed` names its categories that are priced in closed form all the
    same, because the chip has no tile emulator, `differences` those in which the two are apart.
    `memory` is known of every layout that is legal: that of the phase which needs most. `phases`
    are those of a job that has several.
    """

    step: StepFigures | None = None
    played: StepFigures | None = None
    unplayed: tuple[StepCategory, ...] = ()
    differences: tuple[Difference, ...] = ()
    timeline: Timeline | None = None
    memory: RankMemory | None = None
    phases: tuple[PhaseFigures, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
