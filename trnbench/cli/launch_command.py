"""`trnbench launch`: the files that start a layout, with what was predicted of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.names import completes, completes_stacks
from trnbench.cli.printing import into_folder
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError
from trnbench.facts.parsing import clusters, count, duration, whole
from trnbench.facts.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@into_folder
@takes_layout()
def launch(
    out: Output,
    catalog: Catalog,
    *,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL|PLAN.json",
            help="A model by name; or an answer of `plan --json`, which says all but --with.",
            autocompletion=completes(("models",)),
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="INSTANCE[:NODES]",
            help="Where.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            metavar="FRAMEWORK",
            help="nxdt, ...: see --list; or a training stack that stands for one.",
            autocompletion=completes_stacks(),
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--with", metavar="SCHEDULER", help="torchrun, slurm, ...: see --list."),
    ] = None,
    layout: PartialLayout,
    lnc: Annotated[
        int | None,
        typer.Option(
            parser=whole("--lnc"),
            metavar="N",
            help="Logical core size on Trainium2 and 3: 1 or 2; default: 2.",
        ),
    ] = None,
    purchase: Annotated[
        str | None,
        typer.Option(
            metavar="on-demand|capacity-block",
            help="Where machines come from; default: on demand where they are sold so.",
        ),
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(parser=count("--tokens"), metavar="N", help="Length of the run: 2T."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            parser=whole("--steps"),
            metavar="N",
            help="Length of the run in steps; default: a value to change, 100 at first.",
        ),
    ] = None,
    checkpoint_interval: Annotated[
        float | None,
        typer.Option(
            parser=duration("--checkpoint-interval"),
            metavar="TIME",
            help="Between checkpoints: 30 min; default: the best.",
        ),
    ] = None,
    row: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of PLAN.json: which row; default: the first.")
    ] = 1,
    listed: Annotated[
        bool,
        typer.Option("--list", help="Tell which frameworks and schedulers there are, and where."),
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            *("--output", "-o"),
            metavar="FOLDER",
            help="Write the files there; without it, say what would be written.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files of a folder that has some.")
    ] = False,
) -> int:
    """Write the files that start a layout: configuration, job, environment, README, prediction.

    Degrees and modes that are not given are chosen: the fastest layout that fits, by the training
    stack that stands for the framework on the instance. What only you know stands in values.env.
    """
    from trnbench.app.launching import options_of_answer, refuse_full, write_launch
    from trnbench.app.verbs import launch as use_case
    from trnbench.report.launch import launch_report, pairs_report

    if listed:
        names = () if on is None else tuple(name for name, _ in clusters(on))
        out.write(pairs_report(use_case.pairs(catalog, names), {"on": on}))
        return ExitCode.DONE
    asked: dict[str, Any] = {"model": model, "on": on, "stack": stack, "lnc": lnc}
    asked |= {"tokens": tokens, "checkpoint_interval": checkpoint_interval, "purchase": purchase}
    asked |= layout.said
    if model is not None and model.endswith(".json"):
        if on is not None:
            raise InputError("a plan says where: leave out --on")
        told = options_of_answer(catalog, Path(model), row)
        given = {name: value for name, value in asked.items() if value is not None}
        asked = {**told, **given, "model": told["model"]}
        if steps is not None:
            asked["tokens"] = None
    if scheduler is None or any(asked[name] is None for name in ("model", "on", "stack")):
        raise InputError(
            "say what is to run where: MODEL --on INSTANCE:NODES --stack FRAMEWORK "
            "--with SCHEDULER",
            hint="`trnbench launch --list` shows frameworks and schedulers",
        )
    if into is not None:
        refuse_full(into, force=force)
    request = use_case.launch.request(**asked, scheduler=scheduler, steps=steps)
    with ProgressLine(quiet=out.quiet) as progress:
        answer = use_case.run(catalog, request, progress=progress)
    out.write(launch_report(answer, use_case.inputs_of(request)))
    if answer.folder is None:
        return ExitCode.ANSWER_IS_NO
    if into is not None:
        write_launch(into, answer, use_case.inputs_of(request), force=force)
        out.narrate(f"written: {into}; {into / 'README.md'} says how to start it")
    else:
        out.narrate("nothing is written without -o FOLDER")
    if answer.folder.empty:
        named = ", ".join(value.name for value in answer.folder.empty)
        out.narrate(f"to fill in, in values.env: {named}")
    return ExitCode.DONE
