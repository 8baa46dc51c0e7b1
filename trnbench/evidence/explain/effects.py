"""Effects of every cause on measured steps: predictions with the cause over those without.

Magnitudes cover the usual range. Ways that change only calibration numbers are priced all at once,
as rows of samples; ways that change links at a few magnitudes, interpolated between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from trnbench.evidence.explain.causes import (
    Apart,
    Cause,
    CauseList,
    CauseWay,
    Counted,
    ListedWay,
    OtherOrder,
    Scaled,
    Setting,
    SlowLink,
    SlowNode,
    TimedOtherwise,
)
from trnbench.evidence.explain.change import Magnitude, MixedLayouts, Ran, Sites
from trnbench.evidence.explain.observed import ObservedStep, Quantity, StepFigure
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Model
from trnbench.predict.fit import LayoutMemory
from trnbench.predict.prices import prices_of, unpriced
from trnbench.predict.ranges import Range, numbers_by_key, replaced
from trnbench.predict.sampling import interval
from trnbench.predict.setup import SetupMemo, TrainSetup
from trnbench.program.slots import StepCategory
from trnbench.program.step import StepProgram, training_step

_REACH = 3.0
"""Range of the magnitudes, in standard deviations from the median.

Within two, memory at a quarter of its speed was beyond the range, and told as other causes.
"""
_PRICED, _READ = 5, 25
"""Magnitudes that are priced where links change, and that are looked at of every way."""
_LEAST = 0.004
"""Relative shift below which a cause has no effect."""


class Effect(Record, eq=False):
    """A cause at one magnitude."""

    cause: Cause
    way: CauseWay
    magnitude: Magnitude
    share: float
    """Share of the cause's weight."""
    shift: FloatArray
    """Log of each figure with the cause over without."""


class Pricer(State, kw_only=False):
    """Prices of hypothetical runs; each program and placed cluster is made once."""

    sites: Sites = field(default_factory=Sites)
    _programs: Memo[tuple[Model, Layout], StepProgram] = field(default_factory=Memo)
    _held: Memo[tuple[Model, SetupMemo, Layout], Range] = field(default_factory=Memo)

    def figures(self, steps: Sequence[ObservedStep]) -> tuple[StepFigure, ...]:
        """Every measured figure that can be predicted."""
        return tuple(figure for step in steps for figure in self._figures(step))

    def effects(self, causes: CauseList, figures: Sequence[StepFigure]) -> tuple[Effect, ...]:
        """Effects of all causes at all magnitudes, without negligible ones."""
        tried = [(cause, way, magnitudes_of(way, usual)) for cause, way, usual in causes.ways()]
        flat = [(way, magnitude) for _, way, several in tried for magnitude in several]
        shifts = self.shifts(figures, flat)
        found, first = [], 0
        for cause, way, several in tried:
            own = shifts[first : first + len(several)]
            first += len(several)
            ways = sum(one is cause for one, _, _ in tried)
            found += [
                Effect(cause=cause, way=way, magnitude=m, share=share / ways, shift=shift)
                for m, share, shift in _read(way, several, own)
            ]
        return tuple(found)

    def shifts(
        self, figures: Sequence[StepFigure], changes: Sequence[tuple[CauseWay, Magnitude]]
    ) -> FloatArray:
        """Log of each figure with a change over without [change, figure].

        NaN for an impossible run.
        """
        found = np.full((len(changes), len(figures)), np.nan)
        by_step: dict[ObservedStep, list[int]] = {}
        for place, figure in enumerate(figures):
            by_step.setdefault(figure.step, []).append(place)
        for step, places in by_step.items():
            priced = self.priced(step, [self.sites.changed(step.ran, way, m) for way, m in changes])
            for place in places:
                values = priced[figures[place].quantity]
                # Logs, so that effects of several causes can be compared across figures.
                found[:, place] = np.log(values / figures[place].predicted)
        return found

    def priced(
        self, step: ObservedStep, rans: Sequence[Ran | None]
    ) -> Mapping[Quantity, FloatArray]:
        """Measured quantities of a step under hypothetical runs; NaN for impossible ones."""
        found = {quantity: np.full(len(rans), np.nan) for quantity in step.measured}
        alike: dict[tuple[TrainSetup, MixedLayouts], list[int]] = {}
        for place, ran in enumerate(rans):
            if ran is not None:
                alike.setdefault((ran.setup, ran.parts), []).append(place)
        for (setup, parts), places in alike.items():
            several = [ran for place in places if (ran := rans[place]) is not None]
            efficiency = _sampled(setup.efficiency, [ran.numbers for ran in several])
            priced = self._priced(setup, parts, efficiency, step.measured)
            if priced is None:
                continue
            factors = np.array([ran.factor for ran in several])
            least_s = np.array([ran.least_s for ran in several])
            for quantity, values in priced.items():
                is_step = quantity == "step"
                found[quantity][places] = (
                    np.maximum(values * factors, least_s) if is_step else values
                )
        return found

    def terms(self, ran: Ran) -> Mapping[StepCategory, float]:
        """Seconds of a predicted step by category."""
        found: dict[StepCategory, float] = {}
        for share, layout in ran.parts:
            program = self._program(ran.setup.model, layout)
            time = prices_of(ran.setup, program, ran.setup.efficiency).time()
            for name, seconds in time.by_category.items():
                found[name] = found.get(name, 0.0) + share * float(seconds.flat[0])
        return found

    def _figures(self, step: ObservedStep) -> list[StepFigure]:
        ran = step.ran
        nominal = self._priced(ran.setup, ran.parts, ran.setup.efficiency, step.measured)
        sampled = self._priced(ran.setup, ran.parts, ran.setup.samples, step.measured)
        if nominal is None or sampled is None:
            return []
        found = []
        for quantity, measured in step.measured.items():
            values = np.atleast_1d(sampled[quantity])
            ends = interval(values, ran.setup.spread_in(ran.parts[0][1]))
            if quantity == "memory":
                ends = self._held_ends(ran)
            found.append(
                StepFigure(
                    step=step,
                    quantity=quantity,
                    measured=measured,
                    predicted=float(nominal[quantity].flat[0]),
                    low=ends[0],
                    high=ends[1],
                    samples=np.log(values[1:-1]) if len(values) > 1 else np.log(values),
                )
            )
        return found

    def _priced(
        self,
        setup: TrainSetup,
        parts: MixedLayouts,
        efficiency: TrainingEfficiency,
        wanted: Mapping[Quantity, float],
    ) -> dict[Quantity, FloatArray] | None:
        """Figures of a step, by samples of the efficiency; None for an impossible run."""
        found: dict[Quantity, FloatArray] = {}
        for share, layout in parts:
            program = self._program(setup.model, layout)
            if program.refusals():
                return None
            prices = prices_of(setup, program, efficiency)
            if unpriced(prices):
                return None
            time = prices.time()
            parts_s: dict[Quantity, FloatArray] = {
                "step": time.time_s,
                "micro-batch": time.device_s_per_microbatch,
                "optimizer": time.optimizer_s,
            }
            if "memory" in wanted:
                parts_s["memory"] = np.full_like(time.time_s, self._memory(setup, layout).value)
            for quantity in wanted:
                found[quantity] = found.get(quantity, 0.0) + share * parts_s[quantity]
        return found

    def _program(self, model: Model, layout: Layout) -> StepProgram:
        return self._programs.of((model, layout), lambda: training_step(model, layout))

    def _memory(self, setup: TrainSetup, layout: Layout) -> Range:
        """Memory of rank 0, as in logs."""
        known = LayoutMemory(
            program=self._program(setup.model, layout),
            platform=setup.platform,
            stack=setup.stack,
            logical_size=setup.logical_size,
        )
        key = (setup.model, setup.memo, layout)
        return self._held.of(key, lambda: known.held("first"))

    def _held_ends(self, ran: Ran) -> tuple[float, float]:
        held = [(share, self._memory(ran.setup, layout)) for share, layout in ran.parts]
        low = sum(share * one.low for share, one in held)
        return low, sum(share * one.high for share, one in held)


