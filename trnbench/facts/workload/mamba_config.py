"""Conversion of mamba_ssm's configurations to Hugging Face's `mamba2` form.

The original form names no architecture, keeps the mixer's numbers in `ssm_cfg`, and pads the
vocabulary when a model is built. Defaults are those of `MambaConfig` and `Mamba2`
(state-spaces/mamba).
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.errors import DataFileError, Fault

_MIXER, _PADDING = "ssm_cfg", "pad_vocab_size_multiple"
_KEYS = {"d_model": "hidden_size", "n_layer": "num_hidden_layers"}
_MIXER_KEYS: Mapping[str, tuple[str, object]] = {
    "d_state": ("state_size", 128),
    "d_conv": ("conv_kernel", 4),
    "headdim": ("head_dim", 64),
    "ngroups": ("n_groups", 1),
    "chunk_size": ("chunk_size", 256),
    "conv_bias": ("use_conv_bias", True),
    "bias": ("use_bias", False),
    "expand": ("expand", 2),
}
"""Key of a mixer -> the key of Hugging Face, and the default."""
_PLAIN: Mapping[str, object] = {"attn_layer_idx": [], "attn_cfg": {}, "d_intermediate": 0}
"""Keys of other kinds of layers, absent from plain Mamba-2 models."""
_MIXER_PLAIN: Mapping[str, object] = {"d_ssm": None, "D_has_hdim": False, "rmsnorm": True}
_INERT = ("layer", "A_init_range", "norm_before_gate", "conv_init", "use_mem_eff_path")


def is_mamba_config(config: Mapping[str, object]) -> bool:
    return "model_type" not in config and "d_model" in config and _MIXER in config


def as_hugging_face(config: Mapping[str, object], origin: str) -> dict[str, object]:
    """The same model in Hugging Face's form; other models than Mamba-2 are refused."""
    config = {key: value for key, value in config.items() if value is not None}
    mixer = config.get(_MIXER)
    if not isinstance(mixer, Mapping):
        raise DataFileError(origin, [Fault(path=_MIXER, message="expected a table")])
    mixer = {key: value for key, value in mixer.items() if value is not None}
    faults = [
        *_unlike(config, {**_PLAIN, "rms_norm": True}, ""),
        *_unlike(mixer, _MIXER_PLAIN, f"{_MIXER}."),
        *(
            Fault(path=f"{_MIXER}.{key}", message="not read, and it may change parameters or FLOP")
            for key in mixer
            if key not in (*_MIXER_KEYS, *_MIXER_PLAIN, *_INERT) and not key.startswith("dt_")
        ),
    ]
    if mixer.get("layer") != "Mamba2":
        found = mixer.get("layer", "Mamba1, the default")
        message = f"only Mamba2 layers can be imported, found {found!s:.60}"
        faults.insert(0, Fault(path=f"{_MIXER}.layer", message=message))
    if faults:
        raise DataFileError(origin, faults)
    read = {_MIXER, _PADDING, "tie_embeddings", *_KEYS, *_PLAIN, "rms_norm"}
    found = {
        "model_type": "mamba2",
        "tie_word_embeddings": config.get("tie_embeddings", True),
        **{key: value for key, value in config.items() if key not in read},
        **{name: config.get(key) for key, name in _KEYS.items()},
        **{name: mixer.get(key, default) for key, (name, default) in _MIXER_KEYS.items()},
    }
    widths = [found[key] for key in ("expand", "hidden_size", "head_dim")]
    match widths:
        case [int(expand), int(hidden), int(head)] if head > 0:
            found["num_heads"] = expand * hidden // head
        case _:
            pass  # Whoever reads the numbers says which of them is none.
    words, multiple = config.get("vocab_size", 50277), config.get(_PADDING, 8)
    match words, multiple:
        case int(), int() if multiple > 0:
            found["vocab_size"] = -(-words // multiple) * multiple
        case _:
            message = "expected a whole number above 0"
            raise DataFileError(origin, [Fault(path=_PADDING, message=message)])
    return found


def _unlike(config: Mapping[str, object], plain: Mapping[str, object], path: str) -> list[Fault]:
    return [
        Fault(path=f"{path}{key}", message=f"only {value!r} can be imported")
        for key, value in plain.items()
        if config.get(key) not in (None, value)
    ]
