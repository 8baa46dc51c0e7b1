"""The calibration use case: measured steps, published or one's own, made into calibration files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trnbench.app.train_request import TrainCase
from trnbench.catalog.search import Catalog
from trnbench.errors import InputError
from trnbench.evidence.calibrate import Calibration, calibrate
from trnbench.evidence.calibrate_files import CalibrationFiles
from trnbench.evidence.calibrate_rows import measured_rows
from trnbench.evidence.rows import read_evidence
from trnbench.evidence.step_log import LoggedRun, logged_steps
from trnbench.spec.library import load_platform
from trnbench.spec.training_stack import load_training_stack


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibrated:
    """A calibration, the rows that could not be used with the reason, and its files."""

    calibration: Calibration
    unused: tuple[tuple[str, str], ...]
    files: CalibrationFiles


def calibrate_measurements(
    catalog: Catalog,
    paths: Sequence[Path],
    *,
    date: datetime.date,
    stack: str | None = None,
    log: TrainCase | None = None,
    hold_chips: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Calibrated:
    """Return the calibration by measured steps, of one stack or of all that rows name.

    `log` says what ran if the paths are logs: batch, sequence, precision, and what else is known.
    With `hold_chips` the chips' own numbers stay.
    """
    named = load_training_stack(catalog, stack) if stack is not None else None
    run = None
    if log is not None:
        platform = load_platform(catalog, log.instance)
        run = LoggedRun(model=log.model, platform=platform, nodes=log.nodes, layout=log.layout)
    files = [read_evidence(path) if run is None else logged_steps(path, run) for path in paths]
    for path, file in zip(paths, files, strict=True):
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
    found = calibrate(evidence.rows, held=chips if hold_chips else ())
    return Calibrated(
        calibration=found,
        unused=evidence.unused,
        files=CalibrationFiles(catalog=catalog, calibration=found, date=date),
    )
