"""Clipping and AdamW beside a plain version, whatever is cut into slices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.steps import take_weights
from trnbench.engines.execute import optimizer
from trnbench.engines.execute.optimizer import AdamW
from trnbench.errors import InputError

LAYOUTS = [
    {},
    {"dp": 2, "zero": 0},
    {"dp": 3, "zero": 1, "global_batch": 6},
    {"dp": 2, "tp": 2, "zero": 2, "sequence_parallel": True},
    {"dp": 2, "pp": 2, "zero": 3},
]


@pytest.mark.parametrize("degrees", LAYOUTS, ids=str)
def test_weights_move_as_plain_adamw_with_clipping_moves_them(degrees, small_model, small_trainer):
    trainer = small_trainer(small_model(tied=True), rate=3e-2, **degrees)
    settings = trainer.run.optimizer
    mean = dict.fromkeys(trainer.weights(), 0.0)
    square = dict(mean)
    clipped = 0
    for step in range(4):
        before = trainer.weights()
        _, gradients = trainer.gradients()
        norm = np.sqrt(sum((one**2).sum() for one in gradients.values()))
        share = min(1.0, settings.clip / (norm + 1e-6))
        clipped += share < 1
        trainer.step()
        after = trainer.weights()
        for name, gradient in gradients.items():
            g = gradient * share
            mean[name] = 0.9 * mean[name] + 0.1 * g
            square[name] = 0.95 * square[name] + 0.05 * g**2
            m = mean[name] / (1 - 0.9 ** (step + 1))
            v = square[name] / (1 - 0.95 ** (step + 1))
            # The rate rises to 3e-2 over ten steps.
            rate = 3e-2 * (step + 1) / 10
            expected = before[name] - rate * (m / (np.sqrt(v) + 1e-8) + 0.1 * before[name])
            assert np.abs(after[name] - expected).max() < 1e-12, name
    assert clipped < 4


def test_large_gradients_are_clipped_to_the_limit(small_model, small_trainer):
    """The same steps with a limit a thousand times lower: AdamW then sees smaller gradients."""
    trainer = small_trainer(small_model())
    weights = {name: 20 * weight for name, weight in trainer.weights().items()}
    take_weights(trainer, weights)
    _, gradients = trainer.gradients()
    norm = np.sqrt(sum((one**2).sum() for one in gradients.values()))
    assert norm > 1
    trainer.step()
    (name, _), gradient = max(gradients.items(), key=lambda item: np.abs(item[1]).max())
    _, state = next((b, s) for b, s in trainer.states() if name in s.shape.spans)
    span = state.shape.spans[name]
    assert span.of(state.mean)[0] == pytest.approx(0.1 * gradient / norm, rel=1e-5)


@pytest.mark.slow
def test_gradients_agree_with_finite_differences(small_model, small_trainer):
    trainer = small_trainer(
        small_model(experts=4), dp=2, ep=2, tp=2, sequence_parallel=True, pp=2, recompute="full"
    )
    random = np.random.default_rng(3)
    weights = {
        name: weight + random.normal(0, 0.2, weight.shape)
        for name, weight in trainer.weights().items()
    }
    take_weights(trainer, weights)
    _, gradients = trainer.gradients()
    for name, gradient in gradients.items():
        direction = random.normal(size=gradient.shape)
        ends = []
        for sign in (1, -1):
            take_weights(trainer, {**weights, name: weights[name] + sign * 1e-5 * direction})
            ends.append(trainer.gradients()[0])
        expected = (ends[0] - ends[1]) / 2e-5
        assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-4, abs=1e-8), name


@pytest.mark.parametrize(
    ("name", "value"), [("learning_rate", 0.0), ("clip", -1.0), ("mean_decay", 1.0)]
)
def test_settings_that_cannot_train_are_refused(name, value):
    with pytest.raises(InputError, match=name):
        AdamW(**{name: value})


@pytest.mark.parametrize("precision", ["fp32", "bf16-sr", "bf16-master"])
def test_how_many_elements_are_updated_at_a_time_changes_no_bit(
    precision, small_model, small_trainer, monkeypatch
):
    def trained():
        trainer = small_trainer(small_model(), precision=precision, exact=False, dp=2)
        for _ in range(3):
            trainer.step()
        return trainer.weights()

    whole = trained()
    monkeypatch.setattr(optimizer, "_TOGETHER", 7)
    apart = trained()
    assert all((whole[name] == apart[name]).all() for name in whole)
