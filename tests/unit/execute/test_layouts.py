"""Every layout trains the same model: losses, weights, bytes on links and FLOP, over many steps."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.execute.accounting import program_flop, traffic_lines

pytestmark = pytest.mark.xdist_group("layouts that train")

STEPS = 25
DENSE: dict[str, dict] = {
    "tensor": {"tp": 4},
    "tensor, sequence": {"tp": 2, "sequence_parallel": True, "dp": 2, "zero": 1},
    "naive, core again": {
        "tp": 2,
        "attention": "naive",
        "recompute": "selective",
        "sequence_parallel": True,
    },
    "all again": {"tp": 2, "recompute": "full", "sequence_parallel": True, "pp": 2},
    "replicas": {"dp": 4},
    "slices": {"dp": 3, "global_batch": 6, "zero": 1},
    "slices of gradients": {"dp": 2, "tp": 2, "zero": 2, "sequence_parallel": True},
    "slices of weights": {"dp": 2, "pp": 2, "zero": 3},
    "gpipe": {"pp": 2, "schedule": "gpipe"},
    "zero bubble": {"pp": 2, "schedule": "zb-h1", "dp": 2, "zero": 2},
    "ring": {"cp": 2, "tp": 2, "sequence_parallel": True, "zero": 1},
    "hand example": {"tp": 2, "pp": 2, "dp": 2, "sequence_parallel": True, "zero": 1},
}
MIXED: dict[str, dict] = {
    "experts cut": {"tp": 2, "dp": 2, "sequence_parallel": True},
    "experts spread": {"tp": 2, "dp": 4, "ep": 2, "sequence_parallel": True, "zero": 1},
    "experts spread, context": {"cp": 2, "dp": 2, "ep": 4, "recompute": "full"},
    "experts spread, slices": {"dp": 4, "ep": 2, "pp": 2, "zero": 3, "global_batch": 8},
}
TIED: dict[str, dict] = {
    "ends apart": {"pp": 2, "dp": 2, "zero": 2},
    "ends apart, slices": {"pp": 2, "dp": 3, "global_batch": 6, "zero": 3},
    "ends together, slices": {"dp": 2, "zero": 3},
    "chunks": {"pp": 2, "vpp": 2, "schedule": "interleaved"},
}
CASES = [
    pytest.param(kind, degrees, id=f"{kind}: {how}")
    for kind, layouts in (
        ("llama", DENSE),
        ("one key head", {k: DENSE[k] for k in ("tensor", "slices of gradients")}),
        ("gpt", {k: DENSE[k] for k in ("tensor, sequence", "slices of weights")}),
        ("mixture", MIXED),
        ("tied", TIED),
    )
    for how, degrees in layouts.items()
]
MODELS: dict[str, dict[str, object]] = {
    "llama": {},
    "one key head": {"kv_heads": 1},
    "gpt": {"gpt": True, "kv_heads": 4},
    "mixture": {"experts": 4},
    "tied": {"gpt": True, "kv_heads": 4, "layers": 4, "tied": True},
}


@pytest.fixture(scope="module")
def alone(small_model, small_trainer):
    """Losses and weights of one rank, by model and batch; made when first asked for."""
    made = {}

    def of(kind, batch):
        if (kind, batch) not in made:
            trainer = small_trainer(small_model(**MODELS[kind]), global_batch=batch)
            made[kind, batch] = [trainer.step() for _ in range(STEPS)], trainer.weights()
        return made[kind, batch]

    return of


@pytest.mark.parametrize(("kind", "degrees"), CASES)
def test_a_layout_trains_as_one_rank_does_and_sends_what_its_program_says(
    kind, degrees, alone, small_model, small_trainer
):
    trainer = small_trainer(small_model(**MODELS[kind]), **degrees)
    losses = [trainer.step() for _ in range(STEPS)]
    expected, weights = alone(kind, degrees.get("global_batch", 4))
    assert losses == pytest.approx(expected, rel=1e-10, abs=0)
    assert losses[-1] < 0.97 * losses[0]
    found = trainer.weights()
    assert set(found) == set(weights)
    for name, weight in weights.items():
        assert np.abs(found[name] - weight).max() < 1e-9, name
    lines = traffic_lines(trainer.book.by_operation(), trainer.program, STEPS)
    assert all(line.agrees for line in lines), lines
    assert lines
    assert trainer.book.links_bytes().sum() == sum(line.sent_bytes for line in lines)
    said = program_flop(trainer.program)
    assert trainer.book.flop == {name: STEPS * flop for name, flop in said.items()}


def test_heads_that_change_places_between_context_ranks_train_the_same(
    alone, small_model, small_trainer
):
    model = small_model(gpt=True, kv_heads=4)
    trainer = small_trainer(model, cp=2, tp=2, context_parallel="all-to-all", attention="naive")
    losses = [trainer.step() for _ in range(STEPS)]
    assert losses == pytest.approx(alone("gpt", 4)[0], rel=1e-10, abs=0)
    lines = traffic_lines(trainer.book.by_operation(), trainer.program, STEPS)
    assert [line.agrees for line in lines] == [True] * len(lines)
    assert ("all-to-all", "cp") in {(line.operation, line.axis) for line in lines}


@pytest.fixture(scope="module")
def alone_in_fp32(small_model, small_trainer):
    """Losses of one rank in fp32."""
    trainer = small_trainer(small_model(), exact=False)
    return [trainer.step() for _ in range(STEPS)]


@pytest.mark.parametrize("how", ["tensor", "hand example", "slices of gradients", "ring"])
def test_in_fp32_layouts_stay_together(how, alone, alone_in_fp32, small_model, small_trainer):
    trainer = small_trainer(small_model(), exact=False, **DENSE[how])
    losses = [trainer.step() for _ in range(STEPS)]
    assert losses[:20] == pytest.approx(alone_in_fp32[:20], rel=1e-5, abs=0)
    assert losses == pytest.approx(alone_in_fp32, rel=1e-4, abs=0)
    # It is not float64 in disguise.
    assert losses != pytest.approx(alone("llama", 4)[0], rel=1e-10, abs=0)


def test_experts_without_room_drop_tokens_and_still_learn(alone, small_model, small_trainer):
    tight = small_trainer(small_model(experts=4), capacity_factor=0.5, dp=2)
    losses = [tight.step() for _ in range(STEPS)]
    assert losses != pytest.approx(alone("mixture", 4)[0], rel=1e-6, abs=0)
    assert losses[-1] < 0.97 * losses[0]
    lines = traffic_lines(tight.book.by_operation(), tight.program, STEPS)
    assert all(line.agrees for line in lines)
