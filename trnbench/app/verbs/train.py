"""The training use case: what steps of models on clusters take and hold, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trnbench import parsing
from trnbench.answers.train import Searched, TrainAnswer
from trnbench.app.batch import batch_words
from trnbench.app.knobs import layout_of
from trnbench.app.layout_defaults import SEARCHED, refuse_senseless, with_defaults
from trnbench.app.train_request import TrainCase, TrainRequest, suite_cases
from trnbench.app.use_case import (
    Engine,
    Progress,
    answered_by,
    engines_of,
    quiet,
    takes_options_of,
)
from trnbench.catalog.search import Catalog, open_catalog
from trnbench.emulate.schedule.disturbance import Straggler
from trnbench.errors import InputError
from trnbench.parsing import clusters, maybe
from trnbench.predict.setup import TrainSetup, train_setup
from trnbench.predict.step import Playing, predict
from trnbench.units import Dimension
from trnbench.workload.partial_layout import PartialLayout

_STRAGGLER = re.compile(r"(\d{1,6})=(.+)")


def run(
    catalog: Catalog,
    request: TrainRequest,
    *,
    progress: Progress = quiet,
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
        setup = train_setup(
            catalog,
            case.model,
            case.instance,
            case.nodes,
            stack=request.stack,
            logical_size=request.logical_size,
        )
        found = step_answers(
            setup, case.layout, request.engines, playing=request.playing, progress=progress
        )
        answers += [replace(answer, label=case.label) for answer in found]
    return tuple(answers)


@answered_by(run)
@takes_options_of(layout_of)
def train(
    model: str | None = None,
    *,
    on: str | Sequence[str] = (),
    suite: str | None = None,
    stack: str | None = None,
    lnc: int | str | None = None,
    engine: Engine = "analytic",
    seed: int | None = None,
    straggler: str | Sequence[str] = (),
    trace: bool = False,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
    **knobs: Any,  # noqa: ANN401
) -> TrainRequest:
    """Return what one training step takes and holds, one answer for each place and engine.

    Knobs that are not given are chosen: the fastest layout that fits. A `suite` brings models,
    places and layouts. `trace` keeps what was played. `trnbench.app.train_functional` trains
    with real numbers.

    >>> from trnbench.app import train
    >>> (answer,) = train("llama2-7b", on="trn1.32xlarge:4", tp=8, pp=1, zero=1)
    >>> answer.feasible
    True
    """
    if (model is None) == (suite is None):
        raise InputError("give a model (such as llama3.1-8b) or --suite NAME, one of the two")
    if engine == "analytic" and (seed is not None or straggler):
        option = "--straggler" if straggler else "--seed"
        raise InputError(f"{option} acts on the played schedule; it needs --engine emulate or both")
    if seed is not None and seed < 0:
        raise InputError("--seed must not be negative")
    layout = layout_of(**knobs)
    if suite is not None:
        if on or lnc is not None or layout.given:
            raise InputError("a suite brings its own places and layouts; leave out --on and these")
        cases = suite_cases(catalog or open_catalog(), suite)
    elif not on:
        raise InputError("on which instance? e.g. --on trn1.32xlarge:32")
    else:
        cases = tuple(
            TrainCase(model=model or "", instance=instance, nodes=nodes, layout=layout)
            for instance, nodes in clusters(on)
        )
    return TrainRequest(
        cases=cases,
        suite=suite,
        engines=engines_of(engine),
        stack=stack,
        logical_size=maybe(parsing.whole("--lnc"), lnc),
        seed=seed,
        stragglers=tuple(_straggler(text) for text in parsing.texts(straggler)),
        timeline=trace,
    )


def _straggler(text: str) -> Straggler:
    match = _STRAGGLER.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--straggler: cannot read {text!r}; write STAGE=FACTOR, such as 0=1.2")
    factor = parsing.quantity("--straggler", Dimension.RATIO)(match[2])
    return Straggler(stage=int(match[1]), factor=factor)


def step_answers(
    setup: TrainSetup,
    given: PartialLayout,
    engines: Sequence[str] = ("analytic",),
    *,
    playing: Playing | None = None,
    progress: Progress = quiet,
) -> tuple[TrainAnswer, ...]:
    """Return the step by every engine, in the fastest layout where knobs are left open."""
    refuse_senseless(setup.model, given)
    layout, assumed = with_defaults(setup.model, setup.stack, given, setup.ranks)
    blank = blank_answer(setup, layout, assumed)
    if not _settled(layout):
        blank = _fastest(setup, blank, progress)
    if not _settled(blank.layout):
        return tuple(replace(blank, engine=engine) for engine in engines)
    answers = settled_answers(setup, blank, engines, playing)
    answers = tuple(_with_note(answer, given) for answer in answers)
    if blank.feasible:
        return answers
    # The layout that came nearest is shown with its memory.
    return tuple(replace(answer, step=None, reasons=blank.reasons) for answer in answers)


def _with_note(answer: TrainAnswer, asked: PartialLayout) -> TrainAnswer:
    """Return an answer that says so where another recompute mode was asked for."""
    mode, runs = asked["recompute"], answer.layout["recompute"]
    if mode in (None, runs):
        return answer
    note = f"recompute {mode} is {runs}: fused attention keeps nothing to repeat"
    return replace(answer, warnings=(*answer.warnings, note))


def blank_answer(setup: TrainSetup, layout: PartialLayout, assumed: tuple[str, ...]) -> TrainAnswer:
    """Return all of an answer that is known before anything is predicted."""
    return TrainAnswer(
        label="",
        model=setup.model.name,
        instance=setup.platform.instance.name,
        chip=setup.platform.chip.name,
        nodes=setup.nodes,
        chips=setup.chips,
        ranks=setup.ranks,
        logical_size=setup.logical_size,
        tokens_per_sample=None if setup.model.recommender else layout.number("sequence"),
        layout=layout,
        engine="analytic",
        calibration=setup.stack.name,
        basis=setup.basis,
        evidence=setup.evidence,
        assumed=assumed,
    )


def settled_answers(
    setup: TrainSetup,
    blank: TrainAnswer,
    engines: Sequence[str] = ("analytic",),
    playing: Playing | None = None,
) -> tuple[TrainAnswer, ...]:
    """Return the step of an answer's settled layout by every engine, or why it cannot run."""
    if "emulate" in engines:
        playing = playing or Playing()
    found = predict(setup, blank.layout.complete(), playing=playing)
    steps = {"analytic": found.step, "emulate": found.played}
    return tuple(
        replace(
            blank,
            engine=engine,
            step=steps[engine],
            memory=found.memory,
            timeline=found.timeline,
            reasons=found.reasons,
            warnings=found.warnings,
        )
        for engine in engines
    )


def _settled(layout: PartialLayout) -> bool:
    """Tell whether nothing is left to search for."""
    return not any(name in SEARCHED for name in layout.open)


def _fastest(setup: TrainSetup, blank: TrainAnswer, progress: Progress) -> TrainAnswer:
    """Return the answer with the fastest layout that fits, or why there is none."""
    from trnbench.app.searching import question_of
    from trnbench.search.search import SearchHooks, search

    layout = blank.layout
    result = search(
        question_of(setup, layout, (setup.nodes,)),
        top=1,
        hooks=SearchHooks(
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
    chosen = tuple(name for name in blank.layout.open if name in SEARCHED)
    notes = batch_words(setup, blank.layout, blank.assumed, result.best)
    return replace(blank, layout=layout, chosen=chosen, searched=searched, notes=notes)
