"""Depths of multi-token prediction, trained with real numbers."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.engines.execute.trainer import MTP_SHARE


def losses(trainer):
    """The mean loss of each token that is predicted: the next one, and those behind it."""
    made = trainer._pipeline.run(trainer._texts())
    for _, state in trainer.states():
        state.clear()
    return [sum(float(one[i].sum()) for one in made) / trainer.tokens for i in range(3)]


def weight(trainer, name):
    for block, state in trainer.states():
        if block.plan.block.kind != "embedding" and name in state.shape.spans:
            yield state.shape.spans[name].of(state.weights)


@pytest.mark.parametrize("name", ["merge", "norm.final", "norm.embedded", "head"])
def test_gradients_are_the_slopes_of_all_losses(name, small_model, small_trainer):
    trainer = small_trainer(small_model(depths=2))
    gradients = trainer.gradients()[1]
    found = next(g for (named, _), g in gradients.items() if named == name)

    def objective():
        first, *further = losses(trainer)
        return first + MTP_SHARE * sum(further) / 2

    numbers = next(iter(weight(trainer, name)))
    at = (0, *(np.array(numbers.shape[1:]) // 2))
    start, size = numbers[at], 1e-5
    ends = []
    for sign in (1, -1):
        numbers[at] = start + sign * size
        ends.append(objective())
    numbers[at] = start
    slope = (ends[0] - ends[1]) / (2 * size)
    assert abs(slope) > 1e-9
    assert found[at[1:]] == pytest.approx(slope, rel=1e-4)


@pytest.mark.slow
def test_each_depth_learns_its_own_token(small_model, small_trainer):
    trainer = small_trainer(small_model(depths=2), rate=2e-2)
    before = losses(trainer)
    for _ in range(40):
        trainer.step()
    after = losses(trainer)
    assert all(end < 0.97 * start for start, end in zip(before, after, strict=True)), after


def test_in_the_formats_of_a_recipe_it_learns_too(small_model, small_trainer):
    trainer = small_trainer(
        small_model(depths=1, experts=4), exact=False, precision="bf16-master", dp=2, zero=1
    )
    made = [trainer.step() for _ in range(25)]
    assert made[-1] < 0.97 * made[0]
