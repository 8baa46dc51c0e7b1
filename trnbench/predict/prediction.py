"""Records of a predicted training step in one layout, and differences between its engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from trnbench.engines.analytic.step.memory import StepMemory
from trnbench.engines.analytic.step.memory_parts import MemoryCategory
from trnbench.engines.analytic.step.time import StepTime
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.program.slots import StepCategory

if TYPE_CHECKING:
    from trnbench.engines.emulate.schedule.timeline import Timeline
from trnbench.machine.costs.instructions import WAITING
from trnbench.program.slots import STEP_CATEGORIES

K = TypeVar("K", bound=str)
Busy = Mapping[StepCategory, Mapping[str, float]]

ROUNDING = 1e-9
"""Share of a time that may be left by rounding."""
WORTH_A_WORD, OF_STEP = 0.05, 0.001
"""A category is reported if its times differ by more than the first share of the longer one and by
more than the second share of the step."""


class Difference(Record):
    """A category in which the engines differ, in seconds."""

    category: StepCategory
    closed_s: float
    played_s: float
    quantity: str
    """Busy part, or waiting, that differs most."""
    closed_quantity_s: float
    played_quantity_s: float


class PricedStep(Record, eq=False):
    """The times of a layout's step, or the reasons why it has none."""

    refused: tuple[str, ...]
    time: StepTime | None = None
    """By the calibration itself, then by samples."""
    phases_s: Mapping[str, float]
    """Seconds of each phase by the calibration itself."""
    drawn_s: FloatArray | None = None
    """By the calibration itself, then in common draws, where these were priced along."""


class StepFigures(Record):
    """Time and utilization of a step."""

    step_time_s: float
    low_step_time_s: float
    """Lower end of the 80 % interval of the step time."""
    high_step_time_s: float
    """Upper end of the 80 % interval."""
    exposed_s: Mapping[str, float]
    """Category -> seconds; they add up to `step_time_s`."""
    hidden_s: Mapping[str, float]
    """Category -> seconds beside compute; empty for an engine that does not report them."""
    mfu: float
    mfu_headline: float | None
    """MFU over the rate of the data sheet's headline; None where no headline is known."""
    hfu: float
    device_s_per_microbatch: float | None = None
    """As in `StepTime`, of the closed form only."""
    optimizer_s: float | None = None
    """As in `StepTime`, of the closed form only."""

    def paced(self, pace: float) -> StepFigures:
        """The step at a multiple of its time, which all parts share."""
        device_s, optimizer_s = self.device_s_per_microbatch, self.optimizer_s
        return StepFigures(
            step_time_s=pace * self.step_time_s,
            low_step_time_s=pace * self.low_step_time_s,
            high_step_time_s=pace * self.high_step_time_s,
            exposed_s={name: pace * seconds for name, seconds in self.exposed_s.items()},
            hidden_s={name: pace * seconds for name, seconds in self.hidden_s.items()},
            mfu=self.mfu / pace,
            mfu_headline=None if self.mfu_headline is None else self.mfu_headline / pace,
            hfu=self.hfu / pace,
            device_s_per_microbatch=None if device_s is None else pace * device_s,
            optimizer_s=None if optimizer_s is None else pace * optimizer_s,
        )


class RankMemory(Record):
    """Memory of a rank on the worst stage: needed, available, and the chance to fit."""

    stage: str
    by_category: Mapping[MemoryCategory, float]
    total_bytes: float
    low_bytes: float
    """Lower end of the 80 % interval of `total_bytes`."""
    high_bytes: float
    """Upper end of the 80 % interval."""
    capacity_bytes: float
    reserve_bytes: float
    """Part of the capacity that the program cannot use."""
    fit_probability: float

    @property
    def available_bytes(self) -> float:
        return self.capacity_bytes - self.reserve_bytes

    @classmethod
    def of(
        cls, held: StepMemory, interval: tuple[float, float], fit_probability: float
    ) -> RankMemory:
        """Memory of the one layout of a scalar program."""
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
    """Mean of some steps, with the given ends of its interval."""
    time_s = mean(step.step_time_s for step in steps)

    # Weighted by time: FLOP of all steps over the peak of all their seconds.
    def utilization(of: str) -> float:
        return mean(getattr(step, of) * step.step_time_s for step in steps) / time_s

    first = steps[0]
    known = first.device_s_per_microbatch is not None
    return StepFigures(
        step_time_s=time_s,
        low_step_time_s=ends[0],
        high_step_time_s=ends[1],
        exposed_s=_mean_of_each([step.exposed_s for step in steps]),
        hidden_s=_mean_of_each([step.hidden_s for step in steps]),
        mfu=utilization("mfu"),
        mfu_headline=None if first.mfu_headline is None else utilization("mfu_headline"),
        hfu=utilization("hfu"),
        device_s_per_microbatch=mean(step.device_s_per_microbatch or 0.0 for step in steps)
        if known
        else None,
        optimizer_s=mean(step.optimizer_s or 0.0 for step in steps) if known else None,
    )


