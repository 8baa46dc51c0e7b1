"""What ranks hold while they work, beside the memory model."""

from __future__ import annotations

import pytest

from trnbench.engines.analytic.step.memory import memory
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform

LAYOUTS = [
    {},
    {"tp": 2, "pp": 2, "dp": 2, "sequence_parallel": True, "zero": 1},
    {"pp": 2, "schedule": "gpipe"},
    {"pp": 2, "vpp": 2, "schedule": "interleaved"},
    {"pp": 4, "recompute": "full"},
    {"pp": 2, "recompute": "full:1"},
    {"tp": 2, "pp": 2, "sequence_parallel": True, "recompute": "norms,activations"},
    {"dp": 2, "zero": 2, "pp": 2},
    {"dp": 2, "zero": 3, "pp": 2},
    {"tp": 2, "attention": "naive", "recompute": "selective"},
    {"cp": 2},
    {"tp": 2, "pp": 2, "precision": "bf16-master"},
    {"dp": 2, "zero": 1, "precision": "bf16-sr"},
    {"tp": 2, "precision": "fp8"},
    {"tp": 2, "precision": "fp8-blockwise"},
    {"job": "lora", "adapter_rank": 4, "tp": 2, "pp": 2, "precision": "bf16-master"},
    {
        "job": "lora",
        "adapter_rank": 4,
        "adapter_on": "attention",
        "dp": 2,
        "zero": 3,
        "recompute": "full",
    },
    {
        "job": "lora",
        "adapter_rank": 4,
        "frozen_format": "nf4",
        "tp": 2,
        "dp": 2,
        "zero": 1,
        "precision": "bf16",
    },
    {"job": "lora", "adapter_rank": 4, "tp": 2, "dp": 2, "zero": 3, "precision": "fp8"},
]
FURTHER = [
    {"pp": 2, "tp": 2, "sequence_parallel": True},
    {"pp": 2, "dp": 2, "zero": 3},
    {"pp": 2, "recompute": "full"},
    {"pp": 2, "vpp": 2, "schedule": "interleaved"},
    {"pp": 3, "pipeline_layout": "Et*4|m|L"},
    {"pp": 2, "tp": 2, "precision": "fp8"},
]


@pytest.fixture(scope="module")
def platform():
    """Some platform: what a rank has does not matter here."""
    return load_platform(open_catalog(), "trn1.32xlarge")


@pytest.mark.parametrize("degrees", LAYOUTS, ids=str)
def test_peaks_are_those_of_the_memory_model(degrees, platform, small_model, small_trainer):
    model = small_model(gpt=True, layers=4, kv_heads=4)
    trainer = small_trainer(model, exact=False, global_batch=8, **degrees)
    trainer.step()
    said = memory(trainer.program, platform, fragmentation_ratio=0.0)
    for stage, expected in zip(trainer.program.stages, said.stages, strict=True):
        residency = trainer.stages[int(stage.index)].residency
        for name, size in residency.by_category.items():
            assert size == pytest.approx(float(expected.by_category[name]), rel=0.02), name
        total = float(expected.total_bytes)
        assert sum(residency.by_category.values()) == pytest.approx(total, rel=0.02)
        assert residency.peak_bytes < 1.02 * total
        assert residency.peak_bytes > 0.8 * total


@pytest.mark.parametrize("pp", [2, 4])
def test_what_waits_for_weight_gradients_takes_the_place_of_what_is_done(
    pp, platform, small_model, small_trainer
):
    model = small_model(gpt=True, layers=4, kv_heads=4)
    trainer = small_trainer(model, exact=False, global_batch=8, pp=pp, schedule="zb-h1")
    trainer.step()
    said = memory(trainer.program, platform, fragmentation_ratio=0.0)
    for stage, expected in zip(trainer.program.stages, said.stages, strict=True):
        residency = trainer.stages[int(stage.index)].residency
        assert residency.peak_bytes == pytest.approx(float(expected.total_bytes), rel=0.02)


@pytest.mark.parametrize(
    "degrees", [{"tp": 4, "sequence_parallel": True}, {"recompute": "full"}], ids=str
)
def test_blocks_that_went_back_keep_what_waits_for_weight_gradients(
    degrees, platform, small_model, small_trainer
):
    """Many blocks a stage, each of which keeps more after its backward slot than before."""
    model = small_model(gpt=True, layers=12, kv_heads=4, hidden=32)
    trainer = small_trainer(
        model, exact=False, global_batch=8, sequence=32, pp=2, schedule="zb-h1", **degrees
    )
    trainer.step()
    said = memory(trainer.program, platform, fragmentation_ratio=0.0)
    for stage, expected in zip(trainer.program.stages, said.stages, strict=True):
        residency = trainer.stages[int(stage.index)].residency
        if int(stage.multiplicity):
            assert residency.peak_bytes == pytest.approx(float(expected.total_bytes), rel=0.02)


def test_nothing_but_the_state_is_left_after_a_step(small_model, small_trainer):
    for degrees in ({"pp": 2, "schedule": "zb-h1", "zero": 2, "dp": 2}, {"dp": 2, "zero": 3}):
        trainer = small_trainer(small_model(), **degrees)
        trainer.step()
        after_one = [stage.residency.now_bytes for stage in trainer.stages]
        trainer.step()
        assert [stage.residency.now_bytes for stage in trainer.stages] == after_one
        for stage in trainer.stages:
            state = ("weights", "gradients", "optimizer")
            held = sum(stage.residency.by_category[name] for name in state)
            buffers = stage.residency.now_bytes - held
            assert 0 <= buffers <= stage.residency.by_category.get("communication", 0)


@pytest.mark.parametrize("degrees", FURTHER, ids=str)
def test_peaks_of_further_tokens_are_those_of_the_memory_model(
    degrees, platform, small_model, small_trainer
):
    model = small_model(layers=4, kv_heads=4, depths=1)
    trainer = small_trainer(model, exact=False, global_batch=8, **degrees)
    trainer.step()
    said = memory(trainer.program, platform, fragmentation_ratio=0.0)
    for stage, expected in zip(trainer.program.stages, said.stages, strict=True):
        residency = trainer.stages[int(stage.index)].residency
        for name, size in residency.by_category.items():
            assert size == pytest.approx(float(expected.by_category[name]), rel=0.02), name