def magnitudes_of(way: CauseWay, usual: Range | None) -> tuple[Magnitude, ...]:
    """Priced magnitudes of a way: its alternatives, or those of its usual range."""
    match way:
        case Setting():
            return (*way.to, *(("x", by) for by in way.times))
        case OtherOrder():
            return way.to
        case Apart():
            return way.nodes
        case Counted():
            both = tuple(("time", name) for name in way.by)
            return (*way.by, *both, *(("x", by) for by in way.times))
    assert usual is not None
    found = usual.at(_deviations(way))
    if isinstance(way, Scaled | SlowLink | SlowNode | TimedOtherwise):
        # What lowers a number does not raise it, and the other way round.
        found = np.minimum(found, 1) if usual.value < 1 else np.maximum(found, 1)
    return tuple(found.tolist())


def _deviations(way: CauseWay) -> FloatArray:
    return np.linspace(-_REACH, _REACH, _PRICED if isinstance(way, SlowLink) else _READ)


def _read(
    way: CauseWay, several: Sequence[Magnitude], shifts: FloatArray
) -> list[tuple[Magnitude, float, FloatArray]]:
    """Magnitudes with their shares and shifts: the priced ones, or interpolated ones between."""
    # A step that could not have run so ran as said.
    shifts = np.nan_to_num(shifts)
    if isinstance(way, ListedWay):
        found = [(one, 1 / len(several), shift) for one, shift in zip(several, shifts, strict=True)]
    else:
        priced = _deviations(way)
        fine = np.linspace(-_REACH, _REACH, _READ)
        likely = np.array([NormalDist().pdf(one) for one in fine])
        numbers = np.interp(fine, priced, np.array(several, dtype=float)).tolist()
        read = np.stack([np.interp(fine, priced, column) for column in shifts.T], axis=1)
        found = list(zip(numbers, likely / likely.sum(), read, strict=True))
    return [one for one in found if np.abs(one[2]).max() >= _LEAST]


def _sampled(
    efficiency: TrainingEfficiency, several: Sequence[Mapping[str, float]]
) -> TrainingEfficiency:
    """The efficiency with one sample per set of changed numbers."""
    keys = sorted({key for numbers in several for key in numbers})
    if not keys:
        return efficiency
    own = numbers_by_key(efficiency)
    return replaced(
        efficiency,
        {key: np.array([numbers.get(key, own[key]) for numbers in several]) for key in keys},
    )
