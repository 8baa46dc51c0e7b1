"""The model that a row means."""

from __future__ import annotations

import pytest

from trnbench.evidence.model_of import Models, Shape, shape_of
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.weights import parameter_count

LLAMA = {
    "model": "my model",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn": "14336",
    "mlp": "swiglu",
    "vocab": "128256",
}


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(open_catalog())


def found(models: Models, sequence: int = 4096, **cells: str) -> Model:
    row = EvidenceRow(id="row", line=2, cells=LLAMA | cells)
    return models.of(row.text("model"), shape_of(row), sequence).model


def test_a_shipped_model_is_known_by_its_shapes(models):
    assert found(models).name == "llama3.1-8b"


def test_other_shapes_make_a_model_of_their_own(models):
    small = found(models, layers="4")
    assert small.name == "my model"
    assert small.transformer is not None
    assert small.transformer.layers == 4
    assert small.transformer.attention.head_size == 128  # type: ignore[union-attr]
    # 4 x (2 x 4096^2 + 2 x 4096 x 1024 + 3 x 4096 x 14336 + 2 x 4096) + 4096 + 2 x 128256 x 4096
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert parameter_count(small) == 4 * layer + 4096 + 2 * 128256 * 4096


def test_a_plain_mlp_makes_a_model_of_the_gpt_family(models):
    gpt = found(models, mlp="gelu", ffn="16384", kv_heads="32", vocab="50000", sequence=2048)
    assert gpt.transformer is not None
    assert gpt.transformer.mlp is not None
    assert not gpt.transformer.mlp.gated
    assert gpt.transformer.position.encoding == "learned"
    assert gpt.vocabulary is not None
    assert gpt.vocabulary.tied


def test_without_its_kind_an_mlp_is_told_by_its_width(models):
    gated = found(models, mlp="", ffn="11008", vocab="40000").transformer
    plain = found(models, mlp="", ffn="16384", vocab="40000").transformer
    assert gated is not None
    assert gated.mlp is not None
    assert gated.mlp.gated
    assert plain is not None
    assert plain.mlp is not None
    assert not plain.mlp.gated


def test_experts_have_columns_of_their_own(models):
    experts = {"experts": "256", "top_k": "8", "shared_experts": "1", "dense_layers": "3"}
    sizes = {"expert_ffn": "2048", "heads": "128", "kv_heads": "128", "hidden": "7168"}
    model = found(models, 4096, latent="1", layers="8", **experts, **sizes)
    assert model.transformer is not None
    moe = model.transformer.moe
    assert moe is not None
    assert (moe.experts, moe.top_k, moe.shared_experts, moe.dense_layers) == (256, 8, 1, 3)
    assert moe.expert.hidden == 2048
    assert model.transformer.attention.variant == "MLA"  # type: ignore[union-attr]


def test_a_head_size_of_its_own(models):
    model = found(models, experts="128", top_k="8", expert_ffn="768", head_size="64")
    assert model.transformer is not None
    assert model.transformer.attention.head_size == 64  # type: ignore[union-attr]
    assert model.transformer.mlp is None


@pytest.mark.parametrize("name", ["Llama 3.1 8B", "LLAMA3.1-8B (base)", "meta llama-3.1_8b"])
def test_a_name_is_known_whatever_its_capitals_and_punctuation(models, name):
    answer = models.of(name, Shape(), None)
    assert answer.model.name == "llama3.1-8b"
    assert [one.why for one in answer.assumed] == ["from the model's name"]


def test_shapes_that_are_said_win_over_those_of_the_name(models):
    answer = models.of("llama3.1-8b", Shape(layers=4, tied=True), None)
    model = answer.model
    assert model.transformer is not None
    assert model.vocabulary is not None
    assert (model.transformer.layers, model.vocabulary.tied) == (4, True)
    # What the row does not say is as in the model of that name.
    assert model.transformer.attention.kv_heads == 8
    assert model.transformer.position.rotary_base == 500_000


def test_a_narrower_model_has_narrower_heads(models):
    answer = models.of("llama3.1-8b", Shape(hidden=2048), None)
    assert answer.model.transformer is not None
    assert answer.model.transformer.attention.head_size == 64


def test_another_kind_of_mlp_makes_another_kind_of_model(models):
    answer = models.of("llama3.1-8b", Shape(mlp="gelu"), 2048)
    assert answer.model.transformer is not None
    assert answer.model.transformer.norm == "layer"


def test_a_model_without_shapes_is_known_by_its_name(models):
    row = EvidenceRow(id="row", line=2, cells={"model": "HuggingFace ViT-Base"})
    answer = models.of(row.text("model"), shape_of(row), None)
    assert answer.model.name == "vit-base"
    assert answer.assumed


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"heads": "many"}, "heads: 'many' is not a number"),
        ({"heads": "", "ffn": ""}, "heads, ffn: not given, and no known model is called my model"),
        ({"mlp": "maxout"}, "unknown kind 'maxout'"),
        ({"experts": "some"}, "experts: 'some' is not a number"),
        ({"experts": "8"}, "top_k: not given"),
        ({"heads": "30", "kv_heads": "30"}, "do not divide hidden"),
        ({"latent": "1", "heads": "8", "kv_heads": "8"}, "latent: no ranks are given"),
    ],
)
def test_shapes_that_make_no_model_say_why(models, cells, reason):
    with pytest.raises(RowFault, match=reason):
        found(models, **cells)


def test_no_shapes_and_no_known_name(models):
    with pytest.raises(RowFault, match="no shapes, and no known model"):
        models.of("Perceiver", Shape(), None)
