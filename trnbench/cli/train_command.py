"""`trnbench train`: one training step of a model on a cluster: does it fit, how long, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.engine import TrainEngine
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.names import completes
from trnbench.cli.output import OutputFormat, write_whole
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.cli.train_numbers import refuse_with_numbers, train_with_numbers
from trnbench.errors import InputError
from trnbench.parsing import whole

if TYPE_CHECKING:
    from trnbench.app.use_case import Engine
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output
    from trnbench.emulate.schedule.timeline import Timeline
    from trnbench.workload.partial_layout import PartialLayout


@printing
@takes_layout()
def train(
    out: Output,
    catalog: Catalog,
    *,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="A model by name.", autocompletion=completes(("models",))
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="INSTANCE[:NODES],...",
            help="Where.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", help="A training suite.", autocompletion=completes(("training",))),
    ] = None,
    layout: PartialLayout,
    stack: Annotated[
        str | None,
        typer.Option(
            help="Calibration of a training stack; default: the instance's.",
            autocompletion=completes(("calibration",)),
        ),
    ] = None,
    lnc: Annotated[
        int | None,
        typer.Option(
            parser=whole("--lnc"), metavar="N", help="Logical core size on Trainium2 and 3."
        ),
    ] = None,
    engine: Annotated[
        TrainEngine, typer.Option(help="Closed form, slot by slot, or with real numbers.")
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
            help="With --engine functional: keep checkpoints here, and go on from the newest.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="With --engine emulate: draw how late every node is, with this seed. "
            "With --engine functional: seed of weights, text and rounding; default: 0."
        ),
    ] = None,
    straggler: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE=FACTOR",
            help="A pipeline stage that computes so many times as long (repeatable).",
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace of the schedule.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the schedule.")] = False,
) -> int:
    """Time one training step: does it fit, how fast, where do time and memory go, how sure is it.

    Degrees and modes that are not given are chosen: the fastest layout that fits. MFU counts
    model FLOP, with causal attention and nothing twice, over the tensor units' peak.

    With --engine functional a small text model is trained on emulated ranks, on generated text;
    degrees that are not given are 1.
    """
    from trnbench.app.train_request import inputs_of
    from trnbench.app.verbs import train as use_case
    from trnbench.report.train import train_report

    if plot and out.format is not OutputFormat.TABLE:
        raise InputError("--plot draws for people; it needs --format table")
    functional = engine is TrainEngine.FUNCTIONAL
    if not functional and (steps is not None or resume is not None):
        option = "--steps" if steps is not None else "--resume"
        raise InputError(f"{option} belongs to a run with real numbers: --engine functional")
    asked: dict[str, Any] = {
        "on": on if on is not None else (),
        "suite": suite,
        "stack": stack,
        "lnc": lnc,
        "catalog": catalog,
        **layout.given,
    }
    if functional:
        (case, *others) = use_case.train.request(model, **asked).cases
        refuse_with_numbers(case, others, straggler=straggler, trace=trace, plot=plot)
        return train_with_numbers(
            out, catalog, case, steps=steps, seed=seed, folder=resume, stack=stack, lnc=lnc
        )
    request = use_case.train.request(
        model,
        **asked,
        engine=cast("Engine", engine.value),
        seed=seed,
        straggler=straggler or (),
        trace=plot or trace is not None,
    )
    with ProgressLine(quiet=out.quiet) as progress:
        answers = use_case.run(catalog, request, progress=progress)
    if trace is not None:
        _write_trace(out, trace, answers[0].timeline)
    out.write(train_report(answers, inputs_of(request), plot=plot))
    good = all(answer.feasible for answer in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


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
