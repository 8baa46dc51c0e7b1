"""`trnbench numerics`: what number formats do to training, on the emulated hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.names import completes
from trnbench.cli.printing import printing
from trnbench.cli.progress import Progress

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


@printing
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
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 100,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each recipe.")] = 3,
    global_batch: Annotated[int, typer.Option(min=1, help="Samples of a step.")] = 4,
    sequence: Annotated[int, typer.Option(min=1, help="Tokens of a sample.")] = 32,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Default: 3e-5, small as late in a run, where rounding matters most."),
    ] = None,
) -> int:
    """Train one small model in several precisions: what do I lose, and what gives it back?

    Every recipe sees the same weights and texts, seed by seed; matrix products, sums and rounding
    are those of the emulated tensor engine.
    """
    from trnbench.app.numerics import NumericsRequest, compare_recipes, inputs_of
    from trnbench.report.numerics import numerics_report

    request = NumericsRequest(
        model=model,
        recipes=tuple(name for name in precision.split(",") if name.strip()),
        steps=steps,
        seeds=seeds,
        global_batch=global_batch,
        sequence=sequence,
    )
    if learning_rate is not None:
        request = request.with_rate(learning_rate)
    with Progress(quiet=out.quiet) as progress:
        answer = compare_recipes(catalog, request, progress)
    out.write(numerics_report(answer, inputs_of(request)))
    return ExitCode.DONE
