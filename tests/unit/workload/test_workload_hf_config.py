from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.errors import DataFileError, InputError, UnknownNameError
from trnbench.facts.catalog.toml_file import toml_text
from trnbench.facts.workload.hf_config import family_names, import_config, read_config
from trnbench.facts.workload.library import read_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.weights import parameter_count, weights

PUBLISHED = json.loads(
    (Path(__file__).parent / "hugging_face_configs.json").read_text(encoding="utf-8")
)
DATE = datetime.date(2026, 1, 1)


def config(name: str, **changes: object) -> dict[str, object]:
    return {**PUBLISHED[name]["config"], **changes}


def imported(folder: Path, given_config: dict[str, object], name: str = "imported") -> Model:
    path = folder / f"{name}.toml"
    path.write_text(import_config(given_config, name, date=DATE).text, encoding="utf-8")
    return read_model(path)


def refusal(given_config: dict[str, object]) -> str:
    with pytest.raises(DataFileError) as caught:
        import_config(given_config, "imported", date=DATE, origin="some/config.json")
    assert "some/config.json" in caught.value.message
    return "\n".join(map(str, caught.value.faults))


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_imported_model_has_the_published_number_of_parameters(tmp_path, name):
    model = imported(tmp_path, config(name), name)
    assert parameter_count(model) == PUBLISHED[name]["parameters"]
    assert model.provenance.sources["config"].date == DATE


COUNTED = json.loads((Path(__file__).parent / "counted_models.json").read_text(encoding="utf-8"))
"""Configurations whose parameters were counted on models built without memory, to the last one."""


def test_counted_configurations_have_their_parameters_to_the_last_one(tmp_path):
    found = {}
    for name, row in COUNTED.items():
        model = imported(tmp_path, row["config"], name)
        found[name] = sum(weight.total for weight in weights(model) if weight.trained)
    assert found == {name: row["parameters"] for name, row in COUNTED.items()}


def test_every_family_is_tried():
    tried = {
        import_config(row["config"], "x", date=DATE).family
        for row in (*PUBLISHED.values(), *COUNTED.values())
    }
    towers = {"pixtral", "llama4_vision_model", "siglip_vision_model", "siglip", "llama4_text"}
    assert tried | towers == set(family_names())


def test_layers_that_differ_are_a_pattern(tmp_path):
    gemma = imported(tmp_path, COUNTED["gemma-3-1b"]["config"]).transformer
    assert gemma is not None
    assert gemma.order.count("full") == 4  # layers 6, 12, 18, 24 of 26
    assert gemma.kinds["sliding"].window == 512
    nano = imported(tmp_path, COUNTED["nemotron-3-nano-30b-a3b"]["config"]).transformer
    assert nano is not None
    counted = [nano.order.count(kind) for kind in ("mamba", "experts", "attention")]
    assert counted == [23, 23, 6]


def test_keys_that_are_not_read_are_refused_or_said(tmp_path):
    llama = config("llama2-7b")
    assert "index_topk: not read" in refusal({**llama, "index_topk": 2048})
    done = import_config({**llama, "favourite_colour": "blue"}, "x", date=DATE)
    assert done.ignored == ("favourite_colour is ignored",)
    glm = import_config(COUNTED["glm-4.5"]["config"], "x", date=DATE)
    assert "num_nextn_predict_layers 1" in glm.ignored[0]
    assert "mtp_depths" not in glm.text


def test_depths_are_taken_in_where_that_is_asked(tmp_path):
    done = import_config(COUNTED["glm-4.5"]["config"], "x", date=DATE, depths=True)
    assert done.ignored == ()
    (tmp_path / "x.toml").write_text(done.text)
    more = parameter_count(read_model(tmp_path / "x.toml")) - COUNTED["glm-4.5"]["parameters"]
    # The bias of each expert is counted, as in the checkpoint.
    assert more - 160 * 90 == 3_988_069_632
    with pytest.raises(DataFileError, match="nothing to take in"):
        import_config(config("llama2-7b"), "x", date=DATE, depths=True)


def test_another_family_can_be_asked_for(tmp_path):
    strange = {**config("llama2-7b"), "model_type": "lamalike", "architectures": ["Own"]}
    with pytest.raises(UnknownNameError):
        import_config(strange, "x", date=DATE)
    done = import_config(strange, "x", date=DATE, family="llama")
    assert done.family == "llama"
    with pytest.raises(UnknownNameError, match="unknown family 'lama'"):
        import_config(strange, "x", date=DATE, family="lama")
    with pytest.raises(DataFileError):
        import_config({**strange, "num_experts": 8}, "x", date=DATE, family="llama")


