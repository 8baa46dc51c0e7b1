"""`trnbench matrix`: matrix products on chips, in time and in numbers."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.catalog.whole_file import write_whole
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.engine import EngineChoice
from trnbench.cli.names import completes
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError
from trnbench.records import replace

if TYPE_CHECKING:
    from trnbench.analytic.matrix.systolic import Dataflow
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output

_ARRAY = re.compile(r"(\d{1,6})x(\d{1,6}):(ws|is|os)")
_FLOWS: dict[str, Dataflow] = {"ws": "ws", "is": "is", "os": "os"}


class KernelOption(StrEnum):
    """The kernel schedules, from the simplest to the best."""

    NAIVE = "naive"
    HOISTED = "hoisted"
    BLOCKED_FREE = "blocked-free"
    BLOCKED = "blocked"


class PrecisionOption(StrEnum):
    """How the tensor engine takes a format: its documented passes, or its fast mode."""

    NATIVE = "native"
    FAST = "fast"


class RoundingMode(StrEnum):
    """How results are rounded: to nearest even, or stochastically."""

    RNE = "rne"
    SR = "sr"


@keeping(plots=True)
def matrix(
    out: Output,
    catalog: Catalog,
    shapes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MxKxN[xBATCH]...]", help="Products, e.g. 4096x8192x8192."),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", help="A matrix suite.", autocompletion=completes(("matrix",))),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="CHIP,...",
            help="Chips; default: the suite's.",
            autocompletion=completes(("chips",), several=True),
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="FORMAT,...", help="Formats; default: bf16, the suite's.")
    ] = None,
    engine: Annotated[
        EngineChoice, typer.Option(help="Closed form, instruction by instruction.")
    ] = (EngineChoice.ANALYTIC),
    kernel: Annotated[KernelOption, typer.Option(help="Kernel schedule of a NeuronCore.")] = (
        KernelOption.BLOCKED
    ),
    cores: Annotated[
        str, typer.Option(metavar="1|N|all", help="Physical cores of the chip to use.")
    ] = "1",
    precision: Annotated[
        PrecisionOption, typer.Option(help="Tensor-engine mode of formats that have a fast one.")
    ] = PrecisionOption.NATIVE,
    sparsity: Annotated[
        str | None, typer.Option(metavar="KEEP:GROUP", help="Structured sparsity, e.g. 4:16.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compute the product in the format, against float64.")
    ] = False,
    rounding: Annotated[
        RoundingMode | None, typer.Option(help="With --check: rounding of results; default: rne.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="With --check: seed of operands and rounding; default: 0.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace of the play.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw rooflines.")] = False,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="RxC:ws|is|os",
            help="Instead of a chip: cycles of a bare systolic array, counted as SCALE-Sim does.",
        ),
    ] = None,
) -> int:
    """Time matrix products on a core or a whole chip, and compute them in its number formats.

    Times are of one core unless --cores says otherwise. Utilisation is of the tensor units' peak
    in the format, not of the vendor's headline.
    """
    from trnbench.app.verbs import matrix as use_case
    from trnbench.report.matrix import matrix_report, matrix_trace

    if array is not None:
        chosen = (suite, on, dtype, sparsity, rounding, seed, trace)
        defaults = (engine, kernel, precision, cores) == (
            *(EngineChoice.ANALYTIC, KernelOption.BLOCKED, PrecisionOption.NATIVE, "1"),
        )
        if any(value is not None for value in chosen) or check or plot or not defaults:
            raise InputError("--array stands alone: give it products and an output, no more")
        return _bare_array(out, shapes or [], array)
    if plot:
        out.refuse_plot()
    if not check and (rounding is not None or seed is not None):
        raise InputError("--rounding and --seed act on numbers; they need --check")
    request = use_case.matrix.request(
        shapes or (),
        suite=suite,
        on=on if on is not None else (),
        dtype=dtype if dtype is not None else (),
        engine=engine.value,
        kernel=kernel.value,
        cores=cores,
        precision=precision.value,
        sparsity=sparsity,
        check=check,
        rounding=(rounding or RoundingMode.RNE).value,
        seed=seed or 0,
        trace=trace is not None,
        catalog=catalog,
    )
    with ProgressLine(quiet=out.quiet) as progress:
        answers = use_case.run(catalog, request, progress=progress)
    if trace is not None and any(answer.events for answer in answers):
        write_whole(trace, matrix_trace(answers))
        out.narrate(f"trace: {trace} (open it at ui.perfetto.dev)")
    out.write(matrix_report(answers, use_case.inputs_of(request), plot=plot))
    good = all(a.feasible and (a.numbers is None or a.numbers.within_bound) for a in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


def _bare_array(out: Output, shapes: list[str], array: str) -> int:
    from trnbench.analytic.matrix.systolic import SCALE_SIM
    from trnbench.app.verbs import matrix as use_case
    from trnbench.report.systolic import systolic_report
    from trnbench.workload.product_text import parse_product

    match = _ARRAY.fullmatch(array)
    if match is None or "0" in (match[1].lstrip("0") or "0", match[2].lstrip("0") or "0"):
        raise InputError(f"--array: cannot read {array!r}; write e.g. 128x128:ws, or is, or os")
    if not shapes:
        raise InputError("give products, such as 4096x8192x8192")
    conventions = replace(
        SCALE_SIM, rows=int(match[1]), columns=int(match[2]), dataflow=_FLOWS[match[3]]
    )
    products = [parse_product(text) for text in shapes]
    out.write(systolic_report(products, use_case.on_array(products, conventions), conventions))
    return ExitCode.DONE
