"""Depths of multi-token prediction: their weights, work, messages, and where they are refused."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.weights import active_parameter_count, parameter_count
from trnbench.program.features import DEPTHS, features_of
from trnbench.program.step import messages_of, training_step

CATALOG = open_catalog()
DEEPSEEK = load_model(CATALOG, "deepseek-v3")
LLAMA = load_model(CATALOG, "llama3.1-8b")
BASE = {"global_batch": 64, "sequence": 4096, "precision": "bf16-master"}
APART = "Et*3|(tt|)*29,m|L"


def step(model=DEEPSEEK, **knobs):
    return training_step(model, Layout(**{**BASE, **knobs}))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        # A layer, 2 h x h and three norms; the bias of each expert is among the layer's weights.
        ("deepseek-v3", 11_610_067_968 + 256),
        ("glm-4.5-air", 2_375_059_456 + 128),
    ],
)
def test_a_depth_has_the_weights_of_the_published_checkpoints(name, more):
    model = load_model(CATALOG, name)
    whole = model.with_depths(1)
    assert parameter_count(whole) - parameter_count(model) == more
    assert parameter_count(model.with_depths(2)) - parameter_count(whole) == more
    assert model.with_depths(None) is model


def test_a_token_meets_few_of_a_depths_experts():
    more = active_parameter_count(DEEPSEEK.with_depths(1)) - active_parameter_count(DEEPSEEK)
    # With both tables, which are the model's: 2.541 billion.
    assert more + 2 * 129280 * 7168 == pytest.approx(2.541e9, rel=1e-3)


@pytest.mark.parametrize("tp", [1, 4])
def test_a_depth_is_a_layer_a_projection_and_an_output(tp):
    knobs = {"tp": tp, "sequence_parallel": tp > 1}
    plain, more = step(**knobs), step(**knobs, mtp_depths=1)
    layer = float(plain.blocks["moe"].model_flop * plain.micro_batches)
    projected = 6 * (2 * 7168 * 7168 + 7168 * 129280) * 64 * 4096
    assert float(more.model_flop - plain.model_flop) == pytest.approx(layer + projected, rel=1e-12)
    kept = float(step(**knobs, mtp_depths=2).model_flop - more.model_flop)
    assert kept == pytest.approx(layer + projected, rel=1e-12)


def test_without_depths_a_step_is_what_it_was():
    plain, none = step(tp=2), step(tp=2, mtp_depths=0)
    assert float(plain.model_flop) == float(none.model_flop)
    assert list(plain.blocks) == list(none.blocks)


def test_the_token_table_is_held_once_more_where_a_pipeline_ends_elsewhere():
    def weights(program, kind):
        (bucket,) = (b for b in program.blocks[kind].buckets if b.axis == "data")
        return float(bucket.elements), float(bucket.tied)

    table = 128256 * 4096
    alone, piped = step(LLAMA, mtp_depths=1), step(LLAMA, mtp_depths=1, pp=2)
    assert weights(piped, "mtp.1")[0] - weights(alone, "mtp.1")[0] == table
    assert weights(piped, "mtp.1")[1] == weights(piped, "embedding")[1] == table
    axes = {op.axis for op in piped.blocks["mtp.1"].collectives}
    assert "tied" in axes


def test_depths_apart_from_the_loss_send_their_streams_on():
    knobs = {"pp": 16, "vpp": 2, "schedule": "interleaved", "pipeline_layout": APART}
    program = step(mtp_depths=1, **knobs)
    assert program.legal, program.refusals()
    *_, before, last = program.stages
    assert [{k for k in s.blocks if "mtp" in k or k == "head"} for s in (before, last)] == [
        {"mtp.1"},
        {"head"},
    ]
    streams = [m for m in last.messages if m.direction == "receive" and m.phase == "F"]
    assert [float(m.count) for m in streams] == [2, 1]
    plain, further = messages_of(program)
    # One of 31 messages between chunks has a second stream with it.
    ratio = float(further.size_bytes / plain.size_bytes)
    assert ratio == pytest.approx(1 / 31)


@pytest.mark.parametrize(
    ("model", "knobs", "words"),
    [
        ("gpt3-6.7b", {"mtp_depths": 1, "sequence": 2048}, "table of positions"),
        ("bert-large", {"mtp_depths": 1, "sequence": 512}, "only decoders"),
        ("nemotron-h-56b", {"mtp_depths": 1}, "no mixer or no feed-forward"),
        ("llama3.1-8b", {"mtp_depths": 1, "job": "dpo"}, "job dpo trains no MTP depths"),
        ("llama3.1-8b", {"pp": 2, "pipeline_layout": "Et*16|t*16mL"}, "draws 1 MTP depths"),
        (
            "llama3.1-8b",
            {"pp": 2, "pipeline_layout": "Et*16|t*16L", "mtp_depths": 1},
            "draws 0 MTP depths",
        ),
        (
            "llama3.1-8b",
            {"pp": 2, "vpp": 2, "pipeline_layout": "Et*16|t*16m||L", "mtp_depths": 1},
            "on stage 2 of 4",
        ),
        (
            "qwen3-1.7b",
            {"pp": 3, "pipeline_layout": "Et*27|tm|L", "mtp_depths": 1},
            "shares those of the embedding",
        ),
    ],
)
def test_what_cannot_be_predicted_further_is_refused_with_the_reason(model, knobs, words):
    program = step(load_model(CATALOG, model), **knobs)
    assert any(words in said for said in program.refusals()), program.refusals()


def test_a_grid_says_what_one_layout_does():
    grid = step(tp=np.array([1, 2, 4]), mtp_depths=1)
    for i, tp in enumerate((1, 2, 4)):
        assert float(np.broadcast_to(grid.hardware_flop, grid.shape)[i]) == float(
            step(tp=tp, mtp_depths=1).hardware_flop
        )


def test_stacks_are_asked_for_it_where_it_is_trained():
    assert DEPTHS not in features_of(DEEPSEEK, PartialLayout())
    assert DEPTHS in features_of(DEEPSEEK, PartialLayout(mtp_depths=1))
    assert DEPTHS in features_of(DEEPSEEK.with_depths(1), PartialLayout())
    assert DEPTHS not in features_of(DEEPSEEK.with_depths(1), PartialLayout(mtp_depths=0))
