"""Number formats in training: what is lost, and what gives it back.

Steps of 3e-5 are below half a step of bf16 for weights above 2^-7: to nearest they are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest

from trnbench.engines.execute.arithmetic import Arithmetic
from trnbench.engines.execute.draws import Draws
from trnbench.engines.execute.numbers.rounding import round_to
from trnbench.program.precision import RECIPES

SEEDS = (0, 1, 2)
STEPS = 100
RATE = 3e-5
WIDE = {"gpt": True, "hidden": 32, "kv_heads": 4}


@pytest.fixture(scope="module")
def learned(small_model, small_trainer) -> Callable[[str], np.ndarray]:
    """Return by how much the loss falls in a run of each seed, in a recipe."""

    def of(precision: str) -> np.ndarray:
        falls = []
        for seed in SEEDS:
            trainer = small_trainer(
                small_model(**WIDE, layers=1),
                exact=False,
                precision=precision,
                seed=seed,
                rate=RATE,
                global_batch=16,
                micro_batch=8,
                sequence=16,
                dp=2,
            )
            losses = [trainer.step() for _ in range(STEPS)]
            falls.append(np.mean(losses[:10]) - np.mean(losses[-10:]))
        return np.array(falls)

    return of


@pytest.mark.soak
def test_bf16_stalls_where_stochastic_rounding_and_master_weights_keep_learning(learned):
    full = learned("fp32")
    nearest, stochastic, master = (learned(name) for name in ("bf16", "bf16-sr", "bf16-master"))
    spread = full.std()
    assert (full > 0.05).all()
    # Rounded to nearest, most of what there is to learn is lost, for every seed.
    assert (nearest < 0.6 * full).all(), (nearest, full)
    assert nearest.mean() + 3 * max(spread, nearest.std()) < full.mean()
    # The others lose next to nothing.
    assert np.abs(stochastic / full - 1).max() < 0.05, (stochastic, full)
    assert np.abs(master / full - 1).max() < 0.02, (master, full)


@pytest.fixture(scope="module")
def early(small_model, small_trainer):
    """Return the losses of the first steps in a recipe."""

    def of(precision):
        model = small_model(**WIDE, layers=1)
        trainer = small_trainer(
            model, exact=False, precision=precision, tp=2, rate=3e-3, micro_batch=4
        )
        return [trainer.step() for _ in range(25)]

    return of


@pytest.fixture(scope="module")
def early_in_fp32(early):
    """The losses of the first steps in fp32."""
    return early("fp32")


@pytest.mark.parametrize(
    "precision", ["tf32", "bf16", "bf16-sr-master", "fp8", "fp8-blockwise", "mxfp8"]
)
def test_a_recipe_learns_and_is_not_fp32(precision, early, early_in_fp32):
    losses = early(precision)
    assert losses[-1] < losses[0] - 0.2
    assert losses == pytest.approx(early_in_fp32, rel=0.05)
    assert losses != pytest.approx(early_in_fp32, rel=1e-7)


def test_the_fewer_bits_operands_have_the_further_gradients_are_off(small_model, small_trainer):
    model = small_model(**WIDE)
    _, exact = small_trainer(model, global_batch=8, sequence=16).gradients()

    def off(precision: str) -> float:
        trainer = small_trainer(
            model, exact=False, precision=precision, global_batch=8, sequence=16
        )
        _, found = trainer.gradients()
        name = "attention.value", 0
        return float(np.linalg.norm(found[name] - exact[name]) / np.linalg.norm(exact[name]))

    # Mantissas of 23, 10, 7 and 3 bits; without a scale, gradients are below what fp8 can hold.
    errors = [off(name) for name in ("fp32", "tf32", "bf16-master", "fp8", "auto-cast-fp8")]
    assert errors[0] < 1e-5
    assert all(low < high / 3 for low, high in pairwise(errors)), errors
    assert errors[3] < 0.5
    assert errors[4] > 0.9
    # A scale every 32 numbers is worth about as much as one for the tensor.
    assert off("mxfp8") == pytest.approx(errors[3], rel=0.5)


@pytest.mark.parametrize("precision", sorted(RECIPES))
def test_every_recipe_holds_weights_its_format_can_hold(precision, small_model, small_trainer):
    trainer = small_trainer(small_model(), exact=False, precision=precision, tp=2, pp=2, zero=1)
    for _ in range(2):
        trainer.step()
    wanted = trainer.program.recipe.weights
    for name, weight in trainer.weights().items():
        assert (round_to(weight, wanted) == weight).all(), name
        assert np.isfinite(weight).all(), name


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_copies_of_a_weight_stay_alike_under_stochastic_rounding(zero, small_model, small_trainer):
    trainer = small_trainer(
        small_model(kv_heads=1, tied=True),
        exact=False,
        precision="bf16-sr",
        tp=2,
        dp=2,
        pp=2,
        zero=zero,
    )
    for _ in range(3):
        trainer.step()
    for _, state in trainer.states():
        shape = state.shape
        place = shape.own_place if zero == 3 else shape.place
        whole = shape.joined(state.weights, place)
        assert (state.weights == shape.taken(whole, place)).all()
    tables = [
        state.shape.spans["embedding.token"].of(state.gather(None))
        for _, state in trainer.states()
        if "embedding.token" in state.shape.spans and zero < 3
    ]
    assert len(tables) == (2 if zero < 3 else 0)
    assert all((table == tables[0]).all() for table in tables)


def test_noise_depends_on_seed_step_and_weight_and_not_on_the_layout(small_model, small_trainer):
    def noise(seed: int, step: int, **degrees: object) -> dict:
        trainer = small_trainer(
            small_model(), exact=False, precision="bf16-sr", seed=seed, **degrees
        )
        drawn = {}
        for block, state in trainer.states():
            part = block.noise(state, step, "weights")
            whole = state.shape.joined(part, state.shape.own_place)
            drawn[block.plan.block.kind, block.layer] = whole
        return drawn

    one = noise(0, 0)
    for same in (noise(0, 0), noise(0, 0, tp=2, dp=2, zero=1), noise(0, 0, pp=2, dp=2, zero=3)):
        assert all((same[place] == drawn).all() for place, drawn in one.items())
    for other in (noise(1, 0), noise(0, 1)):
        assert all((other[place] != drawn).mean() > 0.99 for place, drawn in one.items())
    first, second = (one["dense", layer] for layer in (0, 1))
    assert (first != second).mean() > 0.99


@pytest.mark.parametrize("seed", [0, 7, 1 << 32, (1 << 64) - 1])
def test_noise_is_that_of_a_generator_seeded_with_plain_numbers(seed, small_model, small_trainer):
    trainer = small_trainer(small_model(hidden=12))
    _, state = next(trainer.states())
    weights = [span.weight for span in state.shape.spans.values()]
    sizes = [int(np.prod([int(dim.whole) for dim in weight.dims])) for weight in weights]
    found = Draws(seed=seed, layers=2).noise(weights, 3, "mean", 4)
    assert found.size == sum(sizes)
    for weight, size, start in zip(weights, sizes, np.cumsum([0, *sizes]), strict=False):
        layer = 0 if weight.name == "embedding.token" else 3
        words = [seed, crc32(weight.name.encode()), layer, crc32(b"mean"), 5]
        drawn = np.random.default_rng(words).integers(0, 1 << 32, size, dtype=np.uint32)
        assert (found[start : start + size] == drawn).all()


@pytest.mark.parametrize("name", RECIPES)
def test_what_settles_may_be_moved_and_written_again(name):
    recipe = RECIPES[name]
    arithmetic = Arithmetic(recipe=recipe)
    numbers = np.random.default_rng(0).lognormal(0, 2, (2, 8, 64)).astype(arithmetic.dtype)
    for format_name in {recipe.linear, recipe.weight_operands, recipe.activations, recipe.weights}:
        stored = arithmetic.store(numbers, format_name)
        moved = stored.reshape(1, 8, 2, 64).swapaxes(1, 2).reshape(1, 16, 64)[..., ::-1]
        same = (arithmetic.store(moved, format_name) == moved).all()
        assert same or not arithmetic.settles(format_name), format_name
    assert Arithmetic(recipe=recipe, exact=True).settles(recipe.linear)
    assert arithmetic.settles(recipe.linear) == (not recipe.quantised)


@pytest.mark.parametrize("name", ["bf16-sr", "fp16-master", "fp8", "mxfp8", "nvfp4"])
def test_what_only_moved_is_what_it_would_be_if_it_were_written_again(
    name, small_model, small_trainer, monkeypatch
):
    def run() -> tuple[list[float], dict]:
        trainer = small_trainer(
            small_model(experts=4, hidden=32),
            exact=False,
            precision=name,
            tp=2,
            dp=2,
            ep=2,
            sequence_parallel=True,
        )
        return [trainer.step() for _ in range(3)], trainer.weights()

    losses, weights = run()
    monkeypatch.setattr("trnbench.engines.execute.operations.only_moves", lambda op: False)
    expected, again = run()
    assert losses == expected
    assert all((weights[name] == again[name]).all() for name in again)


def test_the_same_run_gives_the_same_bits(small_model, small_trainer):
    runs = []
    for _ in range(2):
        trainer = small_trainer(small_model(), exact=False, precision="bf16-sr", tp=2, dp=2)
        runs.append([trainer.step() for _ in range(3)])
    assert runs[0] == runs[1]
