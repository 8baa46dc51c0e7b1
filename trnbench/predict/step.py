"""One training step in a settled layout: valid or not, memory, time, uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trnbench.engines.analytic.step.job_time import JobPrices
from trnbench.engines.analytic.step.memory import StepMemory, memory
from trnbench.engines.analytic.step.time import StepTime
from trnbench.engines.analytic.step.utilization import check_peak, utilization
from trnbench.facts.arrays import FloatArray, median, some
from trnbench.facts.calibration.supports import Support
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.machine.layout_rules import (
    OF_EXPERTS,
    OUTER,
    group_reasons,
    platform_refusals,
    platform_warnings,
)
from trnbench.predict.common_draws import CommonDraws, residual_of
from trnbench.predict.fit import LayoutMemory, MemoryDraws
from trnbench.predict.graph_size import StepGraphs
from trnbench.predict.job_rates import host_states_refusal, host_warnings
from trnbench.predict.prediction import (
    Busy,
    PhaseFigures,
    Prediction,
    RankMemory,
    StepFigures,
    mean_memory,
    mean_phases,
    mean_step,
)
from trnbench.predict.prices import drawn_s, priced_step, prices_of, program_of, programs_of
from trnbench.predict.sampling import interval
from trnbench.predict.setup import TrainSetup, refusal, warning
from trnbench.program.job_passes import TRAIN
from trnbench.program.job_phases import phases_of
from trnbench.program.reasons import Reason, first_causes
from trnbench.program.slots import STEP_CATEGORIES, StepCategory
from trnbench.program.step import StepProgram, host_states_bytes

if TYPE_CHECKING:
    from trnbench.engines.emulate.schedule.times import Straggler


class Playing(Record):
    """Options of a played step."""

    seed: int | None = None
    """Draws the delays of nodes; None plays expected delays."""
    stragglers: tuple[Straggler, ...] = ()
    """Nodes that are slower than others."""
    timeline: bool = False


def predict(setup: TrainSetup, layout: Layout, *, playing: Playing | None = None) -> Prediction:
    """Time and memory of a step in a layout, or the reasons why it cannot run; played if asked."""
    return _predicted(setup, layout, playing).paced(setup.pace)


def _predicted(setup: TrainSetup, layout: Layout, playing: Playing | None) -> Prediction:
    # Rules come first: a layout that breaks one has neither memory nor prices.
    setup = setup.training(layout)
    program = program_of(setup.model, layout)
    refused, warnings = _legality(setup, program)
    if refused:
        return Prediction(reasons=refused, warnings=warnings)
    phases = phases_of(program)
    warnings = (*warnings, *host_warnings(setup, phases))
    held = [_held(setup, phase.program) for phase in phases]
    on_host = host_states_bytes(program, setup.platform.ranks(setup.logical_size))
    away = layout.activation_offload is not None
    lacking = host_states_refusal(setup.platform.instance, float(on_host), activations=away)
    # Of equal phases the last one: in most jobs that is the phase that trains.
    peak = max(reversed(held), key=lambda pair: pair[0].total_bytes)[0]
    priced = priced_step(setup, layout)
    prediction = Prediction(
        memory=replace(peak, fit_probability=min(one.fit_probability for one, _ in held)),
        reasons=(
            *(
                f"phase {phase.name}: {why}" if len(phases) > 1 else why
                for phase, (_, why) in zip(phases, held, strict=True)
                if why
            ),
            *((lacking,) if lacking else ()),
            *priced.refused,
        ),
        warnings=warnings,
        phases=tuple(
            PhaseFigures(name=phase.name, step_time_s=None, memory=rank_memory)
            for phase, (rank_memory, _) in zip(phases, held, strict=True)
        )
        if len(phases) > 1
        else (),
    )
    if prediction.reasons or priced.time is None:
        return prediction
    # An engine that fits on no node has infinite time.
    if not np.isfinite(sum(priced.phases_s.values())):
        engine = f"an engine of tp={layout.tp} ranks does not fit on the nodes that write answers"
        return replace(prediction, reasons=(engine,))
    by_name = {phase.name: phase.memory for phase in prediction.phases}
    prediction = replace(
        prediction,
        step=_closed_form(setup, program, priced.time),
        phases=tuple(
            PhaseFigures(name=name, step_time_s=time_s, memory=by_name.get(name))
            for name, time_s in priced.phases_s.items()
            if prediction.phases
        ),
    )
    return (
        prediction
        if playing is None
        else _played(setup, prices_of(setup, program), prediction, playing)
    )


def fits(setup: TrainSetup, layout: Layout) -> bool:
    """True when a layout is valid and its memory suffices, without a time."""
    setup = setup.training(layout)
    program = program_of(setup.model, layout)
    if refusals(setup, program):
        return False
    return all(_memory(setup, phase.program).feasible for phase in phases_of(program))


def first_that_fits(setups: Sequence[TrainSetup], layouts: Sequence[Layout]) -> int | None:
    """Place of the first layout that is valid and has memory enough on its set-up.

    Layouts and set-ups differ in nothing but degrees and nodes, so one look at memory serves all.
    """
    if not layouts:
        return None
    setup = setups[0].training(layouts[0])
    phases = phases_of(programs_of(setup.model, layouts))
    held = np.all([_memory(setup, phase.program).feasible for phase in phases], axis=0)
    places = np.flatnonzero(np.broadcast_to(held, len(layouts))).tolist()
    return next((place for place in places if fits(setups[place], layouts[place])), None)


def _held(setup: TrainSetup, program: StepProgram) -> tuple[RankMemory, str | None]:
    """Memory of a rank in a phase, and the reason why that does not fit."""
    held, drawn = _memory(setup, program), layout_memory(setup, program)
    ends = drawn.held()
    return (
        RankMemory.of(held, (ends.low, ends.high), drawn.fit_probability),
        held.refusal(),
    )


def layout_memory(setup: TrainSetup, program: StepProgram) -> LayoutMemory:
    """Memory of a program's layout by the numbers of a set-up."""

    def drawn() -> MemoryDraws:
        return MemoryDraws.of(setup.platform, setup.stack, setup.logical_size)

    return LayoutMemory(
        program=program,
        platform=setup.platform,
        stack=setup.stack,
        logical_size=setup.logical_size,
        draws=setup.memo.memory.of(setup.logical_size, drawn),
    )


