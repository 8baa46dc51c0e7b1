"""One training step in a settled layout: legal or not, what it holds, what it takes, how surely."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from trnbench.analytic.memory import StepMemory, memory
from trnbench.analytic.step_collectives import Engines
from trnbench.analytic.step_time import StepPrices, step_prices
from trnbench.analytic.step_utilization import utilization
from trnbench.answers.train import MemoryAnswer, StepAnswer, TrainAnswer
from trnbench.app.train_request import TrainRequest
from trnbench.app.train_setup import TrainSetup
from trnbench.evidence.sampling import interval, sampled
from trnbench.mapping.rank_groups import platform_answer
from trnbench.program.legality import Reason
from trnbench.program.step import StepProgram, training_step
from trnbench.spec.training_stack import TrainingEfficiency
from trnbench.workload.layout import Layout

SAMPLES = 200
SAMPLE_SEED = 0


def settled_answers(
    setup: TrainSetup, blank: TrainAnswer, request: TrainRequest
) -> list[TrainAnswer]:
    """Return what a settled layout takes, by every engine, or why it cannot run."""
    program = training_step(setup.model, blank.layout.complete())
    refused, warnings = _legality(setup, program)
    blank = replace(blank, warnings=warnings)
    if refused:
        return _refused(blank, request, refused)
    held = memory(
        program,
        setup.platform,
        fragmentation_ratio=setup.stack.fragmentation,
        logical_size=setup.logical_size,
    )
    too_much = held.refusal()
    guesses = sampled(setup.efficiency, count=SAMPLES, seed=SAMPLE_SEED, median_first=True)
    engines: Engines = {}
    prices = _prices(setup, guesses, program, engines)
    refused = (
        *((too_much,) if too_much else ()),
        *prices.reasons,
        *_words(prices.refused, program),
    )
    blank = replace(blank, memory=_memory(held))
    if refused:
        return _refused(blank, request, refused)
    closed = _closed_form(setup, prices)
    answers = {"analytic": replace(blank, engine="analytic", step=closed)}
    if request.timeline or "emulate" in request.engines:
        single = _prices(setup, setup.efficiency, program, engines)
        answers["emulate"] = _played(setup, blank, closed, single, request)
        answers["analytic"] = replace(answers["analytic"], timeline=answers["emulate"].timeline)
    return [answers[engine] for engine in request.engines]


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
    warnings = [*_words(platform.warned, program), *_beyond(setup, program.layout)]
    ranks = int(program.grid.ranks("world"))
    if ranks < setup.ranks:
        warnings.append(f"{setup.ranks - ranks} of {setup.ranks} ranks stay idle")
    return refused, tuple(warnings)


def _words(reasons: Iterable[Reason], program: StepProgram) -> tuple[str, ...]:
    at = {name: int(value) for name, value in program.grid.arrays.items()}
    return tuple(reason.words(at) for reason in reasons if reason.broken.any())


def _refused(
    blank: TrainAnswer, request: TrainRequest, reasons: tuple[str, ...]
) -> list[TrainAnswer]:
    return [replace(blank, engine=engine, reasons=reasons) for engine in request.engines]


def _beyond(setup: TrainSetup, layout: Layout) -> list[str]:
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


def _memory(held: StepMemory) -> MemoryAnswer:
    return MemoryAnswer(
        stage=held.worst().role,
        by_category=held.by_category(),
        total_bytes=float(held.total_bytes),
        capacity_bytes=held.capacity_bytes,
        reserve_bytes=held.reserve_bytes,
    )


def _prices(
    setup: TrainSetup, efficiency: TrainingEfficiency, program: StepProgram, engines: Engines
) -> StepPrices:
    return step_prices(
        program,
        setup.platform,
        efficiency,
        setup.collectives,
        logical_size=setup.logical_size,
        engines=engines,
    )


def _closed_form(setup: TrainSetup, prices: StepPrices) -> StepAnswer:
    """Return the step in closed form, from prices of the calibration and of samples behind it."""
    step = prices.time()
    times_s = np.atleast_1d(step.time_s)
    time_s = float(times_s[0])
    low_s, high_s = interval(times_s[1:] if len(times_s) > 1 else times_s, setup.spread)
    return _step_answer(
        setup,
        prices.program,
        time_s,
        # The calibration itself need not lie at the middle of what its ranges allow.
        (min(low_s, time_s), max(high_s, time_s)),
        {name: float(seconds.flat[0]) for name, seconds in step.by_category.items()},
        {name: float(seconds.flat[0]) for name, seconds in step.hidden.items()},
    )


def _played(
    setup: TrainSetup,
    blank: TrainAnswer,
    closed: StepAnswer,
    prices: StepPrices,
    request: TrainRequest,
) -> TrainAnswer:
    """Return the step as the schedule emulator plays it, as unsure as the closed form."""
    from trnbench.app.train_play import played_step

    played = played_step(
        prices,
        jitter_seed=request.seed,
        stragglers=request.stragglers,
        with_timeline=request.timeline,
    )
    ratio = played.time_s / closed.step_time_s
    step = _step_answer(
        setup,
        prices.program,
        played.time_s,
        (closed.low_step_time_s * ratio, closed.high_step_time_s * ratio),
        {name: float(seconds) for name, seconds in played.by_category.items()},
        {},
    )
    return replace(blank, engine="emulate", step=step, timeline=played.timeline)


def _step_answer(
    setup: TrainSetup,
    program: StepProgram,
    time_s: float,
    ends_s: tuple[float, float],
    exposed_s: Mapping[str, float],
    hidden_s: Mapping[str, float],
) -> StepAnswer:
    used = utilization(program, setup.platform, np.array(time_s), logical_size=setup.logical_size)
    headline = float(used.mfu_headline)
    return StepAnswer(
        step_time_s=time_s,
        low_step_time_s=ends_s[0],
        high_step_time_s=ends_s[1],
        exposed_s=exposed_s,
        hidden_s=hidden_s,
        mfu=float(used.mfu),
        mfu_headline=None if math.isnan(headline) else headline,
        hfu=float(used.hfu),
    )
