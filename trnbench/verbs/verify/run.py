"""The verification use case: did a launched run go as predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trnbench.errors import DataFileError, Fault, InputError
from trnbench.evidence.rows import STEPS, steps_of
from trnbench.facts.catalog.foreign import read_object
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import KNOBS
from trnbench.launch.folder import PREDICTION
from trnbench.program.slots import STEP_CATEGORIES, StepCategory
from trnbench.verbs.asking.command_lines import command_line, with_folders
from trnbench.verbs.asking.given_run import GivenRun
from trnbench.verbs.asking.knobs import layout_of
from trnbench.verbs.asking.measured_files import measured_files
from trnbench.verbs.asking.use_case import Progress, answered_by, quiet
from trnbench.verbs.verify.answer import Verified, VerifiedLog

_SCHEMA = "trnbench.launch/1"


class VerifyRequest(Record):
    """A folder that was launched, and what its run has logged."""

    folder: Path
    logs: tuple[Path, ...]


def run(catalog: Catalog, request: VerifyRequest, *, progress: Progress = quiet) -> Verified:
    """Return the measured steps beside the prediction."""
    row = _prediction(request.folder / PREDICTION)
    knobs = {name: row[name] for name in KNOBS if row.get(name) is not None}
    layout = layout_of(**knobs)
    model, instance, nodes = str(row["model"]), str(row["instance"]), _whole(row["nodes"])
    given = GivenRun(model=model, on=f"{instance}:{nodes}", layout=layout)
    progress(0, 1, "reading logs")
    predicted = [_number(row[f"{end}step_time_s"]) for end in ("", "low_", "high_")]
    files = steps_of(measured_files(catalog, request.logs, given), "verified")
    for file in files:
        if file.set != STEPS:
            raise InputError(f"{file.name}: has {file.set}; a run is verified by training steps")
    found = [
        VerifiedLog(
            id=one.id,
            measured_s=float(one.cells["step_time_s"]),
            predicted_s=predicted[0],
            low_s=predicted[1],
            high_s=predicted[2],
        )
        for file in files
        for one in file.rows
        if one.cells.get("step_time_s")
    ]
    if not found:
        raise InputError("no step time is in these files")
    where = f"{instance}:{nodes}"
    again = command_line(
        "explain",
        *map(str, request.logs),
        model=model,
        on=where,
        stack=str(row["stack"]),
        **layout.plain,
    )
    return Verified(
        logs=tuple(found),
        remarks=tuple(remark for file in files for remark in file.remarks),
        model=model,
        where=where,
        terms={name: _number(row.get(_key(name)) or 0.0) for name in STEP_CATEGORIES},
        command=with_folders(again, catalog),
    )


def _key(category: StepCategory) -> str:
    return f"exposed_{category.replace('-', '_')}_s"


def _prediction(path: Path) -> Mapping[str, object]:
    """Return the row of a prediction; a file that is none is refused."""
    told = read_object(path)
    rows = told.get("rows")
    row = rows[0] if isinstance(rows, list) and len(rows) == 1 else None
    needed = ("model", "instance", "nodes", "stack", "step_time_s", "low_step_time_s")
    if (
        told.get("schema") != _SCHEMA
        or not isinstance(row, dict)
        or any(row.get(key) is None for key in (*needed, "high_step_time_s"))
    ):
        message = f"is no prediction of `trnbench launch` ({_SCHEMA})"
        raise DataFileError(str(path), [Fault(path="", message=message)])
    return row


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise InputError(f"{PREDICTION}: expected a number, found {value!s:.40}")


def _whole(value: object) -> int:
    return int(_number(value))


@answered_by(run)
def verify(
    folder: str | Path,
    logs: str | Path | Sequence[str | Path],
    *,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
) -> VerifyRequest:
    """Return whether a launched run goes as predicted: its measured step beside the 80 % interval.

    `folder` is what `launch` wrote, `logs` what the run has logged (files or folders), or CSV files
    of its steps.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from trnbench.verbs.launch.run import launch
    >>> from trnbench.verbs.verify.run import verify
    >>> from trnbench.verbs.launch.folders import write_launch
    >>> on = {"on": "trn1.32xlarge:4", "stack": "nxdt", "scheduler": "slurm"}
    >>> job = launch("llama2-7b", tp=8, pp=1, micro_batch=1, **on)
    >>> with TemporaryDirectory() as folder:
    ...     write_launch(f"{folder}/job", job, on)
    ...     _ = Path(f"{folder}/run.log").write_text("step time: 3000 s\\n")
    ...     verify(f"{folder}/job", f"{folder}/run.log").logs[0].went
    'slower'
    """
    files = [logs] if isinstance(logs, str | Path) else logs
    return VerifyRequest(folder=Path(folder), logs=tuple(map(Path, files)))


def inputs_of(request: VerifyRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    return {"folder": str(request.folder), "logs": [str(path) for path in request.logs]}