def _memory(setup: TrainSetup, program: StepProgram) -> StepMemory:
    return memory(
        program,
        setup.platform,
        fragmentation_ratio=setup.stack.fragmentation,
        overheads=setup.stack.memory,
        logical_size=setup.logical_size,
    )


def predict_between(
    setup: TrainSetup, layouts: Sequence[Layout], *, playing: Playing | None = None
) -> Prediction:
    """Mean of predictions: a step that runs an equal share of its layers in each layout.

    Ends of the interval are those of the mean of the samples, as for measured rows of that kind.
    """
    parts = [predict(setup, layout, playing=playing) for layout in layouts]
    first = next((part for part in parts if part.reasons), parts[0])
    if first.reasons or len(parts) == 1:
        return first
    # Samples are averaged before the quantiles: layouts share what is uncertain, so the ends of
    # their own intervals must not be averaged.
    steps = [part.step for part in parts if part.step is not None]
    played = [part.played for part in parts if part.played is not None]
    priced = [priced_step(setup.training(layout), layout).time for layout in layouts]
    times_s = np.mean([np.atleast_1d(time.time_s) for time in priced if time is not None], axis=0)
    ends = interval(setup.pace * times_s, setup.spread_in(layouts[0]))
    closed = mean_step(steps, ends)
    # The played step is as uncertain as the closed form: its interval has the same ratios.
    ratio = mean_step(played, ends).step_time_s / closed.step_time_s if played else 1.0
    return replace(
        first,
        step=closed,
        played=mean_step(played, (ratio * ends[0], ratio * ends[1])) if played else None,
        memory=mean_memory([part.memory for part in parts if part.memory is not None]),
        phases=mean_phases([part.phases for part in parts]),
        warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
        timeline=None,
        differences=(),
    )


def drawn_times_s(setup: TrainSetup, layout: Layout, draws: CommonDraws, *, row: str) -> FloatArray:
    """Seconds of a step in common draws; `row` names the part of the draws that is not shared."""
    setup = setup.training(layout)
    times_s = drawn_s(setup, layout, draws)
    spread = setup.spread_in(layout)
    factors = residual_of(setup.stack, setup.measured or setup.stack, spread).factors(draws, row)
    time_s, *_, least_s = times_s = setup.pace * np.broadcast_to(times_s, draws.count + 2)
    # The residual was observed about the estimate, so it is the middle of what numbers tell.
    about_s = times_s[1:-1] * (time_s / median(times_s[1:-1]))
    return np.asarray(np.maximum(about_s * factors, least_s))


def refusals(
    setup: TrainSetup, program: StepProgram, beyond: Sequence[Support] | None = None
) -> tuple[str, ...]:
    """Reasons why the layout is refused; `beyond` is `_beyond`, if the caller has it."""
    broken_rules = platform_refusals(
        setup.platform,
        program.grid,
        nodes=setup.nodes,
        logical_size=setup.logical_size,
        whole_nodes=False,
    )
    groups = group_reasons(
        setup.platform, program.grid, (*OUTER, *OF_EXPERTS), logical_size=setup.logical_size
    )
    broken = first_causes((*program.reasons, *broken_rules, *groups))
    found = _beyond(setup, program) if beyond is None else beyond
    refused = (one for one in found if _is_refused(setup, one))
    return (*_words(broken, program), *(refusal(setup.stack, one) for one in refused))


def _beyond(setup: TrainSetup, program: StepProgram) -> tuple[Support, ...]:
    """Features of the layout that the stack's software is not known to run."""
    return setup.beyond(PartialLayout.of(program.layout))


def _is_refused(setup: TrainSetup, support: Support) -> bool:
    return support.status == "refused" and not setup.assume_supported


