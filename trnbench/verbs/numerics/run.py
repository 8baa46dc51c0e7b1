"""The numerics use case: one small model trained in several precision recipes, side by side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnbench.engines.execute.coverage import check_memory, problems
from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.numbers.demonstrations import (
    AccumulateDemo,
    ProductDemo,
    accumulate_demo,
    product_demos,
)
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.optimizer import MOMENTS
from trnbench.program.precision import PrecisionRecipe
from trnbench.program.step import training_step
from trnbench.program.tensor import element_bytes
from trnbench.show.row import Row
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.numerics.question import REFERENCE, NumericsQuestion

END_SHARE = 10
"""First and final losses are means over a tenth of a run: single steps see different texts."""


class RecipeCurves(Record, eq=False):
    """Losses [seed, step] of a recipe."""

    recipe: PrecisionRecipe
    losses: NDArray[np.float64]

    @property
    def first(self) -> NDArray[np.float64]:
        return self._mean(slice(None, self._width))

    @property
    def final(self) -> NDArray[np.float64]:
        return self._mean(slice(-self._width, None))

    @property
    def _width(self) -> int:
        return max(1, int(self.losses.shape[1]) // END_SHARE)

    def _mean(self, steps: slice) -> NDArray[np.float64]:
        return np.asarray(self.losses[:, steps].mean(axis=1))

    @property
    def state_bytes(self) -> float:
        """Bytes that a weight and all that belongs to it take."""
        recipe = self.recipe
        formats = [recipe.weights, recipe.gradients, *MOMENTS * (recipe.moments,)]
        formats += [recipe.master] if recipe.master else []
        return sum(element_bytes(name) for name in formats)

    def row(self, reference: RecipeCurves) -> Row:
        """Return the recipe's losses beside those of the reference."""
        gap = self.final - reference.final
        fell, could = (self.first - self.final).mean(), (reference.first - reference.final).mean()
        return {
            "precision": self.recipe.name,
            "title": self.recipe.title,
            "first_loss": float(self.first.mean()),
            "final_loss": float(self.final.mean()),
            "gap": float(gap.mean()),
            "low_gap": float(gap.min()),
            "high_gap": float(gap.max()),
            "learned": float(fell / could) if could > 0 else None,
            "state_bytes": self.state_bytes,
            "losses": [float(loss) for loss in self.losses.mean(axis=0)],
        }


class NumericsAnswer(Record, eq=False):
    """A model in several recipes, the first of which is what the others are held against."""

    model: str
    task: str
    tokens_per_step: int
    learning_rate: float
    curves: tuple[RecipeCurves, ...]
    sums: tuple[AccumulateDemo, ...]
    products: tuple[ProductDemo, ...]

    def rows(self) -> tuple[Row, ...]:
        return tuple(curves.row(self.curves[0]) for curves in self.curves)


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
        sums=(accumulate_demo(), accumulate_demo(format="bf16", start=256.0, step=0.5, count=1024)),
        products=product_demos(),
    )


numerics = verb_of("numerics", NumericsQuestion, run)
