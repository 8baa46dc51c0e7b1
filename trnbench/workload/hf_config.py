"""Hugging Face config.json -> a model file.

Absent keys get the defaults that the library itself gives them; sizes have none and must be there.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trnbench.catalog.structure import structure
from trnbench.catalog.toml_file import toml_text
from trnbench.errors import DataFileError, Fault, InputError, UnknownNameError
from trnbench.workload.config_fields import Fields
from trnbench.workload.json_file import read_object
from trnbench.workload.model import ROTARY_BASE, Model

ConfigTable = dict[str, object]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_MISTRAL_WINDOW = 4096


def read_config(path: Path) -> dict[str, object]:
    """Return the configuration in a config.json."""
    return read_object(path)


def import_config(
    config: Mapping[str, object], name: str, *, date: datetime.date, origin: str = "config.json"
) -> str:
    """Return the text of the file `name`.toml that describes the configured model.

    `date` is when the configuration was read; `origin` names it in messages.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r:.60} cannot name a model; use small letters, digits, '.', '-' and '_'"
        )
    fields = Fields(config)
    architecture = _architecture(config, origin)
    model = ARCHITECTURES[architecture](fields)
    if fields.faults:
        raise _refused(origin, list(dict.fromkeys(fields.faults)))
    head: ConfigTable = {
        "name": name,
        "title": f"{name}, imported from a {architecture} configuration",
    }
    built = structure({**head, **model}, Model)
    if isinstance(built, list):
        raise _refused(origin, built)
    source: ConfigTable = {"title": f"Hugging Face config.json of {name}", "date": date}
    remarks: ConfigTable = {"source": "config", "kind": "vendor", "sources": {"config": source}}
    return toml_text({**head, **remarks, **model})


def _refused(origin: str, faults: Sequence[Fault]) -> DataFileError:
    # No command lists the faults of a configuration: all of them are said here.
    return DataFileError(origin, faults, hint=f"also {'; '.join(map(str, faults[1:]))}")


def _architecture(config: Mapping[str, object], origin: str) -> str:
    name = config.get("model_type")
    if not isinstance(name, str):
        message = "missing" if name is None else "expected a text"
        known = ", ".join(sorted(ARCHITECTURES))
        raise DataFileError(
            origin, [Fault(path="model_type", message=f"{message}; one of {known}")]
        )
    if name not in ARCHITECTURES:
        raise UnknownNameError("architecture", name[:60], ARCHITECTURES, where=origin)
    return name


# Parts that architectures share


def _attention(fields: Fields, *, causal: bool, biases: str) -> ConfigTable:
    heads = fields.whole("num_attention_heads")
    kv_heads = fields.whole("num_key_value_heads", heads)
    if fields.has("num_key_value_heads"):
        fields.share("num_attention_heads", "num_key_value_heads")
    size = (
        fields.whole("head_dim")
        if fields.has("head_dim")
        else fields.share("hidden_size", "num_attention_heads")
    )
    table: ConfigTable = {"heads": heads, "kv_heads": kv_heads, "head_size": size, "causal": causal}
    return table if biases == "none" else {**table, "biases": biases}


def _mlp(fields: Fields, size: str = "intermediate_size", *, biases: bool = False) -> ConfigTable:
    table: ConfigTable = {
        "hidden": fields.whole(size),
        "gated": True,
        "activation": fields.choice("hidden_act", _ACTIVATIONS, "silu"),
    }
    return {**table, "biases": True} if biases else table


def _plain_mlp(fields: Fields, hidden: int, activation: str) -> ConfigTable:
    return {
        "hidden": hidden,
        "gated": False,
        "activation": fields.choice(activation, _ACTIVATIONS, "gelu"),
        "biases": True,
    }


def _rotary(fields: Fields, key: str = "rope_theta") -> ConfigTable:
    scaling = Fields(fields.table("rope_parameters"))
    base = fields.real(key, scaling.real("rope_theta", ROTARY_BASE))
    fields.faults += scaling.faults
    return {
        "encoding": "rotary",
        "length": fields.whole("max_position_embeddings"),
        "rotary_base": base,
    }


def _vocabulary(fields: Fields, *, tied: bool) -> ConfigTable:
    return {
        "size": fields.whole("vocab_size"),
        "tied": fields.flag("tie_word_embeddings", default=tied),
    }


