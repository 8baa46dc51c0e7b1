"""The numerics use case: one small model trained in several precision recipes, side by side."""

from __future__ import annotations

import numpy as np

from trnbench.engines.execute.coverage import check_memory, problems
from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.numbers.demonstrations import accumulate_demo, product_demos
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.step import training_step
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.numerics.answer import NumericsAnswer, RecipeCurves
from trnbench.verbs.numerics.question import REFERENCE, NumericsQuestion


def run(
    catalog: Catalog, question: NumericsQuestion, *, progress: Progress = quiet
) -> NumericsAnswer:
    """Return the losses of every recipe and seed, and what formats do to a sum and a product.

    fp32 is always among the recipes: the others are compared with it.

    >>> from trnbench import numerics
    >>> answer = numerics(precision="bf16-sr", steps=2, seeds=1, global_batch=1, sequence=8)
    >>> [curve.recipe.name for curve in answer.curves]
    ['fp32', 'bf16-sr']
    """
    model = load_model(catalog, question.model)
    layout = Layout(
        global_batch=question.global_batch,
        micro_batch=question.global_batch,
        sequence=question.sequence,
        precision=REFERENCE,
    )
    programs = {
        name: training_step(model, replace(layout, precision=name)) for name in question.precision
    }
    first = programs[REFERENCE]
    reasons = (*problems(first), *first.refusals())
    if reasons:
        raise InputError(f"{model.name} cannot be trained here: {reasons[0]}")
    check_memory(first)
    assert model.vocabulary is not None
    total = question.steps * question.seeds * len(programs)
    done = 0
    curves = []
    optimizer = AdamW(learning_rate=question.rate)
    for name, program in programs.items():
        losses = np.empty((question.seeds, question.steps))
        for seed in range(question.seeds):
            text = text_of(question.task, model.vocabulary.size, seed)
            trainer = Trainer(program, TrainingRun(text=text, optimizer=optimizer, seed=seed))
            for step in range(question.steps):
                progress(done, total, f"{name}, seed {seed}")
                losses[seed, step] = trainer.step()
                done += 1
        curves.append(RecipeCurves(recipe=program.recipe, losses=losses))
    return NumericsAnswer(
        model=model.name,
        task=question.task,
        tokens_per_step=question.global_batch * question.sequence,
        learning_rate=question.rate,
        curves=tuple(curves),
        sums=(
            accumulate_demo(),
            accumulate_demo(format="bf16", start=256.0, step=0.5, count=1024),
        ),
        products=product_demos(),
    )


numerics = verb_of("numerics", NumericsQuestion, run)
