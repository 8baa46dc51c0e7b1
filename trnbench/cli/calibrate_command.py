"""`trnbench calibrate`: a training stack fitted to measured steps, as a calibration file."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.names import completes
from trnbench.cli.output import STDOUT, write_whole
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError
from trnbench.parsing import date as parsed_date
from trnbench.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.app.verbs.calibrate import Calibrated
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


@printing
@takes_layout("Of a log: ")
def calibrate(
    out: Output,
    catalog: Catalog,
    *,
    measurements: Annotated[
        list[Path],
        typer.Argument(
            metavar="MEASUREMENTS...",
            help="CSV files of measured steps; or logs of steps, with --model and --on.",
        ),
    ],
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            help="The one training stack to fit; default: all that rows name, and their chips.",
            autocompletion=completes(("calibration",)),
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the files of all chips and stacks, heirs too."),
    ] = None,
    date: Annotated[
        datetime.date | None,
        typer.Option(
            parser=parsed_date("--date"),
            metavar="YYYY-MM-DD",
            help="Date that the files bear; default: today.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Of a log: the model that ran.", autocompletion=completes(("models",))),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="INSTANCE[:NODES]",
            help="Of a log: where.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    layout: PartialLayout,
) -> int:
    """Fit a training stack to measured steps, near what was known of it before.

    Of a CSV file that marks rows with `use` = fit, only those are fitted. -o FILE.toml writes the
    stack's calibration; in FOLDER/calibration/ it is used with --spec-dir FOLDER.
    """
    from trnbench.app.verbs import calibrate as use_case
    from trnbench.report.calibration import calibration_report

    _check_destination(out, stack, into)
    knobs: dict[str, Any] = dict(layout.given)
    request = use_case.calibrate.request(
        measurements, stack=stack, date=date, model=model, on=on, catalog=catalog, **knobs
    )
    with ProgressLine(quiet=out.quiet) as progress:
        found = use_case.run(catalog, request, progress=progress)
    replace(out, destination=STDOUT).write(
        calibration_report(found.calibration, found.unused, use_case.inputs_of(request))
    )
    _write(out, found, into)
    return ExitCode.DONE


def _check_destination(out: Output, stack: str | None, into: Path | None) -> None:
    if into is not None and stack is not None:
        raise InputError("--into writes all stacks, --stack fits one: write that with -o FILE.toml")
    if into is not None and not into.is_dir():
        raise InputError(f"--into: {str(into)!r} is not a folder")
    if out.destination == STDOUT:
        return
    if stack is None:
        raise InputError("-o writes one stack: name it with --stack, or write all with --into")
    if Path(out.destination).suffix != ".toml":
        raise InputError("-o writes a calibration: its name must end in .toml")


def _write(out: Output, found: Calibrated, into: Path | None) -> None:
    if into is not None:
        for name in found.files.names():
            write_whole(into / f"{name}.toml", found.files.text(name).encode())
        out.narrate(f"{len(found.files.names())} calibrations written to {into}")
    if out.destination != STDOUT:
        path = Path(out.destination)
        (stack,) = {row.row.stack for row in found.calibration.rows}
        write_whole(path, found.files.text(stack, name=path.stem).encode())
