"""The matrix use case: products on chips, in time by either engine, and in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from trnbench.engines.analytic.matrix.levels import ends_s, reached_time
from trnbench.engines.analytic.matrix.systolic import ArrayConventions, ArrayTime, array_time
from trnbench.engines.analytic.matrix.time import MATRIX_PARTS, MatrixTime, roofline
from trnbench.engines.analytic.step.compute import product_parts_s
from trnbench.engines.emulate.tensor_engine.machine import TraceEvent
from trnbench.engines.emulate.tensor_engine.matrix import MatrixRun, run_matrix
from trnbench.engines.execute.numbers.accuracy import (
    ErrorReport,
    check_memory,
    error_against_float64,
)
from trnbench.engines.execute.numbers.demonstrations import operands
from trnbench.engines.execute.numbers.product import ProductRecipe, matmul, product_problem
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, alone
from trnbench.facts.calibration.training_stack import load_chip_efficiency
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.library import Product
from trnbench.machine.tiling.kernel_levels import HAND_WRITTEN, at_level, level_of
from trnbench.machine.tiling.legality import format_reasons, rate_of
from trnbench.machine.tiling.schedule import core_count
from trnbench.program.matrix import MatrixProduct, matrix_product, usual_result_format
from trnbench.show.row import Row, cells
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.matrix.question import MatrixQuestion

_FIGURES = (
    "time_s time_low_s=low_s time_high_s=high_s cycles flop flop_per_s sheet_flop_per_s "
    "utilization bytes=size_bytes intensity_flop_per_byte peak_flop_per_s roofline_flop_per_s "
    "memory_bytes_per_s binds parts_s engine_utilization stalls_s"
)
"""What a product that cannot run has none of."""


class MatrixAnswer(Record):
    """One product on one chip by one engine; figures are NaN where it cannot run.

    `size_bytes` is what moves at the chip's memory. `evidence` is the weakest kind of chip figure
    the time rests on.
    """

    product: Product
    chip: str
    number_format: str
    engine: str
    kernel: str | None
    cores: int
    time_s: float
    cycles: float
    flop: float
    peak_flop_per_s: float
    size_bytes: float
    memory_bytes_per_s: float
    binds: str
    parts_s: Mapping[str, float]
    engine_utilization: Mapping[str, float] = field(default_factory=dict)
    stalls_s: Mapping[str, float] = field(default_factory=dict)
    evidence: Kind
    sheet_s: float | None = None
    """Time at the rates of the data sheet, where `time_s` has those that kernels reach."""
    kernels: str | None = None
    """Software that the kernel comes from; None on a GPU, where the library's alone is known."""
    low_s: float | None = None
    """Ends of the 80 % interval of `time_s`, where kernels of this software were timed."""
    high_s: float | None = None
    reasons: tuple[str, ...]
    numbers: ErrorReport | None = None
    events: tuple[TraceEvent, ...] = ()

    @property
    def feasible(self) -> bool:
        return not self.reasons

    @property
    def shape(self) -> str:
        product = self.product
        batch = f" x{product.batch}" if product.batch != 1 else ""
        return f"{product.m}x{product.k}x{product.n}{batch}"

    @property
    def flop_per_s(self) -> float:
        return self.flop / self.time_s

    @property
    def sheet_flop_per_s(self) -> float | None:
        return None if self.sheet_s is None else self.flop / self.sheet_s

    @property
    def utilization(self) -> float:
        """Return the achieved part of the tensor units' peak in this format."""
        return self.flop_per_s / self.peak_flop_per_s

    @property
    def intensity_flop_per_byte(self) -> float:
        return self.flop / self.size_bytes

    @property
    def roofline_flop_per_s(self) -> float:
        at = self.intensity_flop_per_byte
        return float(roofline(at, self.peak_flop_per_s, self.memory_bytes_per_s))

    def row(self) -> Row:
        """Return the row: times in seconds, sizes in bytes, rates in FLOP/s."""
        row = {
            **cells(self, "shape label=product.label m=product.m k=product.k n=product.n"),
            **cells(self, "batch=product.batch chip dtype=number_format engine kernel"),
            **cells(self, "kernels cores"),
            **cells(self, "feasible reasons evidence=evidence.word"),
            **cells(self if self.feasible else None, _FIGURES),
        }
        if self.numbers is not None:
            errors = "max_absolute_error=max_abs max_relative_error=max_rel"
            row |= cells(self.numbers, f"{errors} rms_relative_error=rms_rel bound_use")
            row["check"] = "ok" if self.numbers.within_bound else "FAILED"
        return row


