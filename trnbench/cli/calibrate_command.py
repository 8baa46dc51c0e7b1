"""`trnbench calibrate`: a training stack fitted to measured steps, as a calibration file."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.names import completes
from trnbench.cli.output import STDOUT, write_whole
from trnbench.cli.printing import printing
from trnbench.cli.progress import Progress
from trnbench.errors import DataFileError, InputError
from trnbench.parsing import place, several

if TYPE_CHECKING:
    from trnbench.app.calibration import Calibrated, LoggedLayout
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


_FOR_A_LOG = "a log of steps needs --model, --on, --global-batch and --sequence"


@printing
def calibrate(
    out: Output,
    catalog: Catalog,
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
    global_batch: Annotated[
        int | None, typer.Option(min=1, help="Of a log: samples of a step.")
    ] = None,
    sequence: Annotated[
        int | None, typer.Option(min=1, help="Of a log: tokens of a sample.")
    ] = None,
    tp: Annotated[int, typer.Option(min=1, help="Of a log: tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Of a log: pipeline stages.")] = 1,
    cp: Annotated[int, typer.Option(min=1, help="Of a log: ranks that share a sequence.")] = 1,
    ep: Annotated[
        int | None, typer.Option(min=1, help="Of a log: ranks that share the experts.")
    ] = None,
    vpp: Annotated[
        int | None, typer.Option(min=1, help="Of a log: model chunks on each stage.")
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="Of a log: samples a replica takes at once.")
    ] = None,
    zero: Annotated[int | None, typer.Option(min=0, max=3, help="Of a log: ZeRO stage.")] = None,
    recompute: Annotated[
        str | None, typer.Option(metavar="MODE", help="Of a log: none, selective or full.")
    ] = None,
    sequence_parallel: Annotated[
        bool | None,
        typer.Option(
            "--sequence-parallel/--no-sequence-parallel", help="Of a log: sequence parallelism."
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="RECIPE", help="Of a log: bf16-master, bf16-sr, fp8, ...")
    ] = "bf16-master",
) -> int:
    """Fit a training stack to measured steps, near what was known of it before.

    Of a CSV file that marks rows with `use` = fit, only those are fitted. -o FILE.toml writes the
    stack's calibration; in FOLDER/calibration/ it is used with --spec-dir FOLDER.
    """
    from trnbench.app.calibration import LoggedLayout, calibrate_measurements
    from trnbench.report.calibration import calibration_report

    _check_destination(out, stack, into)
    log: LoggedLayout | None = None
    if model is not None or on is not None:
        if model is None or on is None or global_batch is None or sequence is None:
            raise InputError(_FOR_A_LOG)
        where = several("--on", place("--on"))(on)
        if len(where) != 1:
            raise InputError("--on: a log is of one cluster")
        log = LoggedLayout(
            model=model,
            instance=where[0][0],
            nodes=where[0][1],
            global_batch=global_batch,
            sequence=sequence,
            tp=tp,
            pp=pp,
            cp=cp,
            ep=ep,
            vpp=vpp,
            micro_batch=micro_batch,
            zero=zero,
            sequence_parallel=sequence_parallel,
            recompute=recompute,
            precision=precision,
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
        "log": None if log is None else {name: getattr(log, name) for name in log.__slots__},
    }
    replace(out, destination=STDOUT).write(
        calibration_report(found.calibration, found.unused, inputs)
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
