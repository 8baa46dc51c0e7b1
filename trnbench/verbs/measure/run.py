"""The measuring use case: workloads run on the machine at hand, rows of evidence, and its specs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trnbench.errors import InputError
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.measure.device import chip_of
from trnbench.evidence.measure.machine import machine_files
from trnbench.evidence.measure.machine_fits import RowClock
from trnbench.evidence.measure.session import run_session
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, parts_of
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import Reader
from trnbench.facts.catalog.search import Catalog, user_folder
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.records import replace
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Cancel, Progress, never, quiet
from trnbench.verbs.measure.answer import MeasureAnswer, MeasuredRow, StepsVerdict
from trnbench.verbs.measure.machine import beside, write_specs
from trnbench.verbs.measure.question import MeasureQuestion

SCRIPT = Path(__file__).parents[2] / "evidence" / "measure" / "torch_steps.py"
"""The script that times steps of PyTorch."""


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
    if question.kind == "steps":
        return _timed_steps(catalog, question, progress, cancel)
    session = run_session(work, progress=progress, cancel=cancel)
    rows = tuple(MeasuredRow(cells=cells) for cells in session.rows)
    kinds = {row.text("kind") for row in rows}
    alone = session.device.get("ranks") == "1" and len(work.kinds) > 1
    return MeasureAnswer(
        device=session.device,
        rows=rows,
        missing=tuple(
            kind
            for kind in work.kinds
            if kind not in kinds and not (alone and kind == "collective")
        ),
        verdict=verdict_of(catalog, evidence_of(rows)) if "train" in kinds else None,
        skipped=tuple(session.skipped),
        remarks=tuple(session.remarks),
        stopped=session.stopped,
    )


def _timed_steps(
    catalog: Catalog, question: MeasureQuestion, progress: Progress, cancel: Cancel
) -> MeasureAnswer:
    """Steps of PyTorch on one device, beside what calibrations of that software predict."""
    worker = [sys.executable, str(SCRIPT), *question.script]
    session = run_session(question.work, progress=progress, cancel=cancel, worker=worker)
    backend, kind = session.device.get("backend", ""), session.device.get("device", "")
    chip = chip_of(backend, kind)
    name = question.name or _smallest(catalog, chip) or f"host-{chip or backend}"
    told = {"instance": name, **({"chip": chip} if chip else {})}
    rows = tuple(MeasuredRow(cells={**cells, **told}) for cells in session.rows)
    steps = next(iter(parts_of(evidence_of(rows))), None)
    compared = compare_training(Reader(catalog), steps) if steps else ()
    return MeasureAnswer(
        device={**session.device, **told},
        rows=rows,
        missing=() if rows else ("steps",),
        verdict=StepsVerdict(by="the calibrations", rests_on=(), wall=tuple(compared))
        if rows
        else None,
        skipped=tuple(session.skipped),
        remarks=(
            *session.remarks,
            *(() if question.name else (f"the machine is taken as {name}: --name says another",)),
        ),
        stopped=session.stopped,
    )


def _smallest(catalog: Catalog, chip: str | None) -> str | None:
    """Instance type with the fewest of a chip; None where none has it."""
    instances = (load_instance(catalog, name) for name in catalog.names("instances"))
    found = [(one.chips, one.name) for one in instances if one.chip == chip]
    return min(found)[1] if found else None


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
    return StepsVerdict(
        by="the other rows",
        rests_on=rested,
        wall=clocks["wall"],
        processor=clocks.get("processor", ()),
        reason=_reason(clocks["wall"], file),
    )


def _reason(steps: Sequence[Comparison], file: EvidenceFile) -> str:
    """Why the largest error may be what it is; empty where no step was predicted."""
    known = [step for step in steps if step.error is not None]
    if not known:
        return ""
    worst = max(known, key=lambda step: abs(step.error or 0.0))
    rows = {row.id: row for row in file.rows}
    row = rows[worst.id]
    scatter = row.positive_if_said("spread") or 0.0
    shape = row.text("shape").split()
    exchanged = {one.whole("ranks") for one in file.rows if one.text("kind") == "collective"}
    if abs(worst.error or 0.0) < 2 * scatter:
        why = f"its own repeats scatter by {scatter:.0%}"
    elif row.whole("ranks") > 1 and row.whole("ranks") not in exchanged:
        why = f"no exchange over {row.whole('ranks')} devices was timed"
    elif " ".join(shape[1:-2]) not in {one.text("shape") for one in file.rows}:
        why = "the passes of its layer were not timed"
    else:
        why = "kernels timed alone do not tell"
    return f"largest {worst.error:+.0%}, {row.text('shape')}: {why}"


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


def write_machine(catalog: Catalog, rows: Sequence[MeasuredRow]) -> tuple[list[Path], list[str]]:
    """Files of the measured machine, and what in them another chip tells.

    A machine is written once products of a format, passes over memory and a training step are
    there and right.
    """
    sound = [row for row in rows if not row.failed]
    if not any(row.text("kind") == "train" for row in sound):
        raise InputError("no training step was measured whose losses fell")
    machine = machine_files(catalog, evidence_of(sound).rows)
    return list(write_specs(machine.texts(), user_folder())), list(machine.inherited)
