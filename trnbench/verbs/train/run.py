"""The training use case: what steps of models on clusters take and hold, and how sure that is."""

from __future__ import annotations

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import replace
from trnbench.predict.setup import TrainSetup
from trnbench.program.step import training_step
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.train.answer import TrainAnswer
from trnbench.verbs.train.question import FUNCTIONAL, TrainQuestion
from trnbench.verbs.train.step_answers import step_answers


def run(
    catalog: Catalog, question: TrainQuestion, *, progress: Progress = quiet
) -> tuple[TrainAnswer, ...]:
    """Return time and memory of one training step, one answer for each place and engine.

    Knobs that are not given are chosen: the fastest layout that fits. `config` is a file or a
    folder of a training framework or Slurm with knobs and hosts; arguments override it. A `suite`
    brings models, places and layouts. `tokens`, `samples` or `phase`s ask for a whole run: a step
    for each part, with days and bill (`answer.part`). `purchase` to `assume_price` say how it is
    bought. `trace` keeps what was played, `memory` keeps what the worst rank holds slot by slot
    (`answer.memory_timeline`). `progress` hears of each case before it starts, and of layouts
    searched for one. `trnbench.train_functional` trains with real numbers.

    >>> from trnbench import train
    >>> (answer,) = train("llama2-7b", on="trn1.32xlarge:4", tp=8, pp=1, zero=1)
    >>> answer.feasible
    True
    """
    if question.engines == FUNCTIONAL:
        raise InputError("engine functional: call trnbench.train_functional")
    if question.parts:
        from trnbench.verbs.train.whole_run import quotes_of_runs

        runs = quotes_of_runs(catalog, question, progress=progress)
        return tuple(step for one in runs for step in one.steps)
    if (question.timeline or question.memory) and len(question.cases) != 1:
        raise InputError("a chart, a trace or --memory shows one step: give one model on one place")
    answers: list[TrainAnswer] = []
    for number, case in enumerate(question.cases):
        what = case.label or f"{case.model} on {case.instance}:{case.nodes}"
        progress(number, len(question.cases), what)
        setup = question.software.setup(catalog, case.model, case.instance, case.nodes)
        steps = step_answers(
            setup,
            case.layout,
            question.engines,
            playing=question.playing,
            progress=progress,
            prefer=question.prefer,
        )
        if question.memory:
            steps = tuple(_with_memory(setup, answer) for answer in steps)
        answers += [replace(answer, label=case.label) for answer in steps]
    return tuple(answers)


train = verb_of("train", TrainQuestion, run)


def _with_memory(setup: TrainSetup, answer: TrainAnswer) -> TrainAnswer:
    """Return an answer with what the worst rank holds, slot by slot, if its layout is legal."""
    if answer.memory is None:
        return answer
    from trnbench.engines.analytic.step.memory_timeline import memory_timeline

    held = memory_timeline(
        training_step(setup.model, answer.layout.complete()),
        setup.stack.memory,
        setup.stack.fragmentation,
    )
    return replace(answer, memory_timeline=held)
