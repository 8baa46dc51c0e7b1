"""One training step in a settled layout: legal or not, what it holds, what it takes, how surely."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from trnbench.analytic.step.memory import memory
from trnbench.analytic.step.time import StepPrices, step_prices
from trnbench.analytic.step.utilization import utilization
from trnbench.arrays import FloatArray
from trnbench.calibration.training_stack import TrainingEfficiency
from trnbench.mapping.rank_groups import platform_answer
from trnbench.predict.common_draws import CommonDraws, drawn_efficiency, residual_of
from trnbench.predict.fit import fit_probability
from trnbench.predict.prediction import Prediction, RankMemory, StepFigures
from trnbench.predict.sampling import interval
from trnbench.predict.setup import TrainSetup
from trnbench.program.legality import Reason
from trnbench.program.step import StepProgram, training_step
from trnbench.workload.layout import Layout

if TYPE_CHECKING:
    from trnbench.emulate.schedule.disturbance import Straggler


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """How a step is to be played; with a `seed`, nodes are as late as drawn, not as expected."""

    seed: int | None = None
    stragglers: tuple[Straggler, ...] = ()
    timeline: bool = False


def predict(
    setup: TrainSetup,
    layout: Layout,
    *,
    playing: Playing | None = None,
) -> Prediction:
    """Return the time and memory of a step in a layout, or why it cannot run; played if asked."""
    program = training_step(setup.model, layout)
    refused, warnings = _legality(setup, program)
    if refused:
        return Prediction(reasons=refused, warnings=warnings)
    held = memory(
        program,
        setup.platform,
        fragmentation_ratio=setup.stack.fragmentation,
        logical_size=setup.logical_size,
    )
    too_much = held.refusal()
    prices = prices_of(setup, program, setup.samples)
    found = Prediction(
        memory=RankMemory.of(
            held,
            fit_probability(program, setup.platform, setup.stack, logical_size=setup.logical_size),
        ),
        reasons=(*((too_much,) if too_much else ()), *unpriced(prices)),
        warnings=warnings,
    )
    if found.reasons:
        return found
    found = replace(found, step=_closed_form(setup, prices))
    return found if playing is None else _played(setup, program, found, playing)


def drawn_times_s(setup: TrainSetup, layout: Layout, draws: CommonDraws, *, row: str) -> FloatArray:
    """Return the step time in common draws, seconds; `row` names what is of this step alone."""
    program = training_step(setup.model, layout)
    times_s = prices_of(setup, program, drawn_efficiency(setup.efficiency, draws)).time().time_s
    residual = residual_of(setup.stack, setup.measured or setup.stack, setup.spread)
    return np.asarray(times_s * residual.factors(draws, row))


def prices_of(
    setup: TrainSetup, program: StepProgram, efficiency: TrainingEfficiency | None = None
) -> StepPrices:
    """Return the prices of a program's steps, by another efficiency than the set-up's if given."""
    return step_prices(
        program,
        setup.platform,
        efficiency or setup.efficiency,
        setup.collectives,
        logical_size=setup.logical_size,
        engines=setup.memo.engines,
    )


def unpriced(prices: StepPrices) -> tuple[str, ...]:
    """Return in words what the chip cannot compute or the communication stack cannot serve."""
    return (*prices.reasons, *_words(prices.refused, prices.program))


def _legality(setup: TrainSetup, program: StepProgram) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return in words why the layout is refused, and what to be warned of."""
    platform = platform_answer(
        setup.platform,
        program.grid,
        nodes=setup.nodes,
        logical_size=setup.logical_size,
        whole_nodes=False,
    )
    refused = (*program.refusals(), *_words(platform.refused, program))
    warnings = [*_words(platform.warned, program), *_unsupported(setup, program.layout)]
    ranks = int(program.grid.ranks("world"))
    if ranks < setup.ranks:
        warnings.append(f"{setup.ranks - ranks} of {setup.ranks} ranks stay idle")
    return refused, tuple(warnings)


def _words(reasons: Iterable[Reason], program: StepProgram) -> tuple[str, ...]:
    at = {name: int(value) for name, value in program.grid.arrays.items()}
    return tuple(reason.words(at) for reason in reasons if reason.broken.any())


def _unsupported(setup: TrainSetup, layout: Layout) -> list[str]:
    """Return in words what is asked beyond what the stack's software does, and where."""
    supports, instance = setup.stack.supports, setup.platform.instance.name
    asked = {
        f"schedule {layout.schedule}": layout.pp > 1 and layout.schedule not in supports.schedules,
        f"recompute {layout.recompute}": layout.recompute not in supports.recompute,
        f"ZeRO {layout.zero}": layout.zero not in supports.zero,
        "sequence parallelism": layout.sequence_parallel and not supports.sequence_parallel,
        "context parallelism": layout.cp > 1 and not supports.context_parallel,
        "expert parallelism": layout.ep > 1 and not supports.expert_parallel,
    }
    found = [f"{setup.stack.name} does not do {what}" for what, beyond in asked.items() if beyond]
    if instance not in setup.stack.instances:
        found.append(f"{setup.stack.name} was not made for {instance}")
    return found


def _closed_form(setup: TrainSetup, prices: StepPrices) -> StepFigures:
    """Return the step in closed form, from prices of the calibration and of samples behind it."""
    step = prices.time()
    times_s = np.atleast_1d(step.time_s)
    return _figures(
        setup,
        prices.program,
        interval(times_s, setup.spread),
        {name: float(seconds.flat[0]) for name, seconds in step.by_category.items()},
        time_s=float(times_s[0]),
        hidden_s={name: float(seconds.flat[0]) for name, seconds in step.hidden.items()},
    )


def _played(
    setup: TrainSetup, program: StepProgram, found: Prediction, playing: Playing
) -> Prediction:
    """Return the prediction with the played step, which is as unsure as the closed form."""
    from trnbench.predict.played import played_step

    played = played_step(
        prices_of(setup, program),
        jitter_seed=playing.seed,
        stragglers=playing.stragglers,
        with_timeline=playing.timeline,
    )
    closed = found.step
    assert closed is not None
    ratio = played.time_s / closed.step_time_s
    step = _figures(
        setup,
        program,
        (closed.low_step_time_s * ratio, closed.high_step_time_s * ratio),
        {name: float(seconds) for name, seconds in played.by_category.items()},
        time_s=played.time_s,
    )
    return replace(found, played=step, timeline=played.timeline)


def _figures(
    setup: TrainSetup,
    program: StepProgram,
    ends_s: tuple[float, float],
    exposed_s: Mapping[str, float],
    *,
    time_s: float,
    hidden_s: Mapping[str, float] | None = None,
) -> StepFigures:
    used = utilization(program, setup.platform, np.array(time_s), logical_size=setup.logical_size)
    headline = float(used.mfu_headline)
    return StepFigures(
        step_time_s=time_s,
        low_step_time_s=ends_s[0],
        high_step_time_s=ends_s[1],
        exposed_s=exposed_s,
        hidden_s=hidden_s or {},
        mfu=float(used.mfu),
        mfu_headline=None if math.isnan(headline) else headline,
        hfu=float(used.hfu),
    )
