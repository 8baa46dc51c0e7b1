"""Measured steps and kernels usable for a fit, and rejected rows with reasons."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from trnbench.errors import InputError, UnknownNameError
from trnbench.evidence.attention_kernels import KERNEL_SCATTER, attention_kernel, is_attention
from trnbench.evidence.fit.bounds import impossible
from trnbench.evidence.fit.memory import HeldRow
from trnbench.evidence.fit.problem import ASSUMED_SCATTER, KERNEL, ROW_SCATTER, Measured
from trnbench.evidence.gpu_kernels import gpu_kernel
from trnbench.evidence.kernels import seconds
from trnbench.evidence.predict import Predictor, PricedSteps, StepPart
from trnbench.evidence.rows import GPU_KERNELS, EvidenceFile, EvidenceRow, RowFault
from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.training_stack import TrainingEfficiency, TrainingStack
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.weights import parameter_count
from trnbench.predict.fit import LayoutMemory
from trnbench.predict.setup import family_of
from trnbench.program.matrix import MatrixProduct

FIT = "fit"
"""Value of `use` for fitting rows, in files that keep others for validation."""
_OPEN = ("micro_batch", "recompute", "vpp")
"""Assumptions with a strong effect on a row's time."""

_TRUSTED = {"medium": 0.045, "low": 0.08}
"""Log scatter of rows with less trust by their collector."""
SMALL = 1e9
"""Parameters below which the steps of a model are judged apart: their hosts set the pace."""
_STARTED_S = 0.01
"""Fixed cost of a part of a step, s, which a stack counts once with the step."""


class FitRows(Record, eq=False):
    """Rows to fit, rows with measured memory, and (id, reason) of the others."""

    rows: tuple[Measured, ...]
    held: tuple[HeldRow, ...]
    unused: tuple[tuple[str, str], ...]


def marked_rows(files: Sequence[EvidenceFile], *, also: Collection[str] = ()) -> list[EvidenceFile]:
    """Files reduced to the rows marked `fit` or with an id in `also`.

    A file without marked rows stays whole.
    """
    known = {row.id for file in files for row in file.rows}
    for name in also:
        if name not in known:
            raise UnknownNameError("measured row", name, known)
    found = []
    for file in files:
        marked = tuple(row for row in file.rows if row.text("use") == FIT or row.id in also)
        found.append(replace(file, rows=marked or file.rows))
    return found


def measured_rows(
    catalog: Catalog, files: Iterable[EvidenceFile], *, stack: TrainingStack | None = None
) -> FitRows:
    """The rows to fit, all by `stack` where one is named."""
    reader, predictor, priced = Reader(catalog, stack=stack), Predictor(), PricedSteps()
    read = [(row, case) for file in files for row, case in _cases(reader, file)]
    predictor.lower_together(case for _, case in read if not isinstance(case, str))
    rows: list[Measured] = []
    held: list[HeldRow] = []
    unused: list[tuple[str, str]] = []
    for row, case in read:
        held += _held(predictor, case)
        found = _measured((predictor, priced), row, case, named=stack is not None)
        if isinstance(found, str):
            unused.append((row.id, found))
        else:
            rows += found
    return FitRows(rows=tuple(rows), held=tuple(held), unused=tuple(unused))


def _cases(reader: Reader, file: EvidenceFile) -> Iterator[tuple[EvidenceRow, EvidenceCase | str]]:
    for row, case in zip(file.rows, reader.cases(file), strict=True):
        if isinstance(case, str) or case.step.ran:
            yield row, case


def _held(predictor: Predictor, case: EvidenceCase | str) -> Iterator[HeldRow]:
    """Yield a case with measured memory and its layout."""
    if isinstance(case, str) or case.step.memory is None:
        return
    try:
        ((_, one), *others) = predictor.prepared(case).tried[0]
    except RowFault:
        return
    if not others:
        setup = case.setup
        yield HeldRow(
            id=case.step.id,
            configuration=case.configuration,
            memory=LayoutMemory(
                program=one.program,
                platform=setup.platform,
                stack=setup.stack,
                logical_size=setup.logical_size,
                index=one.index,
            ),
            of=case.logged if case.step.memory.of == "rank" else "chip",
            measured_bytes=case.step.memory.bytes,
        )


