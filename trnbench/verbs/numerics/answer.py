"""A model trained in several precision recipes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnbench.engines.execute.numbers.demonstrations import AccumulateDemo, ProductDemo
from trnbench.facts.records import Record
from trnbench.program.optimizer import MOMENTS
from trnbench.program.precision import PrecisionRecipe
from trnbench.program.tensor import element_bytes
from trnbench.show.row import Row

END_SHARE = 10
"""First and final losses are means over a tenth of a run: single steps see different texts."""


class RecipeCurves(Record, eq=False):
    """Losses [seed, step] of a recipe."""

    recipe: PrecisionRecipe
    losses: NDArray[np.float64]

    @property
    def first(self) -> NDArray[np.float64]:
        """The loss of each seed at the start."""
        return self._mean(slice(None, self._width))

    @property
    def final(self) -> NDArray[np.float64]:
        """The loss of each seed at the end."""
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
        """Return the row of each recipe."""
        return tuple(curves.row(self.curves[0]) for curves in self.curves)
