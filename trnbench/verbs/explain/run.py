"""The explanation use case: why measured steps take other than predicted, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trnbench.errors import InputError
from trnbench.evidence.explain.causes import load_causes
from trnbench.evidence.explain.explanation import explained
from trnbench.evidence.explain.observed import ObservedStep, observed
from trnbench.evidence.predict import Predictor
from trnbench.evidence.readers.devices import DeviceSummary
from trnbench.evidence.rows import STEPS, EvidenceFile, RowFault, steps_of
from trnbench.evidence.training_cases import Reader
from trnbench.facts.calibration.stack_of import refuse_unknown_stack
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import counted
from trnbench.verbs.asking.given_run import GivenRun
from trnbench.verbs.asking.knobs import layout_of
from trnbench.verbs.asking.measured_files import GIB, device_files, given_run, measured_files
from trnbench.verbs.asking.use_case import Progress, answered_by, quiet, takes_options_of
from trnbench.verbs.explain.answer import Explained
from trnbench.verbs.measure.machine import with_machines

MOST_STEPS = 40
"""More rows of one cluster tell no more, and take their time."""


class ExplainRequest(Record):
    """Files of measured steps of one cluster; `given` says of logs and tables what they do not."""

    measurements: tuple[Path, ...]
    stack: str | None = None
    given: GivenRun = field(default_factory=GivenRun)


def run(catalog: Catalog, request: ExplainRequest, *, progress: Progress = quiet) -> Explained:
    """Return why the steps take other than predicted."""
    stack = None if request.stack is None else refuse_unknown_stack(catalog, request.stack)
    devices, others = device_files(request.measurements)
    files = measured_files(catalog, others, request.given)
    catalog, files = with_machines(catalog, files), steps_of(files, "explained")
    files = [_with_memory(file, devices) for file in files]
    reader, predictor = Reader(catalog, stack=stack), Predictor()
    steps: list[ObservedStep] = []
    unused: list[tuple[str, str]] = []
    progress(0, 2, "reading rows")
    for file in files:
        if file.set != STEPS:
            raise InputError(f"{file.name}: has {file.set}; only training steps can be explained")
        for row, case in zip(file.rows, reader.cases(file), strict=True):
            try:
                steps.append(observed(predictor, case))
            except RowFault as fault:
                unused.append((row.id, str(fault)))
    if not steps:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unused[:3])
        raise InputError(
            f"no row can be explained{': ' if reasons else ''}{reasons}",
            hint="`trnbench workload list` and `trnbench spec list` show models and instances, "
            "`trnbench validate --template` the columns of a file",
        )
    if len(steps) > MOST_STEPS:
        raise InputError(
            f"{len(steps)} rows; expected at most {MOST_STEPS}, of one cluster",
            hint="`trnbench validate` compares many rows, `trnbench calibrate` learns from them",
        )
    progress(1, 2, f"trying causes on {counted(len(steps), 'row')}")
    return Explained(
        explanation=explained(load_causes(catalog), steps),
        unused=tuple(unused),
        remarks=tuple(remark for file in files for remark in file.remarks),
        devices=devices,
    )


def _with_memory(file: EvidenceFile, devices: Sequence[DeviceSummary]) -> EvidenceFile:
    """Return a file of one step with the most memory that a monitor saw a device use."""
    held = max((one.memory_peak_bytes or 0.0 for one in devices), default=0.0)
    if not held or len(file.rows) != 1 or file.set != "steps":
        return file
    (row,) = file.rows
    if row.said("memory_gb") or row.said("memory_mib_chip"):
        return file
    cells = {**row.cells, "memory_gb": repr(held / GIB)}
    return replace(file, rows=(replace(row, cells=cells),))


@answered_by(run)
@takes_options_of(layout_of)
def explain(
    measurements: str | Path | Sequence[str | Path],
    *,
    stack: str | None = None,
    model: str | None = None,
    on: str | None = None,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
    **knobs: Any,  # noqa: ANN401
) -> ExplainRequest:
    """Return why measured steps take longer or less than predicted: causes, the likeliest first.

    `measurements`: CSV files of measured steps of one cluster, which are explained together; or
    logs of steps, or folders of them, with the model that ran, where, and the knobs of its layout;
    beside them what neuron-monitor, neuron-profile or nvidia-smi say of its devices. `stack`: the
    training stack to predict with, where it is not the one that the rows name.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from trnbench import explain
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder) / "run.log"
    ...     _ = log.write_text("".join(f"step {i} | step time: 12.4 s\\n" for i in range(10)))
    ...     ran = {"model": "llama3.1-8b", "on": "trn1.32xlarge", "tp": 8, "micro_batch": 1}
    ...     found = explain(log, global_batch=64, sequence="4k", **ran)
    >>> len(found.explanation.figures)
    1
    """
    files = [measurements] if isinstance(measurements, str | Path) else measurements
    return ExplainRequest(
        measurements=tuple(map(Path, files)), stack=stack, given=given_run(model, on, knobs)
    )


def inputs_of(request: ExplainRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    return {
        "measurements": [str(path) for path in request.measurements],
        "stack": request.stack,
        "given": request.given.plain,
    }
