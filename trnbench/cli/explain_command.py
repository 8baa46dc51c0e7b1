"""`trnbench explain`: why measured steps take other than predicted, and what to try."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.measured_options import MeasuredModel, MeasuredOn
from trnbench.cli.names import completes_stacks
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.facts.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@printing
@takes_layout("Of a log, or a file without a column of it: ")
def explain(
    out: Output,
    catalog: Catalog,
    *,
    measurements: Annotated[
        list[Path],
        typer.Argument(
            metavar="MEASUREMENTS...",
            help="CSV files of measured steps of one cluster; or logs and folders of them, with "
            "--model and --on; beside them neuron-monitor, neuron-profile or nvidia-smi files.",
        ),
    ],
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            help="The training stack to predict with; default: that of the rows, or the usual one.",
            autocompletion=completes_stacks(),
        ),
    ] = None,
    model: MeasuredModel = None,
    on: MeasuredOn = None,
    layout: PartialLayout,
) -> int:
    """Say why measured steps take longer, or less, than predicted: which cause, what to try.

    All rows are explained together: rows of other nodes, degrees and micro-batches of one cluster
    tell causes apart that a single one cannot.

    Rows of --json, the likeliest cause first: cause, title, change, magnitude, beside, probability,
    tied, explained, explained_alone, experiment, remedy. Its summary: verdict, says, steps, tied,
    telling_run.
    """
    from trnbench.verbs.explain import run as use_case
    from trnbench.verbs.explain.text import explain_report

    knobs: dict[str, Any] = dict(layout.given)
    request = use_case.explain.request(
        measurements, stack=stack, model=model, on=on, catalog=catalog, **knobs
    )
    with ProgressLine(quiet=out.quiet) as progress:
        found = use_case.run(catalog, request, progress=progress)
    for remark in found.remarks:
        out.narrate(remark)
    out.write(explain_report(found, use_case.inputs_of(request)))
    return ExitCode.DONE