MAX_TRACED = 2_000_000
"""Multiplications a trace may hold: beyond that the file has gigabytes and no viewer opens it."""
CHECKED_ROWS = 256


def on_array(products: Sequence[Product], conventions: ArrayConventions) -> tuple[ArrayTime, ...]:
    return tuple(
        array_time(matrix_product(p.m, p.k, p.n, batch=p.batch), conventions) for p in products
    )


def run(
    catalog: Catalog, question: MatrixQuestion, *, progress: Progress = quiet
) -> tuple[MatrixAnswer, ...]:
    """Return times of matrix products on chips, one answer for each format and engine.

    Answers are grouped by product; `progress` hears of each one that is done.

    >>> from trnbench import matrix
    >>> (answer,) = matrix("4096x8192x8192", on="trainium2")
    >>> f"{answer.time_s * 1e3:.1f} ms, {answer.utilization:.0%} of peak"
    '8.1 ms, 87% of peak'
    """
    chips = [load_chip(catalog, name) for name in question.chips]
    _refuse_what_cannot_be_traced(question)
    if question.check:
        _refuse_what_is_too_large(question, chips)
    total = len(question.products) * len(chips) * len(question.formats) * len(question.engines)
    closed = _closed_forms(catalog, question, chips) if "analytic" in question.engines else {}
    answers: list[MatrixAnswer] = []
    for i, product in enumerate(question.products):
        for chip in chips:
            for asked in question.formats:
                number_format = chip.format_named(asked)
                numbers = _numbers(question, product, number_format)
                for engine in question.engines:
                    what = f"{product.m}x{product.k}x{product.n} {number_format} on {chip.name}"
                    progress(len(answers), total, f"{what}, {engine}")
                    if engine == "analytic":
                        answer = closed[chip.name, number_format][i]
                    else:
                        answer = _emulated(question, product, chip, number_format)
                    answers.append(_with_numbers(answer, numbers))
    return tuple(answers)


matrix = verb_of("matrix", MatrixQuestion, run)


def _closed_forms(
    catalog: Catalog, question: MatrixQuestion, chips: Sequence[Chip]
) -> dict[tuple[str, str], list[MatrixAnswer]]:
    sizes = {
        name: [getattr(product, name) for product in question.products]
        for name in ("m", "k", "n", "batch")
    }
    found = {}
    for chip in chips:
        for asked in question.formats:
            number_format = chip.format_named(asked)
            program = _program(question, number_format, **sizes)
            time, sheet = _price(question, program, chip)
            if isinstance(chip.unit, Multiprocessors) and not time.reasons:
                time = _as_reached(sheet, chip, chip.unit, load_chip_efficiency(catalog, chip.name))
            found[chip.name, number_format] = [
                _closed_answer(question, (time, sheet), chip, number_format, i)
                for i in range(len(question.products))
            ]
    return found


def _as_reached(
    sheet: MatrixTime, chip: Chip, unit: Multiprocessors, known: ChipEfficiency
) -> MatrixTime:
    """The time of a GPU's kernels by themselves, at the shares of its peaks that they reach."""
    parts = dict(product_parts_s(sheet.product, chip, alone(known)))
    parts["fixed"] = parts["fixed"] + unit.program_start_s
    longest_s = reduce(np.maximum, (s for part, s in parts.items() if part != "fixed"))
    time_s = np.where(sheet.legal, longest_s + parts["fixed"], np.nan)
    return replace(sheet, time_s=time_s, parts_s=parts)