def _measured(
    by: tuple[Predictor, PricedSteps], row: EvidenceRow, case: EvidenceCase | str, *, named: bool
) -> list[Measured] | str:
    """The measured step and its parts, or the reason for rejecting the row."""
    predictor, priced = by
    if isinstance(case, str):
        return case
    if not case.setup.own_stack and not named:
        return "no training stack is known for its software; name one with --stack"
    step = case.step
    if step.step_time_s is None:
        return "step_time_s: not given"
    try:
        prepared = predictor.prepared(case)
        predicted_s = float(prepared.times_s(case.setup.efficiency, priced).min())
    except RowFault as fault:
        return str(fault)
    why_not = impossible(prepared, step.step_time_s, predicted_s, priced)
    if why_not is not None:
        return why_not
    parts: tuple[tuple[StepPart, float | None], ...] = (
        ("device", step.device_s_per_microbatch),
        ("optimizer", step.optimizer_s),
    )
    whole = Measured(
        id=step.id,
        configuration=case.configuration,
        measured_s=step.step_time_s,
        scatter=_scatter(row, case),
        times_s=prepared.times_s,
        nodes=case.setup.nodes,
        family=family_of(case.setup.model),
        small=parameter_count(case.setup.model) < SMALL,
        instance=case.setup.platform.instance.name,
        layout=case.layout,
        node_ranks=case.setup.platform.ranks(case.setup.logical_size),
        chips=case.setup.chips,
        efficiency=case.setup.efficiency,
    )
    return [
        whole,
        *(
            replace(
                whole,
                measured_s=seconds,
                times_s=partial(prepared.times_s, of=part),
                quantity=part,
                scatter=math.hypot(whole.scatter, _STARTED_S / seconds),
            )
            for part, seconds in parts
            if seconds is not None
        ),
    ]


def _scatter(row: EvidenceRow, case: EvidenceCase) -> float:
    known = ASSUMED_SCATTER if any(a.name in _OPEN for a in case.assumed) else ROW_SCATTER
    return max(known, _TRUSTED.get(row.text("trust").lower(), 0.0))


def measured_kernels(
    catalog: Catalog, files: Iterable[EvidenceFile], steps: Sequence[Measured]
) -> FitRows:
    """Attention kernels of files on the chips of steps, all kernels of GPUs, and rejected ones.

    Kernels of one name are one configuration: they share their deviation from the chip's other
    kernels. A GPU's library has a kernel of its own for every product.
    """
    known = {row.chip: row.efficiency for row in steps}
    rows: list[Measured] = []
    unused: list[tuple[str, str]] = []
    for file in files:
        of_gpu = file.set == GPU_KERNELS
        for row in file.rows:
            if not (row.text("use") == FIT if of_gpu else is_attention(row)):
                continue
            try:
                if of_gpu:
                    rows.append(_measured_on_gpu(catalog, row, known))
                else:
                    rows.append(_measured_kernel(catalog, row, file.rows, known))
            except (RowFault, InputError) as fault:
                unused.append((row.id, str(fault)))
    return FitRows(rows=tuple(rows), held=(), unused=tuple(unused))


def _measured_kernel(
    catalog: Catalog,
    row: EvidenceRow,
    rows: Sequence[EvidenceRow],
    known: dict[str, TrainingEfficiency],
) -> Measured:
    kernel = attention_kernel(row, rows)
    if not kernel.flash:
        raise RowFault("holds whole rows of scores: says nothing about long sequences")
    efficiency = _efficiency_on(kernel.chip, known)
    chip = load_chip(catalog, kernel.chip)

    def times_s(efficiency: TrainingEfficiency) -> FloatArray:
        return np.reshape(kernel.times_s(chip, efficiency.chip), (1, -1))

    times_s(efficiency)  # refuses chips without attention numbers
    name = row.text("kernel").split()[0].rstrip(",")
    return Measured(
        id=row.id,
        configuration=f"{kernel.chip} {name}",
        measured_s=seconds(row),
        scatter=KERNEL_SCATTER,
        times_s=times_s,
        efficiency=efficiency,
        quantity=KERNEL,
    )


def _measured_on_gpu(
    catalog: Catalog, row: EvidenceRow, known: dict[str, TrainingEfficiency]
) -> Measured:
    kernel = gpu_kernel(catalog, row)
    chip = load_chip(catalog, kernel.chip)
    alike = not isinstance(kernel.work, MatrixProduct)

    def times_s(efficiency: TrainingEfficiency) -> FloatArray:
        return np.reshape(kernel.times_s(chip, efficiency.chip), (1, -1))

    return Measured(
        id=row.id,
        configuration=f"{kernel.chip} {kernel.family if alike else row.id}",
        measured_s=row.positive("time_s"),
        scatter=kernel.scatter_on(chip),
        times_s=times_s,
        efficiency=_efficiency_on(kernel.chip, known),
        quantity=KERNEL,
        by_chip=True,
    )


def _efficiency_on(chip: str, known: dict[str, TrainingEfficiency]) -> TrainingEfficiency:
    """The efficiency of a fitted step on a chip.

    No release of the software around it makes a kernel by itself faster or slower.
    """
    for one in known.values():
        if chip in one.chip.chips:
            return replace(one, stack=replace(one.stack, release=None))
    raise RowFault(f"no step on {chip} is fitted")
