"""`trnbench calibrate`: a training stack fitted to measured steps, as a calibration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import keeping
from trnbench.cli.watching import ProgressLine
from trnbench.errors import InputError
from trnbench.facts.catalog.search import user_folder
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.records import replace
from trnbench.verbs.calibrate.question import CalibrateQuestion, CalibrateShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.evidence.fit.files import Calibrated, CalibratedCollectives
    from trnbench.facts.catalog.search import Catalog


@keeping()
@asks(CalibrateQuestion, CalibrateShowing, ahead_of="date")
def calibrate(
    out: Output, catalog: Catalog, question: CalibrateQuestion, showing: CalibrateShowing
) -> int:
    """Fit a training stack to measured steps, near what was known of it before.

    Of a CSV file that marks rows with `use` = fit, only those are fitted, unless --all-rows is
    given. The stack of --stack is written to FILE.toml of -o, which FOLDER/calibration/ serves with
    --spec-dir FOLDER, or else to your own data files. From then on it is the stack of the software
    that its rows name, on every instance of their chips. Collectives make a stack of links of their
    instance: latencies and shares of the links' speed, each with what it was before.
    """
    from trnbench.evidence.fit.files import CalibratedCollectives
    from trnbench.verbs.asking.measured_files import unread
    from trnbench.verbs.calibrate.run import run
    from trnbench.verbs.calibrate.text import calibration_report, links_report

    into = showing.into
    _check_destination(out, question, into)
    question = question.settled(catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        calibrated = run(catalog, question, progress=progress)
    for remark in (*unread(question.measurements), *calibrated.remarks):
        out.narrate(remark)
    files = _files(out, calibrated, into)
    if out.said and out.destination == STDOUT:
        if len(files) > 1:
            raise InputError("-o -: two calibrations were fitted; name a file: -o FILE.toml")
        out.write_bytes(b"".join(text.encode() for _, text in files.values()))
        return ExitCode.DONE
    named = [str(path) for path in files] if into is None else []
    if not (showing.force or out.silent):
        _refuse_replaced(out, files, into)
    shown = replace(out, destination=STDOUT)
    inputs = question.inputs()
    if isinstance(calibrated, CalibratedCollectives):
        shown.write(links_report(calibrated, inputs, named))
    else:
        shown.write(calibration_report(calibrated, inputs, named))
    if not out.silent:
        _write(out, files, into)
    return ExitCode.DONE


def _check_destination(out: Output, question: CalibrateQuestion, into: Path | None) -> None:
    from trnbench.verbs.asking.measured_files import may_tell_links

    if into is not None and question.stack is not None:
        raise InputError("--into writes all stacks, --stack fits one: write that with -o FILE.toml")
    if into is not None and not into.is_dir():
        raise InputError(f"--into: {str(into)!r} is not a folder")
    if not out.said:
        return
    if question.stack is None and not all(map(may_tell_links, question.measurements)):
        raise InputError("-o writes one stack: name it with --stack, or write all with --into")
    if out.destination != STDOUT and Path(out.destination).suffix != ".toml":
        raise InputError("-o writes a calibration: its name must end in .toml")


def _files(
    out: Output, calibrated: Calibrated | CalibratedCollectives, into: Path | None
) -> dict[Path, tuple[str, str]]:
    """Return names and texts of what is written, by path: where -o or --into says, or among the
    user's own data. A stack of links goes beside the stack of training whose steps rest on it.
    """
    from trnbench.evidence.fit.files import CalibratedCollectives

    said = Path(out.destination) if out.said and out.destination != STDOUT else None
    folder = into or (said.parent if said else user_folder() / "calibration")
    if isinstance(calibrated, CalibratedCollectives):
        path = said or folder / f"{calibrated.name}.toml"
        return {path: (calibrated.name, calibrated.text(name=path.stem))}
    files: dict[Path, tuple[str, str]] = {}
    if into is not None:
        files |= {
            into / f"{name}.toml": (name, calibrated.text(name)) for name in calibrated.names()
        }
    elif calibrated.stack is not None:
        path = said or folder / f"{calibrated.stack}.toml"
        files[path] = (calibrated.stack, calibrated.text(calibrated.stack, name=path.stem))
    if files and calibrated.collectives is not None:
        name = calibrated.collectives.name
        files[folder / f"{name}.toml"] = (name, calibrated.collectives.text())
    return files


def _refuse_replaced(out: Output, files: Mapping[Path, tuple[str, str]], into: Path | None) -> None:
    own = into is not None or out.destination == STDOUT
    there = [path for path in files if own and path.exists()]
    if there:
        more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
        raise InputError(
            f"{there[0]} is there already{more}; nothing is overwritten", hint="--force replaces it"
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