def _closed_answer(
    question: MatrixQuestion,
    times: tuple[MatrixTime, MatrixTime],
    chip: Chip,
    number_format: str,
    i: int,
) -> MatrixAnswer:
    time, sheet = times

    def at(values: object) -> float:
        flat = np.broadcast_to(np.asarray(values, dtype=float), (len(question.products),))
        return float(flat[i])

    low_s, high_s = _ends_s(question, chip, times)
    legal = bool(np.broadcast_to(time.legal, (len(question.products),))[i])
    return MatrixAnswer(
        product=question.products[i],
        chip=chip.name,
        number_format=number_format,
        engine="analytic",
        kernel=time.kernel,
        cores=int(at(time.cores)),
        time_s=at(time.time_s),
        cycles=at(time.cycles),
        flop=at(time.product.flop),
        sheet_s=None if time is sheet else at(sheet.time_s),
        kernels=question.kernels if isinstance(chip.unit, NeuronCores) else None,
        low_s=None if low_s is None else at(low_s),
        high_s=None if high_s is None else at(high_s),
        peak_flop_per_s=at(time.peak_flop_per_s),
        size_bytes=at(time.hbm_bytes),
        memory_bytes_per_s=at(time.memory_bytes_per_s),
        binds=str(np.broadcast_to(time.binds, (len(question.products),))[i]) if legal else "",
        parts_s={part: at(time.parts_s.get(part, 0.0)) for part in MATRIX_PARTS},
        evidence=_evidence(chip, question.kernels),
        reasons=() if legal else time.reasons,
    )


def _emulated(
    question: MatrixQuestion, product: Product, chip: Chip, number_format: str
) -> MatrixAnswer:
    program = _program(
        question, number_format, m=product.m, k=product.k, n=product.n, batch=product.batch
    )
    # Peak and memory rate are the machine's, not the play's: the same for both engines.
    _, limits = _price(question, program, chip)
    played = _play(question, program, chip, trace=False)
    level = level_of(chip, question.kernels) if played.feasible else None
    low_s, high_s = (None, None) if level is None else ends_s(played.time_s, limits, level)
    if question.trace and played.feasible:
        if played.multiplies > MAX_TRACED:
            raise InputError(
                f"a trace of this product would hold {played.multiplies:,} multiplications; "
                f"at most {MAX_TRACED:,} fit: take a smaller product"
            )
        played = _play(question, program, chip, trace=True)
    return MatrixAnswer(
        product=product,
        chip=chip.name,
        number_format=number_format,
        engine="emulate",
        kernel=played.kernel,
        cores=played.cores,
        time_s=played.time_s,
        cycles=played.time_s * limits.clock_hz,
        flop=float(program.flop),
        sheet_s=None if level is None else float(limits.time_s),
        kernels=question.kernels if isinstance(chip.unit, NeuronCores) else None,
        low_s=None if low_s is None else float(low_s),
        high_s=None if high_s is None else float(high_s),
        peak_flop_per_s=float(limits.peak_flop_per_s),
        size_bytes=(played.read_bytes + played.written_bytes) * max(played.cores, 1),
        memory_bytes_per_s=float(limits.memory_bytes_per_s),
        binds=max(played.utilization, key=played.utilization.__getitem__, default=""),
        parts_s={},
        engine_utilization=played.utilization,
        stalls_s=played.stalls_s,
        evidence=_evidence(chip, question.kernels),
        reasons=played.reasons,
        events=played.events,
    )


def _ends_s(
    question: MatrixQuestion, chip: Chip, times: tuple[MatrixTime, MatrixTime]
) -> tuple[FloatArray | None, FloatArray | None]:
    if times[0].reasons or not isinstance(chip.unit, NeuronCores):
        return None, None
    level = level_of(chip, question.kernels)
    return (None, None) if level is None else ends_s(times[0].time_s, times[1], level)


