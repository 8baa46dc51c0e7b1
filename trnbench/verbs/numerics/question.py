"""Question of `numerics`: a model, the precision recipes it is trained in, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog

REFERENCE = "fp32"
LEARNING_RATE = 3e-5
"""Small, as late in a run: below half a step of bf16 for most weights of a small model."""


class NumericsQuestion(Question):
    """Train one small model in several precisions: what do I lose, and what gives it back?

    Every recipe sees the same weights and texts, seed by seed; matrix products, sums and rounding
    are those of the emulated tensor engine.
    """

    model: str = option(
        "A small text model.",
        default="tiny-gpt",
        metavar="MODEL",
        completes=("models",),
        argument=True,
    )
    precision: tuple[str, ...] = option(
        "Recipes to compare with fp32.",
        default=("bf16-master", "bf16-sr", "bf16"),
        metavar="RECIPE,...",
    )
    steps: int = option("Steps of each run.", default=40, read=parsing.whole)
    seeds: int = option("Runs of each recipe.", default=3, read=parsing.whole)
    global_batch: int = option("Samples of a step.", default=4, read=parsing.whole)
    sequence: int = option("Tokens of a sample.", default=32, read=parsing.sequence)
    task: str = "markov"
    learning_rate: float | None = option(
        "Default: 3e-5, small as late in a run, where rounding matters most.",
        read=parsing.count,
        metavar="NUMBER",
    )

    def __post_init__(self) -> None:
        for name in ("steps", "seeds", "global_batch", "sequence"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, found {getattr(self, name)}")

    @property
    def rate(self) -> float:
        return self.learning_rate or LEARNING_RATE

    def settled(self, catalog: Catalog) -> NumericsQuestion:
        """Return the question with its recipes by their own names, fp32 first, and its rate."""
        from trnbench.program.precision import recipe_named

        named = (recipe_named(name).name for name in self.precision)
        recipes = tuple(dict.fromkeys((REFERENCE, *named)))
        return self.but(precision=recipes, learning_rate=self.rate)