def test_structure_survives_the_import(tmp_path):
    neox = imported(tmp_path, config("gpt-neox-20b")).transformer
    assert neox is not None
    assert neox.residual == "parallel"
    assert neox.position.rotary_size == 24  # a quarter of 6144 / 64 = 96
    mistral = imported(tmp_path, config("mistral-7b")).transformer
    assert mistral is not None
    assert mistral.attention is not None
    assert mistral.attention.window == 4096
    unbounded = imported(tmp_path, config("mistral-7b", sliding_window=None)).transformer
    assert unbounded is not None
    assert unbounded.attention is not None
    assert unbounded.attention.window is None
    qwen3 = imported(tmp_path, config("qwen3-8b")).transformer
    assert qwen3 is not None
    assert qwen3.attention is not None
    assert qwen3.attention.query_key_norm
    deepseek = imported(tmp_path, config("deepseek-v3")).transformer
    assert deepseek is not None
    assert deepseek.moe is not None
    assert (deepseek.moe.dense_layers, deepseek.moe.shared_experts) == (3, 1)


def test_a_window_is_read_where_it_is_used(tmp_path):
    used = config("qwen2-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=0)
    transformer = imported(tmp_path, used).transformer
    assert transformer is not None
    assert transformer.attention is not None
    assert transformer.attention.window == 4096
    mixed = imported(tmp_path, {**used, "max_window_layers": 10}).transformer
    assert mixed is not None
    assert mixed.pattern == "dense*10 sliding*18"


def test_biases_count(tmp_path):
    # Query and output 4096 each, key and value 1024 each, gate and up 14336, down 4096; 32 layers.
    biased = imported(tmp_path, config("llama3.1-8b", attention_bias=True, mlp_bias=True))
    extra = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)
    assert parameter_count(biased) == PUBLISHED["llama3.1-8b"]["parameters"] + extra


def test_rotary_base_of_the_newer_form(tmp_path):
    newer = config("llama2-7b", rope_parameters={"rope_theta": 123456.0, "rope_type": "default"})
    transformer = imported(tmp_path, newer).transformer
    assert transformer is not None
    assert transformer.position.rotary_base == 123456.0


BAD: dict[str, tuple[str, dict[str, object], str]] = {
    "missing": ("llama2-7b", {"hidden_size": None}, "hidden_size: missing"),
    "text": ("llama2-7b", {"hidden_size": "4096"}, "hidden_size: expected a whole number"),
    "fraction": ("llama2-7b", {"vocab_size": 3.5}, "vocab_size: expected a whole number"),
    "true": ("llama2-7b", {"vocab_size": True}, "vocab_size: expected a whole number, found true"),
    "zero": ("llama2-7b", {"num_hidden_layers": 0}, "num_hidden_layers: must be from 1"),
    "negative": ("llama2-7b", {"num_hidden_layers": -32}, "num_hidden_layers: must be from 1"),
    "absurd": ("llama2-7b", {"vocab_size": 10**30}, "vocab_size: must be from 1"),
    "uneven heads": (
        "llama2-7b",
        {"num_attention_heads": 33, "num_key_value_heads": 33},
        "num_attention_heads: 33 does not divide `hidden_size` 4096",
    ),
    "uneven groups": (
        "llama2-7b",
        {"num_key_value_heads": 5},
        "5 does not divide `num_attention_heads` 32",
    ),
    "activation": (
        "llama2-7b",
        {"hidden_act": "tanh"},
        "hidden_act: the text 'tanh' is not one of",
    ),
    "flag": ("llama2-7b", {"tie_word_embeddings": "no"}, "tie_word_embeddings: expected true"),
    "rotary": ("llama2-7b", {"rope_theta": 1e300}, "rope_theta: must be above 0"),
    "table": ("llama2-7b", {"rope_parameters": 3}, "rope_parameters: expected a table"),
    "top_k": ("mixtral-8x7b", {"num_experts_per_tok": 9}, "`top_k` 9 is above `experts` 8"),
    "rotary share": ("gpt-neox-20b", {"rotary_pct": 1.5}, "rotary_pct: must be at most 1"),
    "cross attention": ("gpt2", {"add_cross_attention": True}, "only False can be imported"),
    "relative": ("bert-large", {"position_embedding_type": "relative_key"}, "relative positions"),
    "patch": ("vit-base", {"patch_size": 15}, "patch_size: 15 does not divide `image_size` 224"),
    "task": ("vit-base", {"architectures": ["ViTForMaskedImageModeling"]}, "only ViTModel or"),
    "tasks": ("vit-base", {"architectures": [1]}, "architectures: expected a list of texts"),
    "frequency": ("deepseek-v3", {"moe_layer_freq": 2}, "moe_layer_freq: only 1 can be imported"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_field_is_named(case):
    name, changes, message = BAD[case]
    assert message in refusal(config(name, **changes))


def test_all_bad_fields_are_listed_once():
    bad = config("llama2-7b", vocab_size="many", num_hidden_layers=0)
    del bad["hidden_size"]
    lines = refusal(bad).splitlines()
    assert [line.split(":")[0] for line in lines].count("hidden_size") == 1
    assert {line.split(":")[0] for line in lines} == {
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
    }


def test_an_unknown_architecture_says_which_are_known():
    with pytest.raises(UnknownNameError, match=r"unknown architecture 'lama'.*'llama'") as caught:
        import_config({"model_type": "lama"}, "x", date=DATE)
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in family_names())
    assert "model_type: missing; one of bert, deepseek_v2" in refusal({})
    assert "model_type: expected a text" in refusal({"model_type": 3})


@pytest.mark.parametrize("name", ["", "Llama", "a/b", "../x", "a b", ".hidden", "x\n"])
def test_a_name_that_cannot_be_a_file_is_refused(name):
    with pytest.raises(InputError, match="cannot name a model"):
        import_config(config("llama2-7b"), name, date=DATE)


# Reading the file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[1, 2]", "expected a JSON object"),
        (b"3", "expected a JSON object"),
        (b'{"hidden_size": NaN}', "NaN is not a JSON number"),
        (b'{"hidden_size": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1, "a": 2}', "key 'a' is given twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b"\xff\xfe{}", "is not valid UTF-8"),
        (b" " * (9 << 20), "bytes; such a file holds at most"),
    ],
    ids=range(10),
)
def test_a_file_that_is_no_configuration(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DataFileError) as caught:
        read_config(path)
    assert message in caught.value.message
    assert "config.json" in caught.value.message


