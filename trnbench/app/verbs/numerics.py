"""The numerics use case: one small model trained in several precision recipes, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnbench.answers.numerics import NumericsAnswer, RecipeCurves
from trnbench.app.use_case import Progress, answered_by, quiet
from trnbench.engines.execute.coverage import check_memory, problems
from trnbench.engines.execute.data import text_of
from trnbench.engines.execute.numbers.accumulation import accumulate_demo
from trnbench.engines.execute.numbers.product_demo import product_demos
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.parsing import read
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.precision import recipe_named
from trnbench.program.step import training_step

REFERENCE = "fp32"
RECIPES = (REFERENCE, "bf16-master", "bf16-sr", "bf16")
LEARNING_RATE = 3e-5
"""Small, as late in a run: below half a step of bf16 for most weights of a small model."""


class NumericsRequest(Record):
    """Which recipes to train a model in: `seeds` runs of `steps` each, on generated text.

    fp32 is always among them: the others are compared with it.
    """

    model: str = "tiny-gpt"
    recipes: tuple[str, ...] = RECIPES
    steps: int = 100
    seeds: int = 3
    global_batch: int = 4
    sequence: int = 32
    task: str = "markov"
    optimizer: AdamW = field(default_factory=lambda: AdamW(learning_rate=LEARNING_RATE))

    def __post_init__(self) -> None:
        """Refuse what is no comparison."""
        for name in ("steps", "seeds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, found {getattr(self, name)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The recipes by their own names, fp32 first."""
        given = (recipe_named(name).name for name in self.recipes)
        return tuple(dict.fromkeys((REFERENCE, *given)))


def run(
    catalog: Catalog, request: NumericsRequest, *, progress: Progress = quiet
) -> NumericsAnswer:
    """Return the losses of every recipe and seed, and what formats do to a sum and a product."""
    model = load_model(catalog, request.model)
    layout = Layout(
        global_batch=request.global_batch,
        micro_batch=request.global_batch,
        sequence=request.sequence,
        precision=REFERENCE,
    )
    programs = {
        name: training_step(model, replace(layout, precision=name)) for name in request.names
    }
    first = programs[REFERENCE]
    reasons = (*problems(first), *first.refusals())
    if reasons:
        raise InputError(f"{model.name} cannot be trained here: {reasons[0]}")
    check_memory(first)
    assert model.vocabulary is not None
    total = request.steps * request.seeds * len(programs)
    done = 0
    curves = []
    for name, program in programs.items():
        losses = np.empty((request.seeds, request.steps))
        for seed in range(request.seeds):
            text = text_of(request.task, model.vocabulary.size, seed)
            trainer = Trainer(
                program, TrainingRun(text=text, optimizer=request.optimizer, seed=seed)
            )
            for step in range(request.steps):
                progress(done, total, f"{name}, seed {seed}")
                losses[seed, step] = trainer.step()
                done += 1
        curves.append(RecipeCurves(recipe=program.recipe, losses=losses))
    return NumericsAnswer(
        model=model.name,
        task=request.task,
        tokens_per_step=request.global_batch * request.sequence,
        learning_rate=request.optimizer.learning_rate,
        curves=tuple(curves),
        sums=(
            accumulate_demo(),
            accumulate_demo(format="bf16", start=256.0, step=0.5, count=1024),
        ),
        products=product_demos(),
    )


@answered_by(run)
def numerics(
    model: str = "tiny-gpt",
    *,
    precision: str | Sequence[str] = RECIPES,
    steps: int | str = 100,
    seeds: int | str = 3,
    global_batch: int | str = 4,
    sequence: int | str = 32,
    learning_rate: float | str | None = None,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
) -> NumericsRequest:
    """Return one small model trained in several precision recipes, seed by seed, side by side.

    fp32 is always among them: the others are compared with it.

    >>> from trnbench.app import numerics
    >>> answer = numerics(precision="bf16-sr", steps=2, seeds=1, global_batch=1, sequence=8)
    >>> [curve.recipe.name for curve in answer.curves]
    ['fp32', 'bf16-sr']
    """
    rate = read(parsing.count("--learning-rate"), learning_rate or LEARNING_RATE)
    return NumericsRequest(
        model=model,
        recipes=parsing.names("--precision", precision),
        steps=read(parsing.whole("--steps"), steps),
        seeds=read(parsing.whole("--seeds"), seeds),
        global_batch=read(parsing.whole("--global-batch"), global_batch),
        sequence=read(parsing.sequence("--sequence"), sequence),
        optimizer=AdamW(learning_rate=rate),
    )


def inputs_of(request: NumericsRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    return {
        "model": request.model,
        "precision": request.names,
        "steps": request.steps,
        "seeds": request.seeds,
        "global_batch": request.global_batch,
        "sequence": request.sequence,
        "task": request.task,
        "learning_rate": request.optimizer.learning_rate,
    }
