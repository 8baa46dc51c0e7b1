"""Precision recipes as users name them: the format of everything a step stores or multiplies.

`auto-cast` recipes keep every tensor in fp32 and let the compiler cast the operands of matrix
products (neuronx-cc --auto-cast); `bf16` and `bf16-sr` are what XLA_USE_BF16 makes of a program.
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
    linear: str
    """Operands of linear layers."""
    other: str
    """Operands of attention scores and vocabulary."""
    activations: str
    weights: str
    gradients: str
    reduction: str
    """Gradients on their way between ranks."""
    master: str | None
    """Second copy of the weights, which the optimizer updates."""
    moments: str
    quantised: bool = False
    """True where linear operands are stored beside the weights that are trained."""
    linear_weights: str | None = None
    """Weights in linear layers, where grouped otherwise."""
    rounding: Literal["rne", "sr"] = "rne"
    """Rounding of every write of a weight."""
    statistics: str = "fp32"

    @property
    def weight_operands(self) -> str:
        """Format of weights as linear layers read them."""
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
_BF16 = replace(
    _MIXED,
    name="bf16",
    title="everything in bf16, rounded to nearest",
    gradients="bf16",
    reduction="bf16",
    master=None,
    moments="bf16",
)

# A recipe states only its differences from a relative.
_ALL = (
    _FP32,
    replace(_FP32, name="tf32", title="fp32 storage, tf32 products", linear="tf32", other="tf32"),
    _MIXED,
    replace(
        _MIXED,
        name="bf16-sr-master",
        title="bf16-master, weights rounded stochastically",
        rounding="sr",
    ),
    _BF16,
    replace(
        _BF16, name="bf16-sr", title="everything in bf16, rounded stochastically", rounding="sr"
    ),
    replace(
        _MIXED,
        name="fp16-master",
        title="fp16 with fp32 master weights, gradients and moments",
        linear="fp16",
        other="fp16",
        activations="fp16",
        weights="fp16",
    ),
    replace(
        _MIXED,
        name="fp8",
        title="bf16-master with fp8 operands in linear layers",
        linear="fp8_e4m3",
        quantised=True,
    ),
    replace(
        _MIXED,
        name="fp8-blockwise",
        title="bf16-master with fp8 operands in blocks of 128 in linear layers",
        linear="blockfp8_e4m3",
        linear_weights="blockfp8_tile_e4m3",
        quantised=True,
    ),
    replace(
        _MIXED,
        name="mxfp8",
        title="bf16-master with micro-scaled fp8 operands in linear layers",
        linear="mxfp8_e4m3",
        quantised=True,
    ),
    replace(
        _MIXED,
        name="nvfp4",
        title="bf16-master with NVFP4 operands in linear layers",
        linear="nvfp4",
        quantised=True,
    ),
    replace(
        _FP32,
        name="auto-cast-bf16",
        title="fp32 storage, products cast to bf16",
        linear="bf16",
        other="bf16",
    ),
    replace(
        _FP32,
        name="auto-cast-fp8",
        title="fp32 storage, linear products cast to fp8, others to bf16",
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
        raise UnknownNameError("precision", name, [*RECIPES, *ALIASES])
    return recipe