def _legality(setup: TrainSetup, program: StepProgram) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Reasons why the layout is refused, and warnings."""
    beyond = _beyond(setup, program)
    refused = refusals(setup, program, beyond)
    warned = platform_warnings(setup.platform, program.grid, logical_size=setup.logical_size)
    warnings = [*_words(warned, program)]
    warnings += (warning(setup.stack, one) for one in beyond if not _is_refused(setup, one))
    warnings += setup.taken_over
    if setup.software is not None and setup.software.warning is not None:
        warnings.append(setup.software.warning)
    warnings += _uneven_chunks(setup, program.layout)
    compiler, software = setup.graph_compiler, setup.software
    if compiler and software and software.whole_graphs and not refused:
        graphs = StepGraphs(program=program, chip=setup.platform.chip, compiler=compiler)
        size = graphs.largest()
        warnings += filter(None, [size.warning(compiler, program)])
    ranks = int(program.grid.ranks("world"))
    if ranks < setup.ranks:
        warnings.append(f"{setup.ranks - ranks} of {setup.ranks} ranks stay idle")
    return refused, tuple(warnings)


def _uneven_chunks(setup: TrainSetup, layout: Layout) -> list[str]:
    transformer, chunks = setup.model.transformer, int(layout.pp * layout.vpp)
    if transformer is None or layout.vpp == 1 or transformer.layers % chunks == 0:
        return []
    return [
        f"{transformer.layers} layers do not divide into {layout.pp} x {layout.vpp} chunks; "
        "predicted as if they did. Megatron needs --pipeline-model-parallel-layout"
    ]


def _words(reasons: Iterable[Reason], program: StepProgram) -> tuple[str, ...]:
    at = {name: int(value) for name, value in program.grid.arrays.items()}
    return tuple(reason.words(at) for reason in reasons if some(reason.broken))


def _closed_form(setup: TrainSetup, program: StepProgram, step: StepTime) -> StepFigures:
    """The step in closed form, from times by the calibration and, in further rows, by samples."""
    times_s = np.atleast_1d(step.time_s)
    figures = _figures(
        setup,
        program,
        interval(times_s, setup.spread_in(program.layout)),
        {name: float(seconds.flat[0]) for name, seconds in step.by_category.items()},
        time_s=float(times_s[0]),
        hidden_s={name: float(seconds.flat[0]) for name, seconds in step.hidden.items()},
    )
    return replace(
        figures,
        device_s_per_microbatch=float(step.device_s_per_microbatch.flat[0]),
        optimizer_s=float(step.optimizer_s.flat[0]),
    )


def _played(
    setup: TrainSetup, prices: JobPrices, prediction: Prediction, playing: Playing
) -> Prediction:
    """The prediction with the played step, which is as uncertain as the closed form.

    Phases of a job are played one after the other; generation of answers is not played.
    """
    from trnbench.engines.analytic.step.utilization import busy
    from trnbench.engines.emulate.step.play import Disturbance
    from trnbench.predict.played import played_step
    from trnbench.predict.prediction import differences

    parts = {
        phase.name: played_step(
            setup,
            phase.program,
            Disturbance(seed=playing.seed, stragglers=playing.stragglers),
            with_timeline=playing.timeline and phase.name == TRAIN,
        )
        for phase, _ in prices.phases
    }
    closed, played = prediction.step, parts[TRAIN]
    assert closed is not None
    times = {phase.name: phase.times for phase, _ in prices.phases}
    by_category: dict[StepCategory, float] = {
        name: sum(times[p] * float(part.by_category.get(name, 0.0)) for p, part in parts.items())
        for name in STEP_CATEGORIES
    }
    by_category["generation"] = closed.exposed_s.get("generation", 0.0)
    fetched_s = sum(float(prices.fetched_s(phase)) for phase, _ in prices.phases)
    by_category["host"] += fetched_s
    time_s = sum(times[p] * part.time_s for p, part in parts.items()) + fetched_s
    time_s += by_category["generation"]
    # Ends of the interval keep their ratio to the step time.
    ratio = time_s / closed.step_time_s
    step = _figures(
        setup,
        prices.program,
        (closed.low_step_time_s * ratio, closed.high_step_time_s * ratio),
        {str(name): seconds for name, seconds in by_category.items()},
        time_s=time_s,
    )
    written: tuple[StepCategory, ...] = ("generation",) if prices.written else ()
    return replace(
        prediction,
        played=step,
        unplayed=(*played.unplayed, *written),
        differences=differences(
            {name: closed.exposed_s.get(name, 0.0) for name in STEP_CATEGORIES},
            by_category,
            _added([(phase.times, busy(one)) for phase, one in prices.phases]),
            _added(
                [
                    (times[p], {name: run.busy for name, run in part.busy.items()})
                    for p, part in parts.items()
                ]
            ),
        ),
        timeline=played.timeline,
    )


def _added(each: Sequence[tuple[int, Busy]]) -> Busy:
    totals: dict[StepCategory, dict[str, float]] = {}
    for times, busy_s in each:
        for category, parts in busy_s.items():
            sums = totals.setdefault(category, {})
            for part, seconds in parts.items():
                sums[part] = sums.get(part, 0.0) + times * seconds
    return totals


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
    check_peak(float(used.mfu), setup.stack.provenance.path or setup.stack.name)
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
