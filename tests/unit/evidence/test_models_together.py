"""Models of other sizes on one grid: their numbers are those of each alone, to the bit."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from trnbench.engines.analytic.step.memory import stage_parts
from trnbench.evidence.lowered import LoweredLayout, family_of, lowered
from trnbench.facts.calibration.hosts import PLAIN
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.sizes import sizes_of
from trnbench.predict.prices import prices_of
from trnbench.predict.setup import train_setup
from trnbench.program.step import StepProgram, training_step

CATALOG = open_catalog(environment={})
MODEL = load_model(CATALOG, "llama3.1-8b")
SHAPES = (
    # Layers, hidden, heads, key-value heads, head size, MLP columns, vocabulary
    (32, 4096, 32, 8, 128, 14336, 128256),
    (80, 8192, 64, 8, 128, 28672, 128256),
    (40, 5120, 40, 40, 128, 13824, 32000),
    (22, 2048, 32, 4, 64, 5632, 50257),
    (18, 2048, 8, 1, 256, 16384, 256000),
    (24, 2048, 16, 16, 128, 5504, 32000),
)
MODES: tuple[dict[str, Any], ...] = (
    {"tp": 4, "pp": 2, "dp": 8, "zero": 1},
    {"tp": 8, "pp": 1, "dp": 8, "attention": "naive", "recompute": "selective"},
    {"tp": 2, "pp": 4, "dp": 8, "sequence_parallel": True, "stage_split": "work"},
    {"tp": 8, "pp": 2, "dp": 4, "sequence_parallel": True, "attention": "naive", "vpp": 1},
    {"tp": 2, "pp": 2, "dp": 8, "cp": 2, "zero": 3, "recompute": "full"},
    {"tp": 4, "pp": 1, "dp": 16, "loss": "fused"},
    {"tp": 4, "pp": 1, "dp": 16, "job": "lora", "adapter_rank": 16, "adapter_on": "all-linear"},
)


JOB: dict[str, Any] = {
    "micro_batch": 1,
    "global_batch": 64,
    "sequence": 4096,
    "precision": "bf16-master",
}


def sized(model, shape):
    layers, hidden, heads, kv_heads, head_size, columns, words = shape
    transformer = model.transformer
    attention = replace(transformer.attention, heads=heads, kv_heads=kv_heads, head_size=head_size)
    return replace(
        model,
        name=f"of {hidden} and {layers}",
        transformer=replace(
            transformer,
            layers=layers,
            hidden=hidden,
            attention=attention,
            mlp=replace(transformer.mlp, hidden=columns),
        ),
        vocabulary=replace(model.vocabulary, size=words),
    )


MODELS = tuple(sized(MODEL, shape) for shape in SHAPES)


def together(layout: Layout) -> list[tuple[Model, LoweredLayout]]:
    """The largest family among the models, on one grid."""
    families: dict[Model, list[Model]] = {}
    for model in MODELS:
        families.setdefault(family_of(model, layout)[0], []).append(model)
    alike = max(families.values(), key=len)
    placed = [(0, layout, (None, sizes_of(model))) for model in alike]
    found = [one for _, one in lowered(alike[0], placed)]
    assert found[0].program.shape == (len(alike),)
    return [*zip(alike, found, strict=True)]


def worst_bytes(program: StepProgram):
    return reduce(np.maximum, (stage.total_bytes(PLAIN, 0.0) for stage in stage_parts(program)))


@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_models_together_are_those_of_each_alone(mode):
    layout = Layout(**JOB, **mode)
    found = together(layout)
    setup, program = train_setup(CATALOG, MODEL, "trn2.48xlarge", 1), found[0][1].program
    times = prices_of(setup, program, setup.samples).time().time_s
    for model, one in found:
        alone = training_step(model, layout)
        assert one.refusals(model) == alone.refusals()
        if one.refusals(model):
            continue
        assert float(one.of(program.model_flop)) == float(alone.model_flop)
        assert float(one.of(program.hardware_flop)) == float(alone.hardware_flop)
        assert float(one.of(worst_bytes(program))) == float(worst_bytes(alone))
        own = prices_of(replace(setup, model=model), alone, setup.samples).time().time_s
        np.testing.assert_array_equal(one.of(times), own)


def test_a_refused_model_is_told_in_its_own_words():
    layout = Layout(tp=16, dp=4, **JOB)
    found = [one.refusals(model) for model, one in together(layout)]
    assert "40 heads" in " ".join(found[2])
    assert "8 heads" in " ".join(found[4])
    assert found[0] == found[1] == ()


def test_only_models_that_differ_in_sizes_are_a_family():
    layout = Layout(**JOB)
    assert len({family_of(model, layout)[0] for model in MODELS}) == 1
    others = ("mixtral-8x7b", "gpt2", "bert-large", "mamba2-2.7b")
    assert len({family_of(load_model(CATALOG, name), layout)[0] for name in others}) == 4
    assert family_of(MODEL, replace(layout, job="grpo")) == (MODEL, ())


def test_a_grid_of_one_model_is_that_model_whoever_names_the_family():
    layout = Layout(**JOB, **MODES[2])
    for model in MODELS[1:]:
        ((_, one),) = lowered(MODELS[0], [(0, layout, (None, sizes_of(model)))])
        alone = training_step(model, layout)
        assert float(one.of(one.program.model_flop)) == float(alone.model_flop)
        assert float(one.of(worst_bytes(one.program))) == float(worst_bytes(alone))
