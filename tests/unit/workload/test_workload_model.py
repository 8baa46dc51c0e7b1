from __future__ import annotations

from pathlib import Path

import pytest

from trnbench.errors import DataFileError, UnknownNameError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.library import load_model, read_model

CATALOG = open_catalog(environment={})

GOOD = """
name = "small"
title = "A small decoder"
source = "own"
kind = "vendor"

[sources]
own = { title = "Own", date = 2026-01-01 }

[transformer]
layers = 2
hidden = 64
norm = "rms"
attention = { heads = 8, kv_heads = 2, head_size = 8, causal = true }
mlp = { hidden = 128, gated = true, activation = "silu" }
position = { encoding = "rotary", length = 256, rotary_base = 10000 }

[vocabulary]
size = 100
tied = true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_model_file_loads(tmp_path):
    model = read_model(write(tmp_path, GOOD))
    assert model.family == "decoder"
    assert model.transformer is not None
    assert model.transformer.dense_layers == 2
    assert model.provenance.evidence["transformer.layers"].source == "own"


@pytest.mark.parametrize(
    ("heads", "variant"),
    [("kv_heads = 8", "MHA"), ("kv_heads = 2", "GQA"), ("kv_heads = 1", "MQA")],
)
def test_variants_of_attention(tmp_path, heads, variant):
    model = read_model(write(tmp_path, GOOD.replace("kv_heads = 2", heads)))
    assert model.transformer is not None
    assert model.transformer.attention.variant == variant  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "family", "variant"),
    [
        ("llama3.1-405b", "decoder", "GQA"),
        ("deepseek-v3", "decoder", "MLA"),
        ("bert-large", "encoder", "MHA"),
        ("vit-base", "vision", "MHA"),
        ("dit-xl-2", "diffusion", "MHA"),
    ],
)
def test_families_follow_from_what_surrounds_the_transformer(name, family, variant):
    model = load_model(CATALOG, name)
    assert model.family == family
    assert model.transformer is not None
    assert model.transformer.attention.variant == variant  # type: ignore[union-attr]


def test_the_recommender_is_a_family_of_its_own():
    assert load_model(CATALOG, "dlrm").family == "recommender"


BAD = {
    "unknown key": ("layers = 2", "layers = 2\nlayer = 3", "transformer.layer: unknown key"),
    "missing key": ("hidden = 64", "", "transformer.hidden: missing"),
    "text for a number": ("layers = 2", 'layers = "2"', "transformer.layers: expected a whole"),
    "fraction": ("layers = 2", "layers = 2.5", "transformer.layers: expected a whole number"),
    "negative": ("layers = 2", "layers = -2", "transformer.layers: must be a whole number"),
    "zero": ("layers = 2", "layers = 0", "transformer: `layers` must be from 1"),
    "absurd": (
        "layers = 2",
        "layers = 4000000000",
        "transformer.layers: must be a whole number from",
    ),
    "uneven heads": ("kv_heads = 2", "kv_heads = 3", "`kv_heads` 3 does not divide `heads` 8"),
    "unknown norm": ('"rms"', '"root"', "expected one of rms, layer, plain"),
    "no source": ('source = "own"\n', "", "a number without `source`"),
    "no vocabulary": ("[vocabulary]\nsize = 100\ntied = true", "", "[vocabulary] or [image]"),
    "no rotary base": (", rotary_base = 10000", "", "`rotary_base` goes with rotary"),
    "share above one": ("tied = true", 'tied = true\npredicted = "120%"', "`predicted` must be"),
    "no mlp": ("mlp =", "# mlp =", "expected `mlp` where layers have one"),
    "other name": ('"small"', '"large"', "'large' is not the file's name"),
    "wrong count": (
        "[vocabulary]",
        "[published]\nparameters = 5\n\n[vocabulary]",
        "published.parameters: 5 cited, but the shapes give",
    ),
    "both kinds": (
        "[vocabulary]",
        "[recommender]\ndense_features = 1\nembedding_size = 4\nrows = [5]\nlookups = [1]\n"
        "bottom = [4]\ncross_layers = 1\ncross_rank = 2\ntop = [1]\n\n[vocabulary]",
        "expected either [transformer] or [recommender]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_model_says_where_and_what(tmp_path, case):
    old, new, message = BAD[case]
    assert old in GOOD
    with pytest.raises(DataFileError) as caught:
        read_model(write(tmp_path, GOOD.replace(old, new, 1)))
    assert message in "\n".join(map(str, caught.value.faults))
    assert "small.toml" in caught.value.message


def test_all_faults_of_a_file_are_listed(tmp_path):
    text = GOOD.replace("layers = 2", "layres = 2").replace("size = 100", "size = true")
    with pytest.raises(DataFileError) as caught:
        read_model(write(tmp_path, text))
    assert {fault.path for fault in caught.value.faults} >= {
        "transformer.layres",
        "transformer.layers",
        "vocabulary.size",
    }


MOE = "moe = { experts = 4, top_k = 2, expert = { hidden = 8, gated = true, activation = 'silu' } }"


@pytest.mark.parametrize(
    ("moe", "message"),
    [
        (MOE, "expected `mlp` where layers have one, and only there"),
        (MOE.replace("top_k = 2", "top_k = 5"), "`top_k` 5 is above `experts` 4"),
        (
            MOE.replace("top_k", "dense_layers = 3, top_k"),
            "`dense_layers` 3 of 2 `layers` leave none",
        ),
    ],
)
def test_experts_that_do_not_fit_the_layers(tmp_path, moe, message):
    with pytest.raises(DataFileError) as caught:
        read_model(write(tmp_path, GOOD.replace("norm =", f"{moe}\nnorm =")))
    assert message in "\n".join(map(str, caught.value.faults))


def test_an_image_needs_as_many_positions_as_tokens(tmp_path):
    text = (CATALOG.find("models", "vit-base").path).read_text(encoding="utf-8")
    path = tmp_path / "vit-base.toml"
    path.write_text(text.replace("length = 197", "length = 196"), encoding="utf-8")
    with pytest.raises(DataFileError, match="is 196; the image has 197 tokens"):
        read_model(path)


def test_an_unknown_model_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'llama2-7b'"):
        load_model(CATALOG, "lama2-7b")
