"""The step of a model on a cluster, by every engine, in the fastest layout that fits where open.

The one place where a step is settled and predicted: training, launches, claims and runs with real
numbers all ask here.
"""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.settled import Settled, searched_for, settle
from trnbench.predict.setup import TrainSetup
from trnbench.predict.step import Playing
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.train.answer import Searched, TrainAnswer
from trnbench.verbs.train.batch import batch_words
from trnbench.verbs.train.settled_steps import blank_answer, settled_answers


def step_answers(
    setup: TrainSetup,
    given: PartialLayout,
    engines: Sequence[str] = ("analytic",),
    *,
    playing: Playing | None = None,
    progress: Progress = quiet,
) -> tuple[TrainAnswer, ...]:
    """Return the step by every engine, in the fastest layout where knobs are left open."""
    where = f"{setup.model.name} on {setup.platform.instance.name}:{setup.nodes}"
    settled = settle(
        setup,
        given,
        progress=lambda done, total, what: progress(done, total, f"{what} of {where}"),
    )
    blank = _searched(setup, settled, blank_answer(setup, settled.layout, settled.habitual))
    if searched_for(settled.layout):
        return tuple(replace(blank, engine=engine) for engine in engines)
    answers = settled_answers(setup, blank, engines, playing, between=settled.between)
    if not settled.between:
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


def _searched(setup: TrainSetup, settled: Settled, blank: TrainAnswer) -> TrainAnswer:
    """Return the answer with the counts of the search, and a note on the batch or the reasons."""
    result = settled.result
    if result is None:
        return blank
    searched = Searched(legal=result.legal, feasible=result.feasible)
    if result.best is None:
        return replace(blank, searched=searched, reasons=result.reasons)
    notes = batch_words(setup, settled.before, settled.habitual, result.best)
    return replace(blank, chosen=settled.chosen, searched=searched, notes=notes)