def _rms_decoder(fields: Fields, attention: ConfigTable, rest: ConfigTable) -> ConfigTable:
    transformer: ConfigTable = {
        "layers": fields.whole("num_hidden_layers"),
        "hidden": fields.whole("hidden_size"),
        "norm": "rms",
        "attention": attention,
        **rest,
        "position": _rotary(fields),
    }
    return {"transformer": transformer, "vocabulary": _vocabulary(fields, tied=False)}


def _decoder_attention(fields: Fields, biases: str = "none") -> ConfigTable:
    return _attention(fields, causal=True, biases=biases)


def _attention_bias(fields: Fields) -> str:
    return "all" if fields.flag("attention_bias", default=False) else "none"


# One function an architecture


def _llama(fields: Fields) -> ConfigTable:
    attention = _decoder_attention(fields, _attention_bias(fields))
    biases = fields.flag("mlp_bias", default=False)
    return _rms_decoder(fields, attention, {"mlp": _mlp(fields, biases=biases)})


def _mistral(fields: Fields) -> ConfigTable:
    attention = _decoder_attention(fields)
    # Absent, the library assumes its default; written as null, there is no window.
    if fields.has("sliding_window") or not fields.mentions("sliding_window"):
        attention["window"] = fields.whole("sliding_window", _MISTRAL_WINDOW)
    return _rms_decoder(fields, attention, {"mlp": _mlp(fields)})


def _mixtral(fields: Fields) -> ConfigTable:
    attention = _decoder_attention(fields)
    if fields.has("sliding_window"):
        attention["window"] = fields.whole("sliding_window")
    moe: ConfigTable = {
        "experts": fields.whole("num_local_experts"),
        "top_k": fields.whole("num_experts_per_tok"),
        "expert": _mlp(fields),
    }
    return _rms_decoder(fields, attention, {"moe": moe})


def _qwen2(fields: Fields) -> ConfigTable:
    attention = {**_decoder_attention(fields, "qkv"), **_qwen_window(fields)}
    return _rms_decoder(fields, attention, {"mlp": _mlp(fields)})


def _qwen3(fields: Fields) -> ConfigTable:
    attention = {**_decoder_attention(fields, _attention_bias(fields)), **_qwen_window(fields)}
    attention["query_key_norm"] = True
    attention["head_size"] = fields.whole("head_dim")
    return _rms_decoder(fields, attention, {"mlp": _mlp(fields)})


def _qwen_window(fields: Fields) -> ConfigTable:
    if not fields.flag("use_sliding_window", default=False):
        return {}
    window = fields.whole("sliding_window")
    full = fields.whole("max_window_layers", minimum=0)
    if 0 < full < fields.whole("num_hidden_layers"):
        fields.fault("max_window_layers", "layers with and without a window cannot be imported")
    return {} if full else {"window": window}


def _gpt2(fields: Fields) -> ConfigTable:
    fields.only("add_cross_attention", False, "it is a decoder alone")
    hidden, heads = fields.whole("n_embd"), fields.whole("n_head")
    attention: ConfigTable = {
        "heads": heads,
        "kv_heads": heads,
        "head_size": fields.share("n_embd", "n_head"),
        "causal": True,
        "biases": "all",
    }
    transformer: ConfigTable = {
        "layers": fields.whole("n_layer"),
        "hidden": hidden,
        "norm": "layer",
        "attention": attention,
        "mlp": _plain_mlp(fields, fields.whole("n_inner", 4 * hidden), "activation_function"),
        "position": {"encoding": "learned", "length": fields.whole("n_positions")},
    }
    return {"transformer": transformer, "vocabulary": _vocabulary(fields, tied=True)}


def _gpt_neox(fields: Fields) -> ConfigTable:
    fields.only("attention_bias", True, "its projections have biases")
    hidden = fields.whole("hidden_size")
    attention = _attention(fields, causal=True, biases="all")
    share = fields.real("rotary_pct", 0.25)
    if share > 1:
        fields.fault("rotary_pct", f"must be at most 1, found {share}")
    size = attention["head_size"]
    position = _rotary(fields, "rope_theta" if fields.has("rope_theta") else "rotary_emb_base")
    if isinstance(size, int) and share < 1:
        position["rotary_size"] = max(int(size * share), 1)
    parallel = fields.flag("use_parallel_residual", default=True)
    transformer: ConfigTable = {
        "layers": fields.whole("num_hidden_layers"),
        "hidden": hidden,
        "norm": "layer",
        "residual": "parallel" if parallel else "sequential",
        "attention": attention,
        "mlp": _plain_mlp(fields, fields.whole("intermediate_size"), "hidden_act"),
        "position": position,
    }
    return {"transformer": transformer, "vocabulary": _vocabulary(fields, tied=False)}


