"""`trnbench train`: one training step of a model on a cluster: does it fit, how long, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.engine import TrainEngine
from trnbench.cli.interrupts import Interrupts
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.names import completes
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.cli.run_options import LENGTH, PRICES, AssumeSupported, LogicalSize, Stack
from trnbench.errors import InputError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.parsing import whole

if TYPE_CHECKING:
    from trnbench.app.train_request import TrainCase, TrainRequest
    from trnbench.app.use_case import Engine
    from trnbench.cli.output import Output
    from trnbench.engines.emulate.schedule.timeline import Timeline
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.partial_layout import PartialLayout

STEPS = 100
"""Steps of a run with real numbers."""


@keeping(plots=True)
@takes_layout(run=(*LENGTH, *PRICES))
def train(
    out: Output,
    catalog: Catalog,
    *,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Model name (trnbench workload list models).",
            autocompletion=completes(("models",)),
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="INSTANCE[:NODES],...",
            help="Cluster, e.g. trn2.48xlarge:4.",
            autocompletion=completes(("instances",), several=True),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            help="Training suite (trnbench workload list training).",
            autocompletion=completes(("training",)),
        ),
    ] = None,
    run: Mapping[str, Any],
    layout: PartialLayout,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Knobs as this configuration has them: NxD Training, torchtitan, Megatron, "
            "Optimum Neuron, a Slurm script, or a folder of `launch`.",
        ),
    ] = None,
    stack: Stack = None,
    lnc: LogicalSize = None,
    assume_supported: AssumeSupported = False,
    engine: Annotated[
        TrainEngine,
        typer.Option(
            help="analytic, simulated (emulate), both, or with real numbers (functional)."
        ),
    ] = TrainEngine.ANALYTIC,
    steps: Annotated[
        int | None,
        typer.Option(
            parser=whole("--steps"),
            metavar="N",
            help="With --engine functional: steps to train; default: 100.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --engine functional: keep checkpoints here, continue from the newest.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="With --engine emulate: draw the delay of every node with this seed. "
            "With --engine functional: seed of weights, text and rounding; default: 0."
        ),
    ] = None,
    straggler: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE=FACTOR",
            help="A pipeline stage that takes FACTOR times as long: 0=1.2 (repeatable).",
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace of the schedule.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the schedule.")] = False,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory",
            help="Show the memory per rank of the worst stage over the step, and its peak.",
        ),
    ] = False,
) -> int:
    """Time one training step: does it fit, how fast, where do time and memory go, how sure is it.

    Degrees and modes that are not given are chosen: the fastest layout that fits. MFU counts
    model FLOP, with causal attention and nothing twice, over the tensor units' peak.

    With --tokens or --phase the whole run: each part's step, memory, days and cost, and all of it.

    With --engine functional a small text model is trained on emulated ranks, on generated text;
    degrees that are not given are 1.
    """
    from trnbench.app.train_request import inputs_of
    from trnbench.app.verbs import train as use_case

    if memory and plot:
        raise InputError("--memory has a chart of its own: give --plot or --memory, one of the two")
    if memory and engine is TrainEngine.BOTH:
        raise InputError("--memory shows one played step: give --engine analytic or emulate")
    if plot:
        out.refuse_plot()
    functional = engine is TrainEngine.FUNCTIONAL
    if not functional and (steps is not None or resume is not None):
        option = "--steps" if steps is not None else "--resume"
        raise InputError(f"{option} belongs to a run with real numbers: --engine functional")
    asked: dict[str, Any] = {
        "on": on if on is not None else (),
        "suite": suite,
        "config": config,
        "stack": stack,
        "lnc": lnc,
        "assume_supported": assume_supported,
        "catalog": catalog,
        **layout.said,
    }
    if functional:
        if run:
            raise InputError("--engine functional trains --steps; leave out --tokens and --phase")
        if memory:
            raise InputError("--memory plays the closed form; --engine functional measures its own")
        (case, *others) = use_case.train.request(model, **asked).cases
        _refuse_with_numbers(case, others, straggler=straggler, trace=trace, plot=plot)
        return _train_with_numbers(
            *(out, catalog, case),
            steps=steps,
            seed=seed,
            folder=resume,
            setup={"stack": stack, "logical_size": lnc, "assume_supported": assume_supported},
        )
    request = use_case.train.request(
        model,
        **asked,
        **_bought(run),
        engine=cast("Engine", engine.value),
        seed=seed,
        straggler=straggler or (),
        trace=plot or trace is not None,
        memory=memory,
    )
    if config is not None:
        from trnbench.app.configured import config_words

        out.narrate(config_words(config, request.cases[0]))
    if request.runs:
        return _whole_runs(out, catalog, request)
    with ProgressLine(quiet=out.quiet) as progress:
        answers = use_case.run(catalog, request, progress=progress)
    if trace is not None:
        _write_trace(out, trace, answers[0].timeline)
    if memory:
        from trnbench.report.train_memory import memory_report

        out.write(memory_report(answers, inputs_of(request)))
    else:
        from trnbench.report.train import train_report

        out.write(train_report(answers, inputs_of(request), plot=plot))
    good = all(answer.feasible for answer in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


def _whole_runs(out: Output, catalog: Catalog, request: TrainRequest) -> int:
    from trnbench.app.train_request import inputs_of
    from trnbench.app.train_run import quotes_of_runs
    from trnbench.report.train_run import train_run_report

    with ProgressLine(quiet=out.quiet) as progress:
        quotes = quotes_of_runs(catalog, request, progress=progress)
    out.write(train_run_report(quotes, inputs_of(request)))
    good = all(one.feasible for one in quotes)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


def _bought(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is said of a run; how it is bought also as configured, as for `compare`."""
    if not run.keys() & {one.name for one in LENGTH}:
        return run
    from trnbench.app.configuration import configuration

    bought = {one.name for one in PRICES}
    usual = configuration().options("compare")
    return {**{name: one for name, one in usual.items() if name in bought}, **run}


