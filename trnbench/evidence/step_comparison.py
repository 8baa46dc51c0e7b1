"""Files of measured steps with their predictions, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trnbench.evidence.collectives import fitted
from trnbench.evidence.comparison import Comparison, RowClass
from trnbench.evidence.predict import Mixture, Predictor
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet, RowFault
from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import REINFORCED
from trnbench.facts.workload.layout import RANK_DEGREES, Layout
from trnbench.predict.setup import family_of

_TRAINIUM = "trn"
"""Prefix of instances with Trainium chips."""


def compare_training(reader: Reader, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Every row of a file of steps beside its prediction."""
    (compared,) = compare_files(reader, [file])
    return compared


def compare_files(
    reader: Reader, files: Sequence[EvidenceFile]
) -> Iterator[tuple[Comparison, ...]]:
    """The rows of each file of steps beside their predictions; like layouts are priced together."""
    predictor, cases = Predictor(), [reader.cases(file) for file in files]
    predictor.work_through(
        [case for of_file in cases for case in of_file if not isinstance(case, str)]
    )
    for file, of_file in zip(files, cases, strict=True):
        yield tuple(
            _compared(predictor, file, row, case)
            for row, case in zip(file.rows, of_file, strict=True)
        )


def _compared(
    predictor: Predictor, file: EvidenceFile, row: EvidenceRow, case: EvidenceCase | str
) -> Comparison:
    blank = Comparison.of_row(file, row, model="model", system="instance")
    if isinstance(case, str):
        trainium = blank.system.lower().startswith(_TRAINIUM)
        return replace(blank, set=_set_on(trainium=trainium), reason=case)
    setup, stack = case.setup, case.setup.stack
    where, layout, held = setup.platform.instance.name, case.layout, case.step.memory
    known = replace(
        blank,
        set=_set_on(trainium=isinstance(setup.platform.chip.unit, NeuronCores)),
        platform=where,
        nodes=setup.nodes,
        ranks=int(layout.ranks),
        layout=_layout_text(layout),
        family=family_of(setup.model),
        precision=layout.precision,
        configuration=case.configuration,
        question=_question(case),
        tokens=float(layout.global_batch * layout.sample_tokens),
        measured_s=case.step.step_time_s,
        memory_measured_bytes=held.bytes if held else None,
        memory_of=held.of if held else None,
        outcome=case.step.outcome,
        data=case.step.data,
        fitted=fitted(stack.told_by, row.id),
        stack=stack.name,
        basis=setup.basis,
        own_stack=setup.own_stack,
        software=case.software,
        kind=case.kind,
        rests_on=_rests_on(case, told=fitted(stack.told_by, row.id)),
        assumed=tuple(one.text for one in case.assumed),
        settled=case.assumed,
    )
    try:
        prepared = predictor.prepared(case)
    except RowFault as fault:
        return replace(known, reason=str(fault))
    try:
        found = predictor.predict(case)
    except RowFault as fault:
        return _with_memory(predictor, case, replace(known, reason=str(fault)), prepared.tried[0])
    assumed = known.assumed
    if case.step.ran and not found.fits:
        assumed = (*assumed, "memory: enough, though by the model it is not")
    timed = replace(
        known,
        layout=_layout_text(found.layout),
        predicted_s=found.time_s,
        low_s=found.low_s,
        high_s=found.high_s,
        # A utilisation counts no FLOP of writing: steps with answers are no part of baselines.
        ideal_s=None if case.layout.job in REINFORCED else found.ideal_s,
        assumed=assumed,
    )
    return _with_memory(predictor, case, timed, found.mixture)


def _rests_on(case: EvidenceCase, *, told: bool) -> RowClass:
    setup, step = case.setup, case.step
    # The width of steps with answers was set from those marked fit.
    if told or (case.layout.job in REINFORCED and step.published and step.use == "fit"):
        return "seen"
    if not setup.own_stack and not setup.stack.frameworks:
        return "population"
    if setup.basis != "measured":
        return "carried over"
    return "beyond rows" if any(setup.beyond_rows(case.layout).values()) else "inside rows"


def _question(case: EvidenceCase) -> str:
    """Key of rows that differ only in layout."""
    setup, layout = case.setup, case.layout
    where = f"{setup.platform.instance.name}:{setup.nodes}"
    words = (setup.model.name, where, layout.sequence, layout.precision, setup.stack.name)
    return " ".join(map(str, words))


def _set_on(*, trainium: bool) -> EvidenceSet:
    return "trainium_training" if trainium else "gpu_training"


def _with_memory(
    predictor: Predictor, case: EvidenceCase, row: Comparison, mixture: Mixture
) -> Comparison:
    held = predictor.memory(case, mixture)
    return replace(
        row,
        memory_predicted_bytes=held.bytes,
        memory_low_bytes=held.low_bytes,
        memory_high_bytes=held.high_bytes,
        memory_of=row.memory_of or "rank",
        fit_probability=held.fit_probability,
    )


def _layout_text(layout: Layout) -> str:
    """Short text of a layout: degrees above 1, the micro-batch, and modes in use."""
    words = [f"{name}{getattr(layout, name)}" for name in RANK_DEGREES if getattr(layout, name) > 1]
    words.append(f"mbs{layout.micro_batch}")
    if layout.zero:
        words.append(f"zero{layout.zero}")
    if layout.sequence_parallel:
        words.append("sp")
    if layout.recompute != "none":
        words.append(layout.recompute)
    return " ".join(words)
