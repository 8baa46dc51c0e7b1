"""The measuring use case: workloads run on the machine at hand, rows of evidence, and its specs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trnbench.errors import InputError
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.measure.machine import machine_files
from trnbench.evidence.measure.machine_fits import RowClock
from trnbench.evidence.measure.session import run_session
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, parts_of
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import Reader
from trnbench.facts.catalog.search import Catalog, user_folder
from trnbench.facts.records import replace
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Cancel, Progress, never, quiet
from trnbench.verbs.measure.answer import MeasureAnswer, MeasuredRow, StepsVerdict
from trnbench.verbs.measure.machine import beside, write_specs
from trnbench.verbs.measure.question import MeasureQuestion


def run(
    catalog: Catalog,
    question: MeasureQuestion,
    *,
    progress: Progress = quiet,
    cancel: Cancel = never,
) -> MeasureAnswer:
    """Return workloads timed on all devices of the machine at hand at once.

    `kind`: matrix (products, passes over memory, launches), collective, train (steps of three
    small decoders), or all. `suite`: quick or full. `device`: auto, cpu, cuda or neuron; of a host
    without others, `host_devices` are made. No measurement begins after `budget` seconds. `name`:
    what the machine is called in the rows; unasked host-cpu, or after its chip. `decoder`: sizes of
    decoders to train in place of those three, such as layers=4,hidden=512,tp=2.

    >>> from trnbench import measure
    >>> answer = measure("matrix", device="cpu", host_devices=2, budget="0.1s")
    >>> [row.text("kernel") for row in answer.rows]
    ['program', 'kernel']
    """
    work = question.work
    session = run_session(work, progress=progress, cancel=cancel)
    rows = tuple(MeasuredRow(cells=cells) for cells in session.rows)
    kinds = {row.text("kind") for row in rows}
    return MeasureAnswer(
        device=session.device,
        rows=rows,
        missing=tuple(kind for kind in work.kinds if kind not in kinds),
        verdict=verdict_of(catalog, evidence_of(rows)) if "train" in kinds else None,
        skipped=tuple(session.skipped),
        remarks=tuple(session.remarks),
        stopped=session.stopped,
    )


measure = verb_of("measure", MeasureQuestion, run)


def verdict_of(catalog: Catalog, file: EvidenceFile) -> StepsVerdict | None:
    """Return the training steps of a file as predicted from its other rows; None where it has
    no steps, or too little besides.
    """
    steps = [part for part in parts_of(file) if part.set == "steps"]
    if not steps:
        return None
    clocks: dict[RowClock, tuple[Comparison, ...]] = {}
    rested: tuple[str, ...] = ()
    shared = file.rows[0].text("backend") == "cpu"
    wanted: tuple[RowClock, ...] = ("wall", "processor") if shared else ("wall",)
    for clock in wanted:
        try:
            machine = machine_files(catalog, file.rows, clock=clock)
        except InputError:
            return None
        rested = machine.rows
        compared = compare_training(Reader(beside(catalog, [machine.texts()])), steps[0])
        by_id = {row.id: row for row in steps[0].rows}
        clocks[clock] = tuple(
            replace(step, measured_s=_measured_s(by_id[step.id], clock)) for step in compared
        )
    return StepsVerdict(rests_on=rested, wall=clocks["wall"], processor=clocks.get("processor", ()))


def _measured_s(row: EvidenceRow, clock: RowClock) -> float:
    if clock == "wall":
        return row.positive("step_time_s")
    return row.positive("processor_s") / min(row.whole("cores"), row.whole("ranks"))


def evidence_of(rows: Sequence[MeasuredRow]) -> EvidenceFile:
    """Return measured rows as the file of them would be read."""
    read = (
        EvidenceRow(id=row.cells["id"], line=line, cells=row.cells)
        for line, row in enumerate(rows, start=2)
    )
    return EvidenceFile(name="measured", set="measured", rows=tuple(read))


def write_machine(catalog: Catalog, rows: Sequence[MeasuredRow]) -> tuple[Path, ...]:
    machine = machine_files(catalog, evidence_of(rows).rows)
    return write_specs(machine.texts(), user_folder())
