"""The matrix use case: products on chips, in time by either engine, and in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnbench import parsing
from trnbench.analytic.matrix.systolic import ArrayConventions, ArrayTime, array_time
from trnbench.analytic.matrix.time import MATRIX_PARTS, MatrixTime, matrix_time
from trnbench.answers.matrix import MatrixAnswer
from trnbench.app.use_case import Engine, Progress, answered_by, engines_of, quiet
from trnbench.catalog.provenance import Kind
from trnbench.catalog.search import Catalog, open_catalog
from trnbench.emulate.tensor_engine.matrix import MatrixRun, run_matrix
from trnbench.errors import InputError
from trnbench.hardware.chip import Chip
from trnbench.hardware.library import load_chip
from trnbench.mapping.tiling.legality import Precision
from trnbench.mapping.tiling.schedule import DEFAULT_KERNEL, Kernel
from trnbench.mapping.tiling.split import Cores
from trnbench.numerics.accuracy import ErrorReport, error_against_float64
from trnbench.numerics.memory import check_memory
from trnbench.numerics.operands import operands
from trnbench.numerics.product import ProductRecipe, matmul, product_problem
from trnbench.numerics.rounding import RoundingRule
from trnbench.parsing import literal, read
from trnbench.program.matrix import MatrixProduct, matrix_product, usual_result_format
from trnbench.records import Record, fields, replace
from trnbench.workload.library import load_matrix_suite
from trnbench.workload.product_text import parse_product
from trnbench.workload.suite import Product

MAX_TRACED = 2_000_000
"""Multiplications a trace may hold: beyond that the file has gigabytes and no viewer opens it."""
CHECKED_ROWS = 256


class MatrixRequest(Record):
    """What to run: every product in every format on every chip by every engine."""

    products: tuple[Product, ...]
    chips: tuple[str, ...]
    formats: tuple[str, ...]
    engines: tuple[str, ...] = ("analytic",)
    kernel: Kernel = DEFAULT_KERNEL
    cores: Cores = 1
    precision: Precision = "native"
    pattern: str | None = None
    rounding: RoundingRule = "rne"
    seed: int = 0
    check: bool = False
    trace: bool = False


def on_array(products: Sequence[Product], conventions: ArrayConventions) -> tuple[ArrayTime, ...]:
    """Return the cycles of products on a bare systolic array under stated conventions."""
    return tuple(
        array_time(matrix_product(p.m, p.k, p.n, batch=p.batch), conventions) for p in products
    )


def inputs_of(request: MatrixRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    products = [f"{p.m}x{p.k}x{p.n}x{p.batch}" for p in request.products]
    return {
        **{f.name: getattr(request, f.name) for f in fields(request) if f.name != "products"},
        "products": products,
    }


def run(
    catalog: Catalog,
    request: MatrixRequest,
    *,
    progress: Progress = quiet,
) -> tuple[MatrixAnswer, ...]:
    """Return the answers, grouped by product; `progress` hears of each one that is done."""
    chips = [load_chip(catalog, name) for name in request.chips]
    _refuse_what_cannot_be_traced(request)
    if request.check:
        _refuse_what_is_too_large(request, chips)
    total = len(request.products) * len(chips) * len(request.formats) * len(request.engines)
    closed = _closed_forms(request, chips) if "analytic" in request.engines else {}
    answers: list[MatrixAnswer] = []
    for i, product in enumerate(request.products):
        for chip in chips:
            for asked in request.formats:
                number_format = chip.format_named(asked)
                numbers = _numbers(request, product, number_format)
                for engine in request.engines:
                    what = f"{product.m}x{product.k}x{product.n} {number_format} on {chip.name}"
                    progress(len(answers), total, f"{what}, {engine}")
                    if engine == "analytic":
                        answer = closed[chip.name, number_format][i]
                    else:
                        answer = _emulated(request, product, chip, number_format)
                    answers.append(_with_numbers(answer, numbers))
    return tuple(answers)


@answered_by(run)
def matrix(
    shapes: str | Sequence[str | Product] = (),
    *,
    suite: str | None = None,
    on: str | Sequence[str] = (),
    dtype: str | Sequence[str] = (),
    engine: Engine = "analytic",
    kernel: Kernel = DEFAULT_KERNEL,
    cores: Cores | str = 1,
    precision: Precision = "native",
    sparsity: str | None = None,
    check: bool = False,
    rounding: RoundingRule = "rne",
    seed: int = 0,
    trace: bool = False,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
) -> MatrixRequest:
    """Return what matrix products take on chips, one answer for each format and engine.

    `shapes` such as "4096x8192x8192", or a `suite`, which brings chips and formats. `check`
    computes the products in their formats, against float64; `trace` keeps what was played.

    >>> from trnbench.app import matrix
    >>> (answer,) = matrix("4096x8192x8192", on="trainium2")
    >>> f"{answer.time_s * 1e3:.1f} ms, {answer.utilization:.0%} of peak"
    '7.0 ms, 100% of peak'
    """
    given = parsing.names("a product", shapes) if shapes else ()
    products = tuple(read(parse_product, shape) for shape in given)
    chips = parsing.names("--on", on) if on else ()
    formats = parsing.names("--dtype", dtype) if dtype else ()
    if bool(products) == (suite is not None):
        raise InputError("give products (such as 4096x8192x8192) or --suite NAME, one of the two")
    if suite is not None:
        listed = load_matrix_suite(catalog or open_catalog(), suite)
        products, chips = listed.products, chips or listed.chips
        formats = formats or listed.formats
    if not chips:
        raise InputError("on which chip? e.g. --on trainium1,trainium2")
    return MatrixRequest(
        products=products,
        chips=chips,
        formats=formats or ("bf16",),
        engines=engines_of(engine),
        kernel=literal("kernel", kernel, Kernel),
        cores="all" if cores == "all" else read(parsing.whole("--cores"), cores),
        precision=literal("precision", precision, Precision),
        pattern=sparsity,
        rounding=literal("rounding", rounding, RoundingRule),
        seed=seed,
        check=check,
        trace=trace,
    )


def _closed_forms(
    request: MatrixRequest, chips: Sequence[Chip]
) -> dict[tuple[str, str], list[MatrixAnswer]]:
    sizes = {
        name: [getattr(product, name) for product in request.products]
        for name in ("m", "k", "n", "batch")
    }
    found = {}
    for chip in chips:
        for asked in request.formats:
            number_format = chip.format_named(asked)
            program = _program(request, number_format, **sizes)
            time = _price(request, program, chip)
            found[chip.name, number_format] = [
                _closed_answer(request, time, chip, number_format, i)
                for i in range(len(request.products))
            ]
    return found


def _closed_answer(
    request: MatrixRequest, time: MatrixTime, chip: Chip, number_format: str, i: int
) -> MatrixAnswer:
    def at(values: object) -> float:
        flat = np.broadcast_to(np.asarray(values, dtype=float), (len(request.products),))
        return float(flat[i])

    legal = bool(np.broadcast_to(time.legal, (len(request.products),))[i])
    return MatrixAnswer(
        product=request.products[i],
        chip=chip.name,
        number_format=number_format,
        engine="analytic",
        kernel=time.kernel,
        cores=int(at(time.cores)),
        time_s=at(time.time_s),
        cycles=at(time.cycles),
        flop=at(time.product.flop),
        peak_flop_per_s=at(time.peak_flop_per_s),
        size_bytes=at(time.hbm_bytes),
        memory_bytes_per_s=at(time.memory_bytes_per_s),
        binds=str(np.broadcast_to(time.binds, (len(request.products),))[i]) if legal else "",
        parts_s={part: at(time.parts_s.get(part, 0.0)) for part in MATRIX_PARTS},
        evidence=_evidence(chip),
        reasons=() if legal else time.reasons,
    )


def _emulated(
    request: MatrixRequest, product: Product, chip: Chip, number_format: str
) -> MatrixAnswer:
    program = _program(
        request, number_format, m=product.m, k=product.k, n=product.n, batch=product.batch
    )
    played = _play(request, program, chip, trace=False)
    if request.trace and played.feasible:
        if played.multiplies > MAX_TRACED:
            raise InputError(
                f"a trace of this product would hold {played.multiplies:,} multiplications; "
                f"at most {MAX_TRACED:,} fit: take a smaller product"
            )
        played = _play(request, program, chip, trace=True)
    # Peak and memory rate are the machine's, not the play's: the same for both engines.
    limits = _price(request, program, chip)
    return MatrixAnswer(
        product=product,
        chip=chip.name,
        number_format=number_format,
        engine="emulate",
        kernel=played.kernel,
        cores=played.cores,
        time_s=played.time_s,
        cycles=played.cycles,
        flop=float(program.flop),
        peak_flop_per_s=float(limits.peak_flop_per_s),
        size_bytes=(played.read_bytes + played.written_bytes) * max(played.cores, 1),
        memory_bytes_per_s=float(limits.memory_bytes_per_s),
        binds=_busiest(played),
        parts_s={},
        engine_utilization=played.utilization,
        stalls_s=played.stalls_s,
        evidence=_evidence(chip),
        reasons=played.reasons,
        events=played.events,
    )


def _price(request: MatrixRequest, program: MatrixProduct, chip: Chip) -> MatrixTime:
    return matrix_time(
        program, chip, cores=request.cores, kernel=request.kernel, precision=request.precision
    )


def _play(request: MatrixRequest, program: MatrixProduct, chip: Chip, *, trace: bool) -> MatrixRun:
    return run_matrix(
        program,
        chip,
        cores=request.cores,
        kernel=request.kernel,
        precision=request.precision,
        trace=trace,
    )


def _busiest(played: MatrixRun) -> str:
    return max(played.utilization, key=lambda name: played.utilization[name], default="")


def _program(request: MatrixRequest, number_format: str, **sizes: int | list[int]) -> MatrixProduct:
    return matrix_product(
        sizes["m"],
        sizes["k"],
        sizes["n"],
        batch=sizes["batch"],
        format_a=number_format,
        format_out=usual_result_format(number_format),
        pattern=request.pattern,
    )


def _numbers(
    request: MatrixRequest, product: Product, number_format: str
) -> ErrorReport | str | None:
    """Return the errors of the emulated product against float64, or the reason for none."""
    if not request.check:
        return None
    recipe = _recipe(request, number_format)
    problem = product_problem(recipe, product.k)
    if problem is not None:
        return problem
    a, b = operands(product.m, product.k, product.n, batch=product.batch, seed=request.seed)
    return error_against_float64(matmul(a, b, recipe), a, b, rows=CHECKED_ROWS)


def _recipe(request: MatrixRequest, number_format: str) -> ProductRecipe:
    return ProductRecipe.named(
        format_in_a=number_format,
        format_in_b=number_format,
        format_out=usual_result_format(number_format),
        rounding=request.rounding,
        pattern=request.pattern,
        seed=request.seed,
    )


def _with_numbers(answer: MatrixAnswer, numbers: ErrorReport | str | None) -> MatrixAnswer:
    if isinstance(numbers, str):
        return replace(answer, reasons=(*answer.reasons, numbers))
    return replace(answer, numbers=numbers)


def _refuse_what_is_too_large(request: MatrixRequest, chips: Sequence[Chip]) -> None:
    for product in request.products:
        for number_format in {chip.format_named(f) for chip in chips for f in request.formats}:
            recipe = _recipe(request, number_format)
            if product_problem(recipe, product.k) is None:
                sizes = (product.m, product.k, product.n)
                check_memory(*sizes, batch=product.batch, recipe=recipe, check=True)


def _refuse_what_cannot_be_traced(request: MatrixRequest) -> None:
    if not request.trace:
        return
    one_each = (request.products, request.chips, request.formats)
    if any(len(several) != 1 for several in one_each) or "emulate" not in request.engines:
        raise InputError(
            "a trace shows one product in one format on one chip, played by --engine emulate"
        )


def _evidence(chip: Chip) -> Kind:
    compute = ("cores.tensor", "cores.dma", "cores.psum", "cores.sbuf", "cores.scalar")
    return chip.provenance.weakest(*compute, "multiprocessors", "memory.bandwidth_per_chip")
