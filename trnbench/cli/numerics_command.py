"""`trnbench numerics`: what number formats do to training, on the emulated hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.names import completes
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping()
def numerics(
    out: Output,
    catalog: Catalog,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A small text model.", autocompletion=completes(("models",))
        ),
    ] = "tiny-gpt",
    precision: Annotated[
        str, typer.Option(metavar="RECIPE,...", help="Recipes beside fp32.")
    ] = "bf16-master,bf16-sr,bf16",
    steps: Annotated[str, typer.Option(metavar="N", help="Steps of each run.")] = "100",
    seeds: Annotated[str, typer.Option(metavar="N", help="Runs of each recipe.")] = "3",
    global_batch: Annotated[str, typer.Option(metavar="N", help="Samples of a step.")] = "4",
    sequence: Annotated[str, typer.Option(metavar="N", help="Tokens of a sample.")] = "32",
    learning_rate: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Default: 3e-5, small as late in a run, where rounding matters most.",
        ),
    ] = None,
) -> int:
    """Train one small model in several precisions: what do I lose, and what gives it back?

    Every recipe sees the same weights and texts, seed by seed; matrix products, sums and rounding
    are those of the emulated tensor engine.
    """
    from trnbench.app.verbs.numerics import inputs_of, run
    from trnbench.app.verbs.numerics import numerics as use_case
    from trnbench.report.numerics import numerics_report

    request = use_case.request(
        model,
        precision=precision,
        steps=steps,
        seeds=seeds,
        global_batch=global_batch,
        sequence=sequence,
        learning_rate=learning_rate,
    )
    with ProgressLine(quiet=out.quiet) as progress:
        answer = run(catalog, request, progress=progress)
    out.write(numerics_report(answer, inputs_of(request)))
    return ExitCode.DONE