def test_a_path_that_is_no_file(tmp_path):
    with pytest.raises(DataFileError, match=r"a folder without config.json"):
        read_config(tmp_path)
    with pytest.raises(DataFileError, match="no such file"):
        read_config(tmp_path / "absent.json")


def test_a_good_file_reads(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config("gpt2")), encoding="utf-8")
    assert read_config(path) == config("gpt2")


# Any values at all

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(0, 100),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(0, 3), max_size=2),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_mutated_configurations_load_or_are_refused(data):
    name = data.draw(st.sampled_from(sorted(PUBLISHED)))
    changed = config(name)
    for key in data.draw(st.lists(st.sampled_from(sorted(changed)), min_size=1, max_size=3)):
        changed[key] = data.draw(VALUES)
    try:
        text = import_config(changed, "imported", date=DATE).text
    except InputError:
        return
    assert tomli.loads(text)["name"] == "imported"


# Writing TOML


@given(
    table=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        st.one_of(
            st.booleans(),
            st.integers(-(2**62), 2**62),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
            st.dates(),
        ),
        max_size=4,
    )
)
@settings(max_examples=100, deadline=None)
def test_written_tables_read_back(table):
    whole = {**table, "section": {**table, "inner": table}}
    assert tomli.loads(toml_text(whole)) == whole


MAMBA_SSM = {
    "d_model": 2560,
    "d_intermediate": 0,
    "n_layer": 64,
    "vocab_size": 50277,
    "ssm_cfg": {"layer": "Mamba2"},
    "attn_layer_idx": [],
    "attn_cfg": {},
    "rms_norm": True,
    "residual_in_fp32": True,
    "fused_add_norm": True,
    "pad_vocab_size_multiple": 16,
    "tie_embeddings": True,
}
"""state-spaces/mamba2-2.7b, config.json: no architecture, numbers of the mixer left out."""


@pytest.mark.parametrize(
    ("width", "layers", "parameters"),
    [(768, 24, 128989632), (1536, 48, 780161280), (2560, 64, 2702599680)],
)
def test_the_form_of_mamba_ssm_is_the_model_of_hugging_face(tmp_path, width, layers, parameters):
    model = imported(tmp_path, {**MAMBA_SSM, "d_model": width, "n_layer": layers})
    assert parameter_count(model) == parameters
    assert model.vocabulary is not None
    # 50,277 words, padded to a multiple of 16.
    assert model.vocabulary.size == 50288


def test_numbers_of_the_mixer_are_read(tmp_path):
    mixer = {
        "layer": "Mamba2",
        "d_conv": None,
        "d_state": 64,
        "headdim": 128,
        "ngroups": 2,
        "chunk_size": 128,
    }
    transformer = imported(tmp_path, {**MAMBA_SSM, "ssm_cfg": mixer}).transformer
    assert transformer is not None
    scan = transformer.scan
    assert scan is not None
    assert (scan.state_size, scan.head_size, scan.key_heads, scan.chunk) == (64, 128, 2, 128)
    assert scan.heads == 2 * 2560 // 128


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ssm_cfg": {}}, "ssm_cfg.layer: only Mamba2 layers can be imported, found Mamba1"),
        ({"ssm_cfg": {"layer": "Mamba2", "d_ssm": 512}}, "ssm_cfg.d_ssm: only None"),
        ({"ssm_cfg": {"layer": "Mamba2", "d_new": 5}}, "ssm_cfg.d_new: not read"),
        ({"ssm_cfg": 5}, "ssm_cfg: expected a table"),
        ({"attn_layer_idx": [3]}, "attn_layer_idx: only []"),
        ({"d_intermediate": 4096}, "d_intermediate: only 0"),
        ({"pad_vocab_size_multiple": "16"}, "pad_vocab_size_multiple: expected a whole number"),
        ({"d_model": "wide"}, "hidden_size"),
        ({"d_model": 100}, "num_heads: heads of head_dim must make"),
        ({"expert_size": 7}, "expert_size: not read"),
    ],
)
def test_what_a_mamba_ssm_form_cannot_mean_is_refused(change, words):
    assert words in refusal({**MAMBA_SSM, **change})
