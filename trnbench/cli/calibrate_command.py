"""`trnbench calibrate`: a training stack fitted to measured steps, as a calibration file."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.names import completes
from trnbench.cli.output import STDOUT, write_whole
from trnbench.cli.printing import printing
from trnbench.cli.progress import Progress
from trnbench.errors import DataFileError, InputError
from trnbench.parsing import place, several
from trnbench.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.app.calibration import Calibrated
    from trnbench.app.train_request import TrainCase
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


_FOR_A_LOG = "a log of steps needs --model, --on, --global-batch and --sequence"


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
        datetime.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Date that the files bear; default: today."),
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
    from trnbench.app.calibration import calibrate_measurements
    from trnbench.app.layout_defaults import DEFAULT_PRECISION
    from trnbench.app.train_request import TrainCase
    from trnbench.report.calibration import calibration_report

    _check_destination(out, stack, into)
    log: TrainCase | None = None
    if model is not None or on is not None:
        silent = [name for name in ("global_batch", "sequence") if layout[name] is None]
        if model is None or on is None or silent:
            raise InputError(_FOR_A_LOG)
        where = several("--on", place("--on"))(on)
        if len(where) != 1:
            raise InputError("--on: a log is of one cluster")
        known = {"precision": DEFAULT_PRECISION, **layout.given}
        log = TrainCase(
            model=model,
            instance=where[0][0],
            nodes=where[0][1],
            layout=PartialLayout(**known),
        )
        if stack is None:
            raise InputError("a log does not name its software: give --stack")
    with Progress(quiet=out.quiet) as progress:
        try:
            found = calibrate_measurements(
                catalog,
                measurements,
                date=(date or datetime.datetime.now(tz=datetime.UTC)).date(),
                stack=stack,
                log=log,
                hold_chips=stack is not None,
                progress=progress,
            )
        except DataFileError as error:
            if log is None and error.file in map(str, measurements):
                raise InputError(error.message, hint=_FOR_A_LOG) from None
            raise
    inputs: dict[str, object] = {
        "measurements": [str(path) for path in measurements],
        "stack": stack,
        "log": None if log is None else _plain(log),
    }
    replace(out, destination=STDOUT).write(
        calibration_report(found.calibration, found.unused, inputs)
    )
    _write(out, found, into)
    return ExitCode.DONE


def _plain(log: TrainCase) -> dict[str, object]:
    where = {"model": log.model, "instance": log.instance, "nodes": log.nodes}
    return {**where, **log.layout.plain}


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
