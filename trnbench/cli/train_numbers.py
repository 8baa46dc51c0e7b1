"""`trnbench train --engine functional`: train a small model with real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.interrupts import Interrupts
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError

if TYPE_CHECKING:
    from trnbench.app.train_request import TrainCase
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output

STEPS = 100


def refuse_with_numbers(
    case: TrainCase,
    others: Sequence[TrainCase],
    *,
    straggler: Sequence[str] | None,
    trace: Path | None,
    plot: bool,
) -> None:
    """Refuse what a run with real numbers has no use for."""
    if others or case.label:
        raise InputError("--engine functional trains one model on one place")
    if straggler or trace is not None:
        option = "--straggler" if straggler else "--trace"
        raise InputError(f"{option} acts on the played schedule; it needs --engine emulate or both")
    if plot:
        raise InputError("--plot draws a schedule; --engine functional draws its losses anyway")


def train_with_numbers(
    out: Output,
    catalog: Catalog,
    case: TrainCase,
    *,
    steps: int | None,
    seed: int | None,
    folder: Path | None,
    stack: str | None,
    lnc: int | None,
) -> int:
    """Train, print, and return the exit code; an interrupted run prints what it has."""
    from trnbench.app.train_functional import FunctionalRequest, inputs_of, run_functional
    from trnbench.report.train_functional import functional_report

    request = FunctionalRequest(
        model=case.model,
        instance=case.instance,
        nodes=case.nodes,
        layout=case.layout,
        steps=steps or STEPS,
        seed=seed or 0,
        folder=folder,
        stack=stack,
        logical_size=lnc,
    )
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        trained = run_functional(catalog, request, progress=progress, cancel=interrupts.asked)
    out.write(functional_report(trained, inputs_of(request)))
    if trained.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.ANSWER_IS_NO if trained.reasons else ExitCode.DONE
