"""Precision recipes as users name them: the format of everything a step stores or multiplies.

`auto-cast` recipes keep every tensor in fp32 and let the compiler cast the operands of matrix
products (neuronx-cc --auto-cast); `bf16-autocast` is torch.autocast over fp32 weights; `bf16` and
`bf16-sr` are what XLA_USE_BF16 makes of a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trnbench.errors import UnknownNameError
from trnbench.facts.records import Record, replace


class PrecisionRecipe(Record):
    """Number formats of all that a training step stores or multiplies."""

    name: str
    title: str
    linear: str  # operands of linear layers
    other: str  # operands of attention scores and vocabulary
    activations: str
    weights: str
    gradients: str
    reduction: str  # gradients on their way between ranks
    master: str | None  # second copy of the weights, which the optimizer updates
    moments: str
    # true where linear operands are stored beside the weights that are trained
    quantised: bool = False
    linear_weights: str | None = None  # weights in linear layers, where grouped otherwise
    stream: str | None = None  # residual stream and norms, where other than activations
    # true where operands are cast for each pass, and copies of weights kept through the backward
    cached: bool = False
    rounding: Literal["rne", "sr"] = "rne"  # rounding of every write of a weight
    statistics: str = "fp32"

    @property
    def residual(self) -> str:
        """Format of the residual stream and of what norms write."""
        return self.stream or self.activations

    @property
    def weight_operands(self) -> str:
        return self.linear_weights or self.linear


_FP32 = PrecisionRecipe(
    name="fp32",
    title="everything in fp32",
    linear="fp32",
    other="fp32",
    activations="fp32",
    weights="fp32",
    gradients="fp32",
    reduction="fp32",
    master=None,
    moments="fp32",
)
_MIXED = PrecisionRecipe(
    name="bf16-master",
    title="bf16 with fp32 master weights, gradients and moments",
    linear="bf16",
    other="bf16",
    activations="bf16",
    weights="bf16",
    gradients="fp32",
    reduction="fp32",
    master="fp32",
    moments="fp32",
)


def _like(
    base: PrecisionRecipe, name: str, title: str, **formats: str | bool | None
) -> PrecisionRecipe:
    return replace(base, name=name, title=title, **formats)


def _quantised(
    name: str, operands: str, linear: str, linear_weights: str | None = None
) -> PrecisionRecipe:
    title = f"bf16-master with {operands} in linear layers"
    formats = {"linear": linear, "linear_weights": linear_weights}
    return _like(_MIXED, name, title, quantised=True, **formats)


_BF16 = _like(
    _MIXED,
    "bf16",
    "everything in bf16, rounded to nearest",
    **dict.fromkeys(("gradients", "reduction", "moments"), "bf16"),
    master=None,
)
# A recipe states only its differences from a relative.
_ALL = (
    _FP32,
    _like(_FP32, "tf32", "fp32 storage, tf32 products", linear="tf32", other="tf32"),
    _MIXED,
    _like(_MIXED, "bf16-sr-master", "bf16-master, weights rounded stochastically", rounding="sr"),
    _BF16,
    _like(_BF16, "bf16-sr", "everything in bf16, rounded stochastically", rounding="sr"),
    _like(
        _MIXED,
        "fp16-master",
        "fp16 with fp32 master weights, gradients and moments",
        **dict.fromkeys(("linear", "other", "activations", "weights"), "fp16"),
    ),
    _quantised("fp8", "fp8 operands", "fp8_e4m3"),
    _quantised(
        "fp8-blockwise", "fp8 operands in blocks of 128", "blockfp8_e4m3", "blockfp8_tile_e4m3"
    ),
    _quantised("mxfp8", "micro-scaled fp8 operands", "mxfp8_e4m3"),
    _quantised("nvfp4", "NVFP4 operands", "nvfp4"),
    _like(
        _FP32, "auto-cast-bf16", "fp32 storage, products cast to bf16", linear="bf16", other="bf16"
    ),
    _like(
        _FP32,
        "bf16-autocast",
        "autocast: fp32 weights, gradients, moments, norms and residual; products in bf16",
        **dict.fromkeys(("linear", "other", "activations"), "bf16"),
        stream="fp32",
        cached=True,
    ),
    _like(
        _FP32,
        "auto-cast-fp8",
        "fp32 storage, linear products cast to fp8, others to bf16",
        linear="fp8_e4m3",
        other="bf16",
    ),
)

RECIPES: Mapping[str, PrecisionRecipe] = {recipe.name: recipe for recipe in _ALL}

ALIASES: Mapping[str, str] = {
    "float32": "fp32",
    "auto-cast-tf32": "tf32",
    "bf16-mixed": _MIXED.name,
    "bf16-pure": _BF16.name,
}


def recipe_named(name: str) -> PrecisionRecipe:
    """Recipe with this name or alias; an unknown name is an input error."""
    key = name.strip().lower().replace("_", "-")
    recipe = RECIPES.get(ALIASES.get(key, key))
    if recipe is None:
        raise UnknownNameError("precision", name, RECIPES, lists="trnbench help precision")
    return recipe