def mean_memory(held: Sequence[RankMemory]) -> RankMemory:
    """Mean memory of some layouts, each on its worst stage."""
    return replace(
        held[0],
        by_category=_mean_of_each([memory.by_category for memory in held]),
        total_bytes=mean(memory.total_bytes for memory in held),
        low_bytes=mean(memory.low_bytes for memory in held),
        high_bytes=mean(memory.high_bytes for memory in held),
        fit_probability=mean(memory.fit_probability for memory in held),
    )


def mean(numbers: Iterable[float]) -> float:
    listed = list(numbers)
    return sum(listed) / len(listed)


def _mean_of_each(of: Sequence[Mapping[K, float]]) -> dict[K, float]:
    return {name: mean(part.get(name, 0.0) for part in of) for part in of for name in part}


class PhaseFigures(Record):
    """Time of one phase of a job's step, and a rank's memory meanwhile."""

    name: str
    step_time_s: float | None
    """Seconds; not part of the step's time for phases on nodes of their own."""
    memory: RankMemory | None


def mean_phases(each: Sequence[Sequence[PhaseFigures]]) -> tuple[PhaseFigures, ...]:
    """Mean of the phases of some layouts of a job."""
    return tuple(
        PhaseFigures(
            name=same[0].name,
            step_time_s=mean(phase.step_time_s or 0.0 for phase in same),
            memory=mean_memory([phase.memory for phase in same if phase.memory])
            if same[0].memory
            else None,
        )
        for same in zip(*each, strict=True)
    )


class Prediction(Record):
    """Training step in one layout: either `step`, or `reasons` why the layout cannot run."""

    step: StepFigures | None = None
    """The closed form."""
    played: StepFigures | None = None
    """The same step played by the emulator, if asked for."""
    unplayed: tuple[StepCategory, ...] = ()
    """Categories of `played` priced in closed form all the same, such as compute without a tile
    emulator."""
    differences: tuple[Difference, ...] = ()
    """Categories in which `step` and `played` differ."""
    timeline: Timeline | None = None
    """Events of the played step, if asked for."""
    memory: RankMemory | None = None
    """Memory of the phase that needs most; known for every valid layout."""
    phases: tuple[PhaseFigures, ...] = ()
    """Phases of a job that has several."""
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def paced(self, pace: float) -> Prediction:
        """The prediction at a multiple of its times; a timeline stays as it was played."""
        if pace == 1.0:
            return self
        return replace(
            self,
            step=self.step and self.step.paced(pace),
            played=self.played and self.played.paced(pace),
            differences=tuple(
                replace(
                    difference,
                    closed_s=pace * difference.closed_s,
                    played_s=pace * difference.played_s,
                    closed_quantity_s=pace * difference.closed_quantity_s,
                    played_quantity_s=pace * difference.played_quantity_s,
                )
                for difference in self.differences
            ),
            phases=tuple(
                replace(phase, step_time_s=phase.step_time_s and pace * phase.step_time_s)
                for phase in self.phases
            ),
        )


def differences(
    closed_s: Mapping[StepCategory, float],
    played_s: Mapping[StepCategory, float],
    closed_busy: Busy,
    played_busy: Busy,
) -> tuple[Difference, ...]:
    """Categories in which a played step differs, each with the quantity that differs most."""
    step_s = sum(closed_s.values())
    differing = []
    for name in STEP_CATEGORIES:
        a, b = closed_s.get(name, 0.0), played_s.get(name, 0.0)
        if abs(b - a) <= max(WORTH_A_WORD * max(a, b), OF_STEP * step_s):
            continue
        quantity, first, second = _most(a, b, closed_busy.get(name, {}), played_busy.get(name, {}))
        differing.append(
            Difference(
                category=name,
                closed_s=a,
                played_s=b,
                quantity=quantity,
                closed_quantity_s=first,
                played_quantity_s=second,
            )
        )
    return tuple(differing)


def _most(
    closed_s: float, played_s: float, closed: Mapping[str, float], played: Mapping[str, float]
) -> tuple[str, float, float]:
    """Quantity that differs most among those of both engines: a busy part, or waiting."""
    pairs = {name: (closed[name], played[name]) for name in closed if name in played}
    first, second = (
        max((pair[engine] for pair in pairs.values()), default=0.0) for engine in (0, 1)
    )
    pairs[WAITING] = _beyond(closed_s, first), _beyond(played_s, second)
    name = max(pairs, key=lambda pair: abs(pairs[pair][1] - pairs[pair][0]))
    return name, *pairs[name]


def _beyond(whole_s: float, busiest_s: float) -> float:
    # Waiting: time beyond the busiest part.
    rest_s = whole_s - busiest_s
    return rest_s if rest_s > ROUNDING * whole_s else 0.0
