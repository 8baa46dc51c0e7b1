"""The calibration use case: measured steps, published or one's own, made into calibration files."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trnbench import parsing
from trnbench.app.knobs import layout_of
from trnbench.app.layout_defaults import DEFAULT_PRECISION
from trnbench.app.train_request import TrainCase
from trnbench.app.use_case import Progress, answered_by, quiet, takes_options_of
from trnbench.calibration.training_stack import load_training_stack
from trnbench.catalog.search import Catalog
from trnbench.errors import DataFileError, InputError
from trnbench.evidence.calibrate import Calibration
from trnbench.evidence.calibrate import calibrate as fitted
from trnbench.evidence.calibrate_files import CalibrationFiles
from trnbench.evidence.calibrate_rows import measured_rows
from trnbench.evidence.rows import EvidenceFile, read_evidence
from trnbench.evidence.step_log import LoggedRun, logged_steps
from trnbench.hardware.library import load_platform
from trnbench.parsing import clusters, maybe

_FOR_A_LOG = "a log of steps needs --model, --on, --global-batch and --sequence"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibrated:
    """A calibration, the rows that could not be used with the reason, and its files."""

    calibration: Calibration
    unused: tuple[tuple[str, str], ...]
    files: CalibrationFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateRequest:
    """Files of measured steps to fit, and the date that the calibrations bear.

    One training stack, whose chips keep their numbers, or all that rows name, with their chips.
    `log` says what ran if the files are logs: batch, sequence, precision, and what else is known.
    """

    measurements: tuple[Path, ...]
    date: datetime.date
    stack: str | None = None
    log: TrainCase | None = None


def run(catalog: Catalog, request: CalibrateRequest, *, progress: Progress = quiet) -> Calibrated:
    """Return the calibration by measured steps."""
    named = load_training_stack(catalog, request.stack) if request.stack is not None else None
    files = _read(catalog, request)
    for path, file in zip(request.measurements, files, strict=True):
        if not file.set.endswith("_training"):
            raise InputError(
                f"{path}: has {file.set}; a training stack is fitted to training steps"
            )
    progress(0, 1, "reading rows")
    evidence = measured_rows(catalog, files, stack=named)
    if not evidence.rows:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in evidence.unused[:3])
        raise InputError(f"no row can be fitted{': ' if reasons else ''}{reasons}")
    progress(0, 1, f"fitting {len(evidence.rows)} rows")
    chips = {row.chip for row in evidence.rows}
    found = fitted(evidence.rows, held=chips if request.stack is not None else ())
    return Calibrated(
        calibration=found,
        unused=evidence.unused,
        files=CalibrationFiles(catalog=catalog, calibration=found, date=request.date),
    )


@answered_by(run)
@takes_options_of(layout_of)
def calibrate(
    measurements: str | Path | Sequence[str | Path],
    *,
    stack: str | None = None,
    date: datetime.date | str | None = None,
    model: str | None = None,
    on: str | None = None,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
    **knobs: Any,  # noqa: ANN401
) -> CalibrateRequest:
    """Return a training stack fitted to measured steps, near what was known of it before.

    `measurements`: CSV files of measured steps; or logs of steps, with the model that ran, where,
    and the knobs of its layout. Without a `stack`: all that rows name, and their chips.

        >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from trnbench.app import calibrate
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder) / "run.log"
    ...     _ = log.write_text("".join(f"step {i} | step time: 11.0 s\\n" for i in range(10)))
    ...     ran = {"model": "llama3.1-8b", "on": "trn1.32xlarge", "tp": 8, "micro_batch": 1}
    ...     found = calibrate(log, stack="nxd-trn1", global_batch=64, sequence="4k", **ran)
    >>> len(found.calibration.rows)
    1
    """
    files = [measurements] if isinstance(measurements, str | Path) else measurements
    log = None
    if model is not None or on is not None:
        layout = layout_of(**{"precision": DEFAULT_PRECISION} | knobs)
        if model is None or on is None or None in (layout["global_batch"], layout["sequence"]):
            raise InputError(_FOR_A_LOG)
        where = clusters(on)
        if len(where) != 1:
            raise InputError("--on: a log is of one cluster")
        if stack is None:
            raise InputError("a log does not name its software: give --stack")
        log = TrainCase(model=model, instance=where[0][0], nodes=where[0][1], layout=layout)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return CalibrateRequest(
        measurements=tuple(map(Path, files)),
        date=maybe(parsing.date("--date"), date) or today,
        stack=stack,
        log=log,
    )


def inputs_of(request: CalibrateRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    log = request.log
    return {
        "measurements": [str(path) for path in request.measurements],
        "stack": request.stack,
        "log": None
        if log is None
        else {"model": log.model, "instance": log.instance, "nodes": log.nodes, **log.layout.plain},
    }


def _read(catalog: Catalog, request: CalibrateRequest) -> list[EvidenceFile]:
    log = request.log
    if log is not None:
        platform = load_platform(catalog, log.instance)
        ran = LoggedRun(model=log.model, platform=platform, nodes=log.nodes, layout=log.layout)
        return [logged_steps(path, ran) for path in request.measurements]
    try:
        return [read_evidence(path) for path in request.measurements]
    except DataFileError as error:
        raise InputError(error.message, hint=_FOR_A_LOG) from None
