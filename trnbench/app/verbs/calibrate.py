"""The calibration use case: measured steps, published or one's own, made into calibration files."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trnbench.app.knobs import layout_of
from trnbench.app.measured_files import GivenRun, given_run, measured_files
from trnbench.app.measured_machine import beside, with_machines
from trnbench.app.use_case import Progress, answered_by, quiet, takes_options_of
from trnbench.errors import InputError
from trnbench.evidence.fit.calibrate import calibrate as fitted
from trnbench.evidence.fit.calibrated_collectives import CalibratedCollectives, stack_name
from trnbench.evidence.fit.collectives import fit_collectives
from trnbench.evidence.fit.files import Calibrated, CalibrationFiles
from trnbench.evidence.fit.memory import fits_by_stack
from trnbench.evidence.fit.rows import marked_rows, measured_kernels, measured_rows
from trnbench.evidence.fit.start import start_of
from trnbench.evidence.measured_file import steps_of
from trnbench.evidence.readers.collectives import is_sweep
from trnbench.evidence.rows import COLLECTIVES, KERNELS, STEPS, EvidenceFile, is_table
from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.parsing import maybe
from trnbench.facts.records import Record, field
from trnbench.facts.units import counted


class CalibrateRequest(Record):
    """Files of measured steps to fit, and the date that the calibrations bear.

    One training stack, whose chips keep their numbers, or all that rows name, with their chips.
    A stack that is not known, or any with `start`, begins as the stack named so, or as software of
    a kind: eager, compiled, graph. `all_rows`: those that a file keeps for validation too; `also`
    single ones of these, by id.
    `given` says what ran if the files are logs, or what tables of steps have no columns of.
    """

    measurements: tuple[Path, ...]
    date: datetime.date
    stack: str | None = None
    start: str | None = None
    all_rows: bool = False
    also: tuple[str, ...] = ()
    given: GivenRun = field(default_factory=GivenRun)


def run(
    catalog: Catalog, request: CalibrateRequest, *, progress: Progress = quiet
) -> Calibrated | CalibratedCollectives:
    """Return the calibration by measured steps, or that by timed collectives where no step is."""
    read = measured_files(catalog, request.measurements, request.given)
    remarks = tuple(remark for file in read for remark in file.remarks)
    catalog, files = with_machines(catalog, read), steps_of(read, "fitted")
    sweeps = [file for file in files if file.set in COLLECTIVES]
    links = None
    if sweeps:
        progress(0, 1, "fitting collectives")
        links = _links(catalog, sweeps, request, remarks)
        files = [file for file in files if file not in sweeps]
        if not files:
            if request.start or request.all_rows or request.also:
                raise InputError(
                    "--from, --all-rows and --also are of training steps: none is here"
                )
            return links
        # Steps are fitted on the links as they were measured.
        catalog = beside(catalog, [{("calibration", links.name): links.text()}])
    kernels = [file for file in files if file.set == KERNELS and request.stack is None]
    for file in files:
        if file.set != STEPS and file not in kernels:
            raise InputError(
                f"{file.name}: has {file.set}; a training stack is fitted to training steps"
            )
    files = [file for file in files if file not in kernels]
    progress(0, 1, "reading rows")
    if not request.all_rows:
        files = marked_rows(files, also=request.also)
    begun = start_of(catalog, request.stack, files, request.start) if request.stack else None
    evidence = measured_rows(catalog, files, stack=begun.stack if begun else None)
    if not evidence.rows:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in evidence.unused[:3])
        raise InputError(f"no row can be fitted{': ' if reasons else ''}{reasons}")
    alone = measured_kernels(catalog, kernels, evidence.rows)
    rows = (*evidence.rows, *alone.rows)
    progress(0, 1, f"fitting {counted(len(rows), 'row')}")
    chips = {row.chip for row in evidence.rows}
    found = fitted(rows, held=chips if request.stack is not None else ())
    memory = fits_by_stack(evidence.held)
    return Calibrated(
        calibration=found,
        unused=(*evidence.unused, *alone.unused),
        memory=memory,
        files=CalibrationFiles(
            catalog=catalog,
            calibration=found,
            memory=memory,
            date=request.date,
            starts={begun.stack.name: begun.table} if begun else {},
        ),
        stack=begun.stack.name if begun else None,
        begun_as=begun.like if begun else None,
        remarks=remarks,
        again=begun.again if begun else None,
        collectives=links,
    )


def _links(
    catalog: Catalog,
    sweeps: Sequence[EvidenceFile],
    request: CalibrateRequest,
    remarks: tuple[str, ...],
) -> CalibratedCollectives:
    found = fit_collectives(catalog, sweeps)
    return CalibratedCollectives(
        fit=found,
        name=stack_name(request.stack, found.instance),
        date=request.date,
        catalog=catalog,
        remarks=remarks,
    )


@answered_by(run)
@takes_options_of(layout_of)
def calibrate(
    measurements: str | Path | Sequence[str | Path],
    *,
    stack: str | None = None,
    start: str | None = None,
    all_rows: bool = False,
    also: str | Sequence[str] = (),
    date: datetime.date | str | None = None,
    model: str | None = None,
    on: str | None = None,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
    **knobs: Any,  # noqa: ANN401
) -> CalibrateRequest:
    """Return a training stack fitted to measured steps, near what was known of it before.

    `measurements`: CSV files of measured steps; or logs of steps, with the model that ran, where,
    and the knobs of its layout; these also stand for columns that a table lacks. What nccom-test
    and nccl-tests print, or CSV files of collectives, make a stack of links of the instance `on`
    which they ran; steps beside them are fitted on it. Without a `stack`:
    all that rows name, and their chips. A `stack` that is not known begins as the one that `start`
    names, or as software of a kind: eager, compiled, graph. Of a file that marks rows with `use` =
    fit, only those are fitted, unless it is to be `all_rows`, or single ones `also`.

        >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from trnbench import calibrate
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder) / "run.log"
    ...     _ = log.write_text("".join(f"step {i} | step time: 11.0 s\\n" for i in range(10)))
    ...     ran = {"model": "llama3.1-8b", "on": "trn1.32xlarge", "tp": 8, "micro_batch": 1}
    ...     found = calibrate(log, stack="nxd-trn1", global_batch=64, sequence="4k", **ran)
    >>> len(found.calibration.rows)
    1
    """
    files = [measurements] if isinstance(measurements, str | Path) else measurements
    paths, given = tuple(map(Path, files)), given_run(model, on, knobs)
    if stack is None and start is not None:
        raise InputError("--from says how one stack begins: name it with --stack")
    names_itself = (is_table(path) or is_sweep(path) for path in paths if path.is_file())
    if stack is None and given.cells and not all(names_itself):
        raise InputError("a log does not name its software: give --stack")
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return CalibrateRequest(
        measurements=paths,
        date=maybe(parsing.date("--date"), date) or today,
        stack=maybe(parsing.file_name, stack),
        start=start,
        all_rows=all_rows,
        also=parsing.names("--also", also) if also else (),
        given=given,
    )


def inputs_of(request: CalibrateRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    return {
        "measurements": [str(path) for path in request.measurements],
        "stack": request.stack,
        "start": request.start,
        "all_rows": request.all_rows,
        "also": list(request.also),
        "given": request.given.plain,
    }
