"""The training use case: what steps of models on clusters take and hold, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from trnbench.answers.train import Searched, TrainAnswer
from trnbench.app.layout_defaults import SEARCHED, refuse_senseless, with_defaults
from trnbench.app.train_request import TrainCase, TrainRequest
from trnbench.app.train_setup import TrainSetup, train_setup
from trnbench.app.train_step import settled_answers
from trnbench.catalog.search import Catalog
from trnbench.errors import InputError
from trnbench.workload.partial_layout import PartialLayout

Progress: TypeAlias = Callable[[int, int, str], None]


def run(
    catalog: Catalog,
    request: TrainRequest,
    *,
    progress: Progress = lambda done, total, what: None,
) -> tuple[TrainAnswer, ...]:
    """Return the answers, case by case.

    `progress` hears of each case before it starts, and of layouts searched for one.
    """
    if request.timeline and len(request.cases) != 1:
        raise InputError("a chart or a trace shows one step: give one model on one place")
    answers: list[TrainAnswer] = []
    for number, case in enumerate(request.cases):
        what = case.label or f"{case.model} on {case.instance}:{case.nodes}"
        progress(number, len(request.cases), what)
        answers += _answers(catalog, request, case, progress)
    return tuple(answers)


def _answers(
    catalog: Catalog, request: TrainRequest, case: TrainCase, progress: Progress
) -> list[TrainAnswer]:
    setup = train_setup(
        catalog,
        case.model,
        case.instance,
        case.nodes,
        stack=request.stack,
        logical_size=request.logical_size,
    )
    refuse_senseless(setup.model, case.layout)
    layout, assumed = with_defaults(setup.model, setup.stack, case.layout)
    blank = TrainAnswer(
        label=case.label,
        model=setup.model.name,
        instance=setup.platform.instance.name,
        chip=setup.platform.chip.name,
        nodes=case.nodes,
        chips=setup.chips,
        ranks=setup.ranks,
        logical_size=request.logical_size,
        tokens_per_sample=None if setup.model.recommender else layout.number("sequence"),
        layout=layout,
        engine=request.engines[0],
        calibration=setup.stack.name,
        basis=setup.basis,
        evidence=setup.evidence,
        assumed=assumed,
    )
    chosen = tuple(name for name in layout.open if name in SEARCHED)
    if chosen:
        blank = _choose(setup, blank, chosen, progress)
    if blank.feasible:
        return settled_answers(setup, blank, request)
    if any(name in blank.layout.open for name in chosen):
        return [replace(blank, engine=engine) for engine in request.engines]
    # The layout that came nearest is shown with its memory.
    nearest = settled_answers(setup, replace(blank, reasons=()), request)
    return [replace(answer, step=None, reasons=blank.reasons) for answer in nearest]


def _choose(
    setup: TrainSetup, blank: TrainAnswer, chosen: tuple[str, ...], progress: Progress
) -> TrainAnswer:
    """Return the answer with the fastest layout that fits, or why there is none."""
    from trnbench.plan.search import Hooks, search

    layout = blank.layout
    result = search(
        setup.question(layout, (setup.nodes,)),
        top=1,
        hooks=Hooks(
            progress=lambda done, total, what: progress(
                done, total, f"{what} of {blank.model} on {blank.instance}:{blank.nodes}"
            )
        ),
    )
    searched = Searched(legal=result.legal, feasible=result.feasible)
    found = result.best or result.nearest
    if found is not None:
        layout = PartialLayout.of(found.layout)
    if result.best is None:
        return replace(blank, layout=layout, searched=searched, reasons=result.reasons)
    return replace(blank, layout=layout, chosen=chosen, searched=searched)
