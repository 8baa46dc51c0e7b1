from __future__ import annotations

from math import prod

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.weights import (
    Weight,
    active_parameter_count,
    parameter_count,
    parameters_by_block,
    weights,
)

CATALOG = open_catalog(environment={})

EXACT = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "bert-large": 335_141_888,
    "vit-base": 86_567_656,
    "dit-xl-2": 675_129_632,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_419_200,
}
STATED = {
    "gpt3-6.7b": 6.7e9,
    "gpt3-23b": 23e9,
    "gpt3-175b": 175e9,
    "megatron-22b": 22e9,
    "megatron-530b": 530e9,
    "megatron-1t": 1e12,
}


def model(name: str) -> Model:
    return load_model(CATALOG, name)


def named(name: str) -> dict[str, Weight]:
    """The weights of a model whose names are unique over its blocks."""
    listed = weights(model(name))
    assert len({weight.name for weight in listed}) == len(listed)
    return {weight.name: weight for weight in listed}


@pytest.mark.parametrize("name", EXACT)
def test_counts_are_those_of_the_published_checkpoints(name):
    assert parameter_count(model(name)) == EXACT[name]


@pytest.mark.parametrize("name", STATED)
def test_counts_are_within_one_percent_of_the_stated_size(name):
    assert parameter_count(model(name)) == pytest.approx(STATED[name], rel=0.01)


def test_gpt3_46b_by_hand():
    # Layer: 12 h^2 = 12 * 8192^2 = 805,306,368 in products, 9 h = 73,728 in biases, 4 h = 32,768 in
    # norms: 805,412,864. Times 56 = 45,103,120,384. Tokens 50,257 h = 411,705,344, positions
    # 2,048 h = 16,777,216, last norm 2 h = 16,384. Sum 45,531,619,328; the name rounds up.
    assert parameter_count(model("gpt3-46b")) == 45_531_619_328


def test_llama2_7b_by_hand():
    # Attention 4 * 4096^2 = 67,108,864; MLP 3 * 4096 * 11008 = 135,266,304; norms 2 * 4096 = 8,192:
    # 202,383,360 a layer, times 32 = 6,476,267,520. Embedding 32000 * 4096 = 131,072,000.
    # Head the same and the last norm 4,096: 131,076,096.
    assert parameters_by_block(model("llama2-7b")) == {
        "embedding": 131_072_000,
        "dense": 6_476_267_520,
        "head": 131_076_096,
    }


def test_deepseek_v3_layer_by_hand():
    # Query 7168 * 1536 + 1536 + 1536 * 128 * 192, key-value 7168 * (512 + 64) + 512 +
    # 512 * 128 * (128 + 128), output 128 * 128 * 7168: 187,107,328. Norms 2 * 7168.
    # One expert 3 * 7168 * 2048 = 44,040,192; 257 of them; router 7168 * 256 + 256.
    attention, norms, expert = 187_107_328, 14_336, 44_040_192
    blocks = parameters_by_block(model("deepseek-v3"))
    assert blocks["moe"] == 58 * (attention + norms + 257 * expert + 7168 * 256 + 256)
    assert blocks["dense"] == 3 * (attention + norms + 3 * 7168 * 18432)


def test_dlrm_tables_are_those_of_mlperf():
    blocks = parameters_by_block(model("dlrm-dcnv2"))
    # 204,184,588 rows of 128; cross: 3 * (2 * 3456 * 512 + 3456), 3456 = 27 * 128.
    assert blocks["tables"] == 204_184_588 * 128
    assert blocks["interaction"] == 3 * (2 * 3456 * 512 + 3456)
    # 13 -> 512 -> 256 -> 128 and 3456 -> 1024 -> 1024 -> 512 -> 256 -> 1, with biases.
    assert blocks["bottom"] == 14 * 512 + 513 * 256 + 257 * 128
    assert blocks["top"] == 3457 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257


def test_active_parameters_count_the_experts_a_token_visits():
    # Mixtral: 2 of 8 experts of 3 * 4096 * 14336 in each of 32 layers leave out 6.
    skipped = 32 * 6 * 3 * 4096 * 14336
    assert active_parameter_count(model("mixtral-8x7b")) == EXACT["mixtral-8x7b"] - skipped
    # DeepSeek-V3 states 37 billion activated.
    assert active_parameter_count(model("deepseek-v3")) == pytest.approx(37e9, rel=0.02)
    assert active_parameter_count(model("llama2-7b")) == EXACT["llama2-7b"]


@pytest.mark.parametrize("name", [entry.name for entry in CATALOG.entries("models")])
def test_blocks_add_up_and_weights_are_well_formed(name):
    listed = weights(model(name))
    assert sum(parameters_by_block(model(name)).values()) == parameter_count(model(name))
    assert parameter_count(model(name)) == sum(
        prod(size for _, size in weight.dims) * weight.count for weight in listed
    )
    assert len({(weight.block, weight.name) for weight in listed}) == len(listed)
    for weight in listed:
        assert weight.block
        assert weight.count > 0
        assert len({name for name, _ in weight.dims}) == len(weight.dims)


def test_grouped_query_weights_name_what_can_be_cut():
    listed = named("llama3.1-8b")
    assert listed["attention.query"].dims == (("hidden", 4096), ("head", 32), ("head_size", 128))
    assert listed["attention.key"].dims == (("hidden", 4096), ("kv_head", 8), ("head_size", 128))
    assert listed["attention.output"].dims == (("head", 32), ("head_size", 128), ("hidden", 4096))
    assert listed["mlp.gate"].dims == (("hidden", 4096), ("ffn", 14336))
    assert listed["mlp.down"].dims == (("ffn", 14336), ("hidden", 4096))
    assert listed["embedding.token"].dims == (("vocabulary", 128256), ("hidden", 4096))
    assert listed["head"].dims == (("hidden", 4096), ("vocabulary", 128256))
    assert listed["attention.query"].count == 32


def test_expert_weights_carry_the_expert_dimension():
    listed = named("mixtral-8x7b")
    assert listed["experts.up"].dims == (("expert", 8), ("hidden", 4096), ("ffn", 14336))
    assert listed["experts.up"].block == "moe"
    assert listed["router"].dims == (("hidden", 4096), ("expert", 8))
    assert "mlp.up" not in listed


def test_tied_models_have_no_head_of_their_own():
    assert "head" not in named("gpt3-175b")
    assert named("gpt3-175b")["attention.query.bias"].dims == (("head", 96), ("head_size", 128))


def test_post_norm_encoder_normalises_embeddings_and_not_the_end():
    listed = named("bert-large")
    assert "norm.embedding" in listed
    assert "norm.final" not in listed
    assert listed["pooler"].block == "head"


def test_what_is_not_trained_says_so():
    assert [w.name for w in weights(model("dit-xl-2")) if not w.trained] == ["patch.position"]
    untrained = [w.name for w in weights(model("deepseek-v3")) if not w.trained]
    assert untrained == ["router.selection_bias"]
