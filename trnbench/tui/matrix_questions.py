"""What the Matrix view asks; answered in a process of its own, so nothing here knows textual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trnbench.report.report import Report

if TYPE_CHECKING:
    from trnbench.answers.matrix import MatrixAnswer
    from trnbench.app.verbs.matrix import MatrixRequest
    from trnbench.catalog.search import Catalog
    from trnbench.mapping.tiling.schedule import Kernel
    from trnbench.tui.work_process import WorkHooks
    from trnbench.workload.suite import Product

GRID = (128, 512, 2048, 8192, 32768)
"""Sizes of the heat map along m and n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixQuestion:
    """The products, or the suite, and how they are to run."""

    products: tuple[Product, ...]
    suite: str | None
    chips: tuple[str, ...]
    formats: tuple[str, ...]
    pattern: str | None
    kernel: Kernel
    cores: str

    def request(self, catalog: Catalog) -> MatrixRequest:
        """Return what the use case takes."""
        from trnbench.app.verbs import matrix as use_case

        return use_case.matrix.request(
            () if self.suite else self.products,
            suite=self.suite,
            on=self.chips,
            dtype=self.formats,
            sparsity=self.pattern,
            kernel=self.kernel,
            cores=self.cores,
            catalog=catalog,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What limits a chip in a format: the tensor units' peak and the memory's rate."""

    chip: str
    number_format: str
    peak_flop_per_s: float
    memory_bytes_per_s: float
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFound:
    """The products with their rows, and the roofs that they stand under."""

    report: Report
    answers: tuple[MatrixAnswer, ...]
    roofs: tuple[Roof, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShares:
    """How busy the engines of a core were, as played, and what the tensor engine waited for."""

    title: str
    busy: Mapping[str, float]
    stalls: Mapping[str, float]
    reasons: tuple[str, ...]


def matrix_rows(catalog: Catalog, question: MatrixQuestion, hooks: WorkHooks) -> MatrixFound:
    """Return the answers in closed form."""
    from trnbench.app.verbs import matrix as use_case
    from trnbench.report.matrix import matrix_report

    request = question.request(catalog)
    answers = use_case.run(catalog, request, progress=hooks.progress)
    report = matrix_report(answers, use_case.inputs_of(request))
    feasible = [answer for answer in answers if answer.feasible]
    kinds = dict.fromkeys((a.chip, a.number_format) for a in feasible)
    roofs = []
    for chip, number_format in kinds:
        mine = [a for a in feasible if (a.chip, a.number_format) == (chip, number_format)]
        roofs.append(
            Roof(
                chip=chip,
                number_format=number_format,
                peak_flop_per_s=mine[0].peak_flop_per_s,
                memory_bytes_per_s=mine[0].memory_bytes_per_s,
                points=tuple((a.intensity_flop_per_byte, a.flop_per_s) for a in mine),
            )
        )
    return MatrixFound(
        report=replace(report, people=None), answers=tuple(answers), roofs=tuple(roofs)
    )


def matrix_heat(
    catalog: Catalog, question: MatrixQuestion, k: int, hooks: WorkHooks
) -> dict[str, dict[tuple[int, int], float | None]]:
    """Return utilisation by (m, n) for each chip and format, at one k."""
    from trnbench.app.verbs import matrix as use_case
    from trnbench.workload.suite import Product

    products = tuple(Product(m=m, k=k, n=n) for m in GRID for n in GRID)
    request = replace(question.request(catalog), products=products)
    found: dict[str, dict[tuple[int, int], float | None]] = {}
    for answer in use_case.run(catalog, request, progress=hooks.progress):
        cell = (answer.product.m, answer.product.n)
        share = answer.utilization if answer.feasible else None
        found.setdefault(f"{answer.chip} {answer.number_format}", {})[cell] = share
    return found


def matrix_engines(
    catalog: Catalog, question: MatrixQuestion, product: Product, chip: str, hooks: WorkHooks
) -> EngineShares:
    """Return how busy the engines are while the emulator plays one product on one chip."""
    from trnbench.app.verbs import matrix as use_case

    request = replace(
        question.request(catalog), products=(product,), chips=(chip,), engines=("emulate",)
    )
    request = replace(request, formats=request.formats[:1])
    (answer,) = use_case.run(catalog, request, progress=hooks.progress)
    stalls = {
        cause: time_s / answer.time_s for cause, time_s in answer.stalls_s.items() if time_s > 0
    }
    shape = f"{product.m}x{product.k}x{product.n}"
    return EngineShares(
        title=f"{shape} {answer.number_format} on a core of {answer.chip}, played",
        busy=dict(answer.engine_utilization),
        stalls=stalls,
        reasons=answer.reasons,
    )
