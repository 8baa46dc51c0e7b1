"""The explanation use case: measured steps beside predictions, causes of gaps, what to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trnbench import __version__
from trnbench.errors import InputError
from trnbench.evidence.explain.causes import load_causes
from trnbench.evidence.explain.effects import Pricer
from trnbench.evidence.explain.explanation import Explanation, explained
from trnbench.evidence.explain.observed import ObservedStep, RunCompared, StepFigure, observed
from trnbench.evidence.predict import Predictor
from trnbench.evidence.readers.devices import DeviceSummary
from trnbench.evidence.rows import STEPS, EvidenceFile, RowFault, steps_of
from trnbench.evidence.training_cases import NO_LAYOUT, Reader
from trnbench.facts.calibration.stack_of import refuse_unknown_stack
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, counted, show
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.measured_files import GIB, device_files, measured_files
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.explain.question import ExplainQuestion, launched
from trnbench.verbs.measure.machine import with_machines

MOST_STEPS = 40
"""More rows of one cluster tell no more, and take their time."""
_SAME = 1e-9
"""Relative difference up to which two predictions are one."""


def run(catalog: Catalog, question: ExplainQuestion, *, progress: Progress = quiet) -> Explanation:
    """Return why measured steps take longer or less than predicted: causes, the likeliest first.

    `measurements`: the folder of a launched job, then its logs; or CSV files of measured steps; or
    logs of steps with model, place and layout. Output of neuron-monitor, neuron-profile or
    nvidia-smi may be added. `stack`: the training stack to predict with, where it is not the one
    that the rows name.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from trnbench import explain
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder) / "run.log"
    ...     _ = log.write_text("".join(f"step {i} | step time: 12.4 s\\n" for i in range(10)))
    ...     ran = {"model": "llama3.1-8b", "on": "trn1.32xlarge", "tp": 8, "micro_batch": 1}
    ...     found = explain(log, global_batch=64, sequence="4k", **ran)
    >>> len(found.measured.figures)
    1
    """
    pricer = Pricer()
    measured = compared(catalog, question, pricer, progress=progress)
    count = len({figure.step for figure in measured.figures})
    progress(1, 2, f"trying causes on {counted(count, 'row')}")
    return explained(pricer, load_causes(catalog), measured)


explain = verb_of("explain", ExplainQuestion, run)


def compared(
    catalog: Catalog, question: ExplainQuestion, pricer: Pricer, *, progress: Progress = quiet
) -> RunCompared:
    """Measured steps beside their predictions, without causes."""
    stack = None if question.stack is None else refuse_unknown_stack(catalog, question.stack)
    devices, others = device_files(question.files)
    files = measured_files(catalog, others, question.given)
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
            f"no row can be explained{': ' if reasons else ''}{reasons}", hint=_hint(unused)
        )
    if len(steps) > MOST_STEPS:
        raise InputError(
            f"{len(steps)} rows; expected at most {MOST_STEPS}, of one cluster",
            hint="`trnbench validate` compares many rows, `trnbench calibrate` learns from them",
        )
    figures = pricer.figures(steps)
    remarks = [remark for file in files for remark in file.remarks]
    return RunCompared(
        figures=figures,
        terms=pricer.terms(steps[0].ran),
        unused=tuple(unused),
        remarks=(*remarks, *_predicted_otherwise(question, figures)),
        devices=devices,
    )


def _hint(unused: Sequence[tuple[str, str]]) -> str:
    if any(reason.startswith(NO_LAYOUT) for _, reason in unused):
        return (
            "give the layout that ran (--tp, --pp, --zero, --recompute ...), or other nodes with "
            "--on; `trnbench train` shows what fits"
        )
    return (
        "`trnbench workload list` and `trnbench spec list` show models and instances, "
        "`trnbench validate --template` the columns of a file"
    )


def _predicted_otherwise(question: ExplainQuestion, figures: Sequence[StepFigure]) -> Iterator[str]:
    """Yield a remark where the folder of the job has another step time than is predicted now."""
    if question.job is None or not question.as_launched:
        return
    row, version = launched(question.job)
    now = next(figure.predicted for figure in figures if figure.quantity == "step")
    if abs(row["step_time_s"] / now - 1) > _SAME:
        then = show(row["step_time_s"], Dimension.SECONDS, digits=4)
        yield (
            f"{question.job}: was launched with {then} per step, by trnbench {version} or other "
            f"data files; trnbench {__version__} predicts {show(now, Dimension.SECONDS, digits=4)}"
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