def _encoder(fields: Fields, placement: str, position: ConfigTable) -> ConfigTable:
    hidden = fields.whole("hidden_size")
    return {
        "layers": fields.whole("num_hidden_layers"),
        "hidden": hidden,
        "norm": "layer",
        "norm_placement": placement,
        "attention": _attention(fields, causal=False, biases="all"),
        "mlp": _plain_mlp(fields, fields.whole("intermediate_size"), "hidden_act"),
        "position": position,
    }


def _bert(fields: Fields) -> ConfigTable:
    fields.only("is_decoder", False, "it is an encoder")
    fields.only("position_embedding_type", "absolute", "relative positions add weights")
    position: ConfigTable = {
        "encoding": "learned",
        "length": fields.whole("max_position_embeddings"),
    }
    vocabulary = _vocabulary(fields, tied=True)
    vocabulary["token_types"] = fields.whole("type_vocab_size", minimum=0)
    return {
        "transformer": _encoder(fields, "post", position),
        "vocabulary": vocabulary,
        "head": {"pooler": True},
    }


def _vit(fields: Fields) -> ConfigTable:
    fields.only("qkv_bias", True, "its projections have biases")
    patches = fields.share("image_size", "patch_size") ** 2
    position: ConfigTable = {"encoding": "learned", "length": patches + 1}
    image: ConfigTable = {
        "size": fields.whole("image_size"),
        "channels": fields.whole("num_channels"),
        "patch": fields.whole("patch_size"),
        "class_token": True,
    }
    transformer = _encoder(fields, "pre", position)
    return {"transformer": transformer, "image": image, "head": _vit_head(fields)}


def _vit_head(fields: Fields) -> ConfigTable:
    named = fields.texts("architectures") or ("ViTModel",)
    if named == ("ViTForImageClassification",):
        # The library's default is two classes, and the table of labels, where there is one, counts.
        labels = len(fields.table("id2label")) or fields.whole("num_labels", 2)
        return {"classes": labels}
    if named != ("ViTModel",):
        fields.fault("architectures", "only ViTModel or ViTForImageClassification can be imported")
    return {"pooler": True}


def _deepseek_v3(fields: Fields) -> ConfigTable:
    fields.only("attention_bias", False, "its projections have no biases")
    fields.only("moe_layer_freq", 1, "every layer after the dense ones has experts")
    heads = fields.whole("num_attention_heads")
    latent: ConfigTable = {
        "kv_rank": fields.whole("kv_lora_rank"),
        "rope_head_size": fields.whole("qk_rope_head_dim"),
        "value_head_size": fields.whole("v_head_dim"),
    }
    if fields.has("q_lora_rank"):
        latent["query_rank"] = fields.whole("q_lora_rank")
    attention: ConfigTable = {
        "heads": heads,
        "kv_heads": heads,
        "head_size": fields.whole("qk_nope_head_dim"),
        "causal": True,
        "latent": latent,
    }
    dense = fields.whole("first_k_dense_replace", minimum=0)
    moe: ConfigTable = {
        "experts": fields.whole("n_routed_experts"),
        "top_k": fields.whole("num_experts_per_tok"),
        "shared_experts": fields.whole("n_shared_experts", 0, minimum=0),
        "dense_layers": dense,
        "selection_bias": fields.text("topk_method", "noaux_tc") == "noaux_tc",
        "expert": _mlp(fields, "moe_intermediate_size"),
    }
    mlp: ConfigTable = {"mlp": _mlp(fields)} if dense else {}
    return _rms_decoder(fields, attention, {**mlp, "moe": moe})


ARCHITECTURES: Mapping[str, Callable[[Fields], ConfigTable]] = {
    "bert": _bert,
    "deepseek_v3": _deepseek_v3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "vit": _vit,
}
"""model_type -> how its configuration is read."""
