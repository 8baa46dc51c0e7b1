"""The step of a model on a cluster, by every engine, in the fastest layout that fits where open.

The one place where a step is settled and predicted: training, launches, claims and runs with real
numbers all ask here.
"""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.answers.train import Searched, TrainAnswer
from trnbench.app.batch import batch_words
from trnbench.app.layout_defaults import refuse_senseless, searched_for, with_defaults
from trnbench.app.settled_steps import blank_answer, settled_answers
from trnbench.app.use_case import Progress, quiet
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.setup import TrainSetup
from trnbench.predict.step import Playing


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
    layout, assumed = with_defaults(setup.model, setup.stack, given, setup.training(given).ranks)
    blank = blank_answer(setup, layout, assumed)
    if not _settled(layout):
        blank = _fastest(setup, blank, progress)
    if not _settled(blank.layout):
        return tuple(replace(blank, engine=engine) for engine in engines)
    half = given["recompute"] == "selective" and setup.stack.habits.selective == "half"
    between = ("none", "full") if half else ()
    answers = settled_answers(setup, blank, engines, playing, between=between)
    answers = tuple(_with_note(answer, given, half=half) for answer in answers)
    if blank.feasible:
        return answers
    # The layout that came nearest is shown with its memory.
    return tuple(replace(answer, step=None, reasons=blank.reasons) for answer in answers)


def _with_note(answer: TrainAnswer, asked: PartialLayout, *, half: bool) -> TrainAnswer:
    """Return an answer that says so where another recompute mode was asked for, or is meant."""
    mode, runs = asked["recompute"], answer.layout["recompute"]
    notes = []
    if half:
        answer = replace(answer, layout=answer.layout.changed(recompute="selective"))
        notes.append(
            f"{answer.stack} calls selective what repeats half of a forward pass: the mean of "
            "--recompute none and full, as which measured rows are read"
        )
    elif mode not in (None, runs):
        notes.append(f"recompute {mode} is {runs}: fused attention keeps nothing to repeat")
    return replace(answer, warnings=(*answer.warnings, *notes))


def _settled(layout: PartialLayout) -> bool:
    """Tell whether nothing is left to search for."""
    return not searched_for(layout)


def _fastest(setup: TrainSetup, blank: TrainAnswer, progress: Progress) -> TrainAnswer:
    """Return the answer with the fastest layout that fits, or why there is none."""
    from trnbench.app.searching import question_of
    from trnbench.predict.search.search import SearchHooks, search

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
    notes = batch_words(setup, blank.layout, blank.assumed, result.best)
    return replace(
        blank,
        layout=layout,
        chosen=searched_for(blank.layout),
        searched=searched,
        notes=notes,
    )