def _price(
    question: MatrixQuestion, program: MatrixProduct, chip: Chip
) -> tuple[MatrixTime, MatrixTime]:
    """Times as the kernels reach them, and at the data sheet's rates."""
    found, sheet = reached_time(
        program,
        chip,
        question.kernels,
        cores=question.cores,
        kernel=question.kernel,
        precision=question.precision,
    )
    if question.kernels != HAND_WRITTEN and isinstance(chip.unit, Multiprocessors):
        reason = f"{chip.name} has no {question.kernels} kernels; leave out --kernels"
        legal, reasons = np.zeros(program.shape, dtype=np.bool_), (*sheet.reasons, reason)
        found = sheet = replace(sheet, legal=legal, reasons=reasons)
    return found, sheet


def _play(
    question: MatrixQuestion, program: MatrixProduct, chip: Chip, *, trace: bool
) -> MatrixRun:
    unit, worked = chip.unit, chip
    if isinstance(unit, NeuronCores):
        level = level_of(chip, question.kernels)
        if level is not None and level.unhidden_per_core_bytes_per_s is not None:
            reason = (
                f"the instructions of {question.kernels} kernels are not published; "
                "take --engine analytic"
            )
            return MatrixRun(chip=chip.name, kernel=question.kernel, cores=0, reasons=(reason,))
        if level is not None and not format_reasons(program, chip, question.precision):
            busy = core_count(question.cores, chip)
            worked = at_level(chip, rate_of(program, unit, question.precision), level, busy)
    return run_matrix(
        program,
        worked,
        cores=question.cores,
        kernel=question.kernel,
        precision=question.precision,
        trace=trace,
    )


def _program(
    question: MatrixQuestion, number_format: str, **sizes: int | list[int]
) -> MatrixProduct:
    return matrix_product(
        sizes["m"],
        sizes["k"],
        sizes["n"],
        batch=sizes["batch"],
        format_a=number_format,
        format_out=usual_result_format(number_format),
        pattern=question.pattern,
    )


def _numbers(
    question: MatrixQuestion, product: Product, number_format: str
) -> ErrorReport | str | None:
    """Return the errors of the emulated product against float64, or the reason for none."""
    if not question.check:
        return None
    recipe = _recipe(question, number_format)
    problem = product_problem(recipe, product.k)
    if problem is not None:
        return problem
    a, b = operands(product.m, product.k, product.n, batch=product.batch, seed=question.seed or 0)
    return error_against_float64(matmul(a, b, recipe), a, b, rows=CHECKED_ROWS)


def _recipe(question: MatrixQuestion, number_format: str) -> ProductRecipe:
    return ProductRecipe.named(
        format_in_a=number_format,
        format_in_b=number_format,
        format_out=usual_result_format(number_format),
        rounding=question.rounding or "rne",
        pattern=question.pattern,
        seed=question.seed or 0,
    )


def _with_numbers(answer: MatrixAnswer, numbers: ErrorReport | str | None) -> MatrixAnswer:
    if isinstance(numbers, str):
        return replace(answer, reasons=(*answer.reasons, numbers))
    return replace(answer, numbers=numbers)


def _refuse_what_is_too_large(question: MatrixQuestion, chips: Sequence[Chip]) -> None:
    for product in question.products:
        for number_format in {chip.format_named(f) for chip in chips for f in question.formats}:
            recipe = _recipe(question, number_format)
            if product_problem(recipe, product.k) is None:
                sizes = (product.m, product.k, product.n)
                check_memory(*sizes, batch=product.batch, recipe=recipe, check=True)


def _refuse_what_cannot_be_traced(question: MatrixQuestion) -> None:
    if not question.trace:
        return
    one_each = (question.products, question.chips, question.formats)
    if any(len(several) != 1 for several in one_each) or "emulate" not in question.engines:
        raise InputError(
            "a trace shows one product in one format on one chip, played by --engine emulate"
        )


def _evidence(chip: Chip, kernels: str) -> Kind:
    share = f"cores.kernels.{kernels}.share"
    compute = ("cores.tensor", "cores.dma", "cores.psum", "cores.sbuf", "cores.scalar")
    return chip.provenance.weakest(*compute, share, "multiprocessors", "memory.bandwidth_per_chip")