def _write_trace(out: Output, path: Path, played: Timeline | None) -> None:
    from trnbench.report.schedule_trace import schedule_trace

    if played is None:
        out.narrate("no trace: nothing was played")
        return
    trace = schedule_trace(played)
    write_whole(path, trace.content)
    out.narrate(f"trace: {path} (open it at ui.perfetto.dev)")
    if trace.holds is not None:
        out.narrate(f"the trace holds {trace.holds}")


def _refuse_with_numbers(
    case: TrainCase,
    others: Sequence[TrainCase],
    *,
    straggler: Sequence[str] | None,
    trace: Path | None,
    plot: bool,
) -> None:
    """Refuse what a run with real numbers has no use for."""
    if others or case.label:
        raise InputError("--engine functional trains one model on one place")
    if straggler or trace is not None:
        option = "--straggler" if straggler else "--trace"
        raise InputError(f"{option} acts on the played schedule; it needs --engine emulate or both")
    if plot:
        raise InputError("--plot draws a schedule; --engine functional draws its losses anyway")


def _train_with_numbers(
    out: Output,
    catalog: Catalog,
    case: TrainCase,
    *,
    steps: int | None,
    seed: int | None,
    folder: Path | None,
    setup: Mapping[str, Any],
) -> int:
    """Train, print, and return the exit code; an interrupted run prints what it has."""
    from trnbench.app.train_functional import FunctionalRequest, inputs_of, run_functional
    from trnbench.report.train_functional import functional_report

    request = FunctionalRequest(
        model=case.model,
        instance=case.instance,
        nodes=case.nodes,
        layout=case.layout,
        steps=steps or STEPS,
        seed=seed or 0,
        folder=folder,
        **setup,
    )
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        trained = run_functional(catalog, request, progress=progress, cancel=interrupts.asked)
    out.write(functional_report(trained, inputs_of(request)))
    if trained.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.ANSWER_IS_NO if trained.reasons else ExitCode.DONE
