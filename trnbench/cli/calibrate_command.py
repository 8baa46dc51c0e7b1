"""`trnbench calibrate`: a training stack fitted to measured steps, as a calibration file."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.layout_options import takes_layout
from trnbench.cli.measured_options import MeasuredModel, MeasuredOn, name_unread_columns
from trnbench.cli.names import completes_stacks
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError
from trnbench.facts.catalog.search import user_folder
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.parsing import date as parsed_date
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.evidence.fit.calibrated_collectives import CalibratedCollectives
    from trnbench.evidence.fit.files import Calibrated
    from trnbench.facts.catalog.search import Catalog


@keeping()
@takes_layout("Of a log, or a file without a column of it: ")
def calibrate(
    out: Output,
    catalog: Catalog,
    *,
    measurements: Annotated[
        list[Path],
        typer.Argument(
            metavar="MEASUREMENTS...",
            help="CSV files of measured steps; or logs and folders of them, with --model and --on; "
            "what nccom-test and nccl-tests print, with --on, and CSV files of collectives.",
        ),
    ],
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            help="The one training stack to fit, known or new; default: all that rows name, and "
            "their chips.",
            autocompletion=completes_stacks(),
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STACK|eager|compiled|graph",
            help="What the stack begins as; a new one: as what its software is nearest to.",
            autocompletion=completes_stacks(),
        ),
    ] = None,
    all_rows: Annotated[
        bool,
        typer.Option("--all-rows", help="Also rows that a file keeps for validation."),
    ] = False,
    also: Annotated[
        str | None,
        typer.Option(metavar="ID,...", help="Single rows that a file keeps for validation."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the files of these chips and stacks, and of heirs."
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Let --into, or your own data files, replace files that are there."
        ),
    ] = False,
    date: Annotated[
        datetime.date | None,
        typer.Option(
            parser=parsed_date("--date"),
            metavar="YYYY-MM-DD",
            help="Date that the files bear; default: today.",
        ),
    ] = None,
    model: MeasuredModel = None,
    on: MeasuredOn = None,
    layout: PartialLayout,
) -> int:
    """Fit a training stack to measured steps, near what was known of it before.

    Of a CSV file that marks rows with `use` = fit, only those are fitted, unless --all-rows is
    given. The stack of --stack is written to FILE.toml of -o, which FOLDER/calibration/ serves with
    --spec-dir FOLDER, or else to your own data files. From then on it is the stack of the software
    that its rows name, on every instance of their chips. Collectives make a stack of links of their
    instance: latencies and shares of the links' speed, each with what it was before.
    """
    from trnbench.app.verbs import calibrate as use_case
    from trnbench.evidence.fit.calibrated_collectives import CalibratedCollectives
    from trnbench.report.calibrated_collectives import links_report
    from trnbench.report.calibration import calibration_report

    _check_destination(out, measurements, stack, into)
    knobs: dict[str, Any] = dict(layout.given)
    request = use_case.calibrate.request(
        measurements,
        stack=stack,
        start=start,
        all_rows=all_rows,
        also=also or (),
        date=date,
        model=model,
        on=on,
        catalog=catalog,
        **knobs,
    )
    with ProgressLine(quiet=out.quiet) as progress:
        found = use_case.run(catalog, request, progress=progress)
    name_unread_columns(out, measurements)
    for remark in found.remarks:
        out.narrate(remark)
    files = _files(out, found, into)
    if out.said and out.destination == STDOUT:
        if len(files) > 1:
            raise InputError("-o -: two calibrations were fitted; name a file: -o FILE.toml")
        out.write_bytes(b"".join(text.encode() for _, text in files.values()))
        return ExitCode.DONE
    named = [str(path) for path in files] if into is None else []
    if not (force or out.silent):
        _refuse_replaced(out, files, into)
    shown = replace(out, destination=STDOUT)
    inputs = use_case.inputs_of(request)
    if isinstance(found, CalibratedCollectives):
        shown.write(links_report(found, inputs, named))
    else:
        shown.write(calibration_report(found, inputs, named))
    if not out.silent:
        _write(out, files, into)
    return ExitCode.DONE


def _check_destination(
    out: Output, measurements: Sequence[Path], stack: str | None, into: Path | None
) -> None:
    from trnbench.app.measured_files import may_tell_links

    if into is not None and stack is not None:
        raise InputError("--into writes all stacks, --stack fits one: write that with -o FILE.toml")
    if into is not None and not into.is_dir():
        raise InputError(f"--into: {str(into)!r} is not a folder")
    if not out.said:
        return
    if stack is None and not all(map(may_tell_links, measurements)):
        raise InputError("-o writes one stack: name it with --stack, or write all with --into")
    if out.destination != STDOUT and Path(out.destination).suffix != ".toml":
        raise InputError("-o writes a calibration: its name must end in .toml")


def _files(
    out: Output, found: Calibrated | CalibratedCollectives, into: Path | None
) -> dict[Path, tuple[str, str]]:
    """Return names and texts of what is written, by path: where -o or --into says, or among the
    user's own data. A stack of links goes beside the stack of training whose steps rest on it.
    """
    from trnbench.evidence.fit.calibrated_collectives import CalibratedCollectives

    said = Path(out.destination) if out.said and out.destination != STDOUT else None
    folder = into or (said.parent if said else user_folder() / "calibration")
    if isinstance(found, CalibratedCollectives):
        path = said or folder / f"{found.name}.toml"
        return {path: (found.name, found.text(name=path.stem))}
    files: dict[Path, tuple[str, str]] = {}
    if into is not None:
        files |= {
            into / f"{name}.toml": (name, found.files.text(name)) for name in found.files.names()
        }
    elif found.stack is not None:
        path = said or folder / f"{found.stack}.toml"
        files[path] = (found.stack, found.files.text(found.stack, name=path.stem))
    if files and found.collectives is not None:
        name = found.collectives.name
        files[folder / f"{name}.toml"] = (name, found.collectives.text())
    return files


def _refuse_replaced(out: Output, files: Mapping[Path, tuple[str, str]], into: Path | None) -> None:
    own = into is not None or out.destination == STDOUT
    there = [path for path in files if own and path.exists()]
    if there:
        more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
        raise InputError(
            f"{there[0]} is there already{more}; nothing is overwritten",
            hint="--force replaces it",
        )


def _write(out: Output, files: Mapping[Path, tuple[str, str]], into: Path | None) -> None:
    for path, (name, text) in files.items():
        if into is None and out.destination == STDOUT:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
        if into is None:
            out.narrate(f"{name} written to {path}")
    if into is not None:
        out.narrate(f"{len(files)} calibrations written to {into}")
