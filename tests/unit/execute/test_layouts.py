"""Every layout trains the same model: losses, weights, bytes on links and FLOP, over many steps."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.engines.execute.exchange import program_flop, traffic_lines

pytestmark = pytest.mark.xdist_group("layouts that train")

STEPS, LEARNING_STEPS = 4, 25
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
    "norms and activations again": {
        "tp": 2,
        "pp": 2,
        "sequence_parallel": True,
        "recompute": "norms,activations",
    },
    "modules again, weights apart": {
        "pp": 2,
        "schedule": "zb-h1",
        "attention": "naive",
        "recompute": "attention-core,norms,activations",
    },
    "some layers again": {"tp": 2, "recompute": "full:1"},
    "replicas": {"dp": 4},
    "slices": {"dp": 3, "global_batch": 6, "zero": 1},
    "slices of gradients": {"dp": 2, "tp": 2, "zero": 2, "sequence_parallel": True},
    "slices in groups": {"dp": 4, "shard": 2, "zero": 1},
    "slices of gradients in groups": {"dp": 2, "cp": 2, "shard": 2, "zero": 2},
    "slices of weights in groups": {"dp": 4, "tp": 2, "shard": 2, "zero": 3},
    "slices of weights": {"dp": 2, "pp": 2, "zero": 3},
    "gpipe": {"pp": 2, "schedule": "gpipe"},
    "zero bubble": {"pp": 2, "schedule": "zb-h1", "dp": 2, "zero": 2},
    "ring of groups": {"cp": 4, "context_parallel": "hybrid:2", "recompute": "full"},
    "ring": {"cp": 2, "tp": 2, "sequence_parallel": True, "zero": 1},
    "hand example": {"tp": 2, "pp": 2, "dp": 2, "sequence_parallel": True, "zero": 1},
}
MIXED: dict[str, dict] = {
    "experts cut": {"tp": 2, "dp": 2, "sequence_parallel": True},
    "experts spread": {"tp": 2, "dp": 4, "ep": 2, "sequence_parallel": True, "zero": 1},
    "experts spread, modules again": {"dp": 4, "ep": 2, "recompute": "norms,activations"},
    "experts spread, some layers again": {"dp": 4, "ep": 2, "recompute": "full:1"},
    "experts spread, context": {"cp": 2, "dp": 2, "ep": 4, "recompute": "full"},
    "experts apart, whole": {
        "tp": 2,
        "dp": 2,
        "ep": 4,
        "expert_tp": 1,
        "sequence_parallel": True,
        "zero": 1,
    },
    "experts apart, halves": {
        "tp": 4,
        "dp": 2,
        "ep": 2,
        "expert_tp": 2,
        "sequence_parallel": True,
        "recompute": "full",
        "zero": 3,
    },
    "experts apart, on every rank": {"tp": 2, "dp": 2, "expert_tp": 1, "sequence_parallel": True},
    "experts spread, groups": {"dp": 8, "ep": 2, "shard": 4, "zero": 3, "global_batch": 8},
    "experts spread, slices": {"dp": 4, "ep": 2, "pp": 2, "zero": 3, "global_batch": 8},
}
TIED: dict[str, dict] = {
    "ends apart": {"pp": 2, "dp": 2, "zero": 2},
    "ends apart, slices": {"pp": 2, "dp": 3, "global_batch": 6, "zero": 3},
    "ends apart, groups": {"pp": 2, "dp": 4, "zero": 2, "shard": 2},
    "ends together, slices": {"dp": 2, "zero": 3},
    "chunks": {"pp": 2, "vpp": 2, "schedule": "interleaved"},
    "some layers of stages again": {"pp": 2, "recompute": "full:1"},
    "drawn": {"pp": 2, "dp": 2, "pipeline_layout": "Et|t*3L", "recompute": "full:1"},
    "drawn, ends alone": {"pp": 4, "pipeline_layout": "E|t|t*3|L"},
    "drawn, chunks": {
        "pp": 2,
        "vpp": 2,
        "schedule": "interleaved",
        "pipeline_layout": "E|t*2|t|tL",
    },
    "work shared": {"pp": 2, "dp": 2, "stage_split": "work"},
    "only the output left": {"pp": 3, "stage_split": "work"},
}
ADAPTERS: dict[str, dict] = {
    **{how: DENSE[how] for how in DENSE if how != "replicas"},
    "packed": {"frozen_format": "nf4", "tp": 2, "dp": 2, "zero": 3, "recompute": "full"},
}
FURTHER: dict[str, dict] = {
    "tensor": {"tp": 2, "cp": 2},
    "tensor, sequence": {"tp": 2, "sequence_parallel": True, "dp": 2, "zero": 1},
    "all again": {"tp": 2, "pp": 2, "sequence_parallel": True, "recompute": "full"},
    "norms again": {"pp": 2, "recompute": "norms,activations", "zero": 2, "dp": 2},
    "slices of weights": {"pp": 2, "dp": 2, "zero": 3},
    "weights apart": {"pp": 2, "schedule": "zb-h1", "tp": 2, "sequence_parallel": True},
    "chunks": {"pp": 2, "vpp": 1, "dp": 2},
    "drawn with the loss": {"pp": 2, "pipeline_layout": "Et*2|m*2L"},
}
APART: dict[str, dict] = {
    "drawn apart": {"pp": 3, "pipeline_layout": "Et*2|m*2|L", "dp": 2, "zero": 1},
    "drawn apart, passed on": {"pp": 4, "pipeline_layout": "Et*2|m*2||L", "tp": 2},
    "drawn apart, chunks": {
        "pp": 3,
        "vpp": 2,
        "schedule": "interleaved",
        "global_batch": 6,
        "pipeline_layout": "Et|t||||m*2L",
    },
    "drawn apart, last chunk of another": {
        "pp": 3,
        "vpp": 2,
        "schedule": "interleaved",
        "global_batch": 6,
        "pipeline_layout": "Et|t|||m*2|L",
    },
}
AGAIN = (
    *("further tokens of tied ends", "further tokens of a mixture", "adapters"),
    *("adapters beside tied ends", "adapters on attention of a mixture"),
)
"""Models that go through the layouts of another: the quick suites try every third of theirs."""
CASES = [
    pytest.param(
        kind,
        degrees,
        id=f"{kind}: {how}",
        marks=[pytest.mark.soak] if kind in AGAIN and place % 3 and how != "packed" else [],
    )
    for kind, layouts in (
        ("llama", DENSE),
        ("one key head", {k: DENSE[k] for k in ("tensor", "slices of gradients")}),
        ("gpt", {k: DENSE[k] for k in ("tensor, sequence", "slices of weights")}),
        ("mixture", MIXED),
        ("tied", TIED),
        ("further tokens", {**FURTHER, **APART}),
        ("further tokens of tied ends", FURTHER),
        ("further tokens of a mixture", {k: MIXED[k] for k in (*MIXED,) if "some" not in k}),
        ("adapters", ADAPTERS),
        ("adapters on one key head", {"tensor": DENSE["tensor"]}),
        ("adapters beside tied ends", TIED),
        ("adapters on attention of a mixture", MIXED),
    )
    for place, (how, degrees) in enumerate(layouts.items())
]
MODELS: dict[str, dict[str, object]] = {
    "llama": {},
    "one key head": {"kv_heads": 1},
    "gpt": {"gpt": True, "kv_heads": 4},
    "mixture": {"experts": 4},
    "tied": {"gpt": True, "kv_heads": 4, "layers": 4, "tied": True},
    "further tokens": {"depths": 2},
    "further tokens of tied ends": {"depths": 2, "tied": True},
    "further tokens of a mixture": {"depths": 1, "experts": 4},
}
LORA: dict[str, dict[str, object]] = {
    "adapters": {"adapter_rank": 4},
    "adapters on one key head": {"adapter_rank": 3},
    "adapters beside tied ends": {"adapter_rank": 4},
    "adapters on attention of a mixture": {"adapter_rank": 4, "adapter_on": "attention"},
}
MODELS |= {
    kind: MODELS[of]
    for kind, of in zip(LORA, ("llama", "one key head", "tied", "mixture"), strict=True)
}
JOBS: dict[str, dict[str, object]] = {kind: {"job": "lora", **LORA[kind]} for kind in LORA}


@pytest.fixture(scope="module")
def alone(small_model, small_trainer):
    """Losses and weights of one rank, by model and batch; made when first asked for."""
    made = {}

    def of(kind, batch):
        if (kind, batch) not in made:
            trainer = small_trainer(
                small_model(**MODELS[kind]), global_batch=batch, **JOBS.get(kind, {})
            )
            made[kind, batch] = [trainer.step() for _ in range(STEPS)], trainer.weights()
        return made[kind, batch]

    return of


@pytest.mark.parametrize(("kind", "degrees"), CASES)
def test_a_layout_trains_as_one_rank_does_and_sends_what_its_program_says(
    kind, degrees, alone, small_model, small_trainer
):
    trainer = small_trainer(small_model(**MODELS[kind]), **JOBS.get(kind, {}), **degrees)
    losses = [trainer.step() for _ in range(STEPS)]
    expected, weights = alone(kind, degrees.get("global_batch", 4))
    assert losses == pytest.approx(expected, rel=1e-10, abs=0)
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_one_rank_learns(kind, small_model, small_trainer):
    trainer = small_trainer(small_model(**MODELS[kind]), **JOBS.get(kind, {}))
    losses = [trainer.step() for _ in range(LEARNING_STEPS)]
    # Adapters cannot move the frozen ends of a model that has learnt nothing yet: they gain less.
    assert losses[-1] < (0.999 if kind in JOBS else 0.97) * losses[0]


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
    return [trainer.step() for _ in range(LEARNING_STEPS)]


@pytest.mark.parametrize("how", ["tensor", "hand example", "slices of gradients", "ring"])
def test_in_fp32_layouts_stay_together(how, alone, alone_in_fp32, small_model, small_trainer):
    trainer = small_trainer(small_model(), exact=False, **DENSE[how])
    losses = [trainer.step() for _ in range(LEARNING_STEPS)]
    assert losses[:20] == pytest.approx(alone_in_fp32[:20], rel=1e-5, abs=0)
    assert losses == pytest.approx(alone_in_fp32, rel=1e-4, abs=0)
    # It is not float64 in disguise.
    assert losses[:STEPS] != pytest.approx(alone("llama", 4)[0], rel=1e-10, abs=0)


def test_experts_without_room_drop_tokens_and_still_learn(alone, small_model, small_trainer):
    tight = small_trainer(small_model(experts=4), capacity_factor=0.5, dp=2)
    losses = [tight.step() for _ in range(LEARNING_STEPS)]
    assert losses[:STEPS] != pytest.approx(alone("mixture", 4)[0], rel=1e-6, abs=0)
    assert losses[-1] < 0.97 * losses[0]
    lines = traffic_lines(tight.book.by_operation(), tight.program, LEARNING_STEPS)
    assert all(line.agrees for line in lines)
