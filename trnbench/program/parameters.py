"""The weights of a block as a rank holds them: cut by tensor and expert parallelism.

An adapter of a fine-tuning job is two low-rank weights beside a frozen W: W x + B (A x). A has the
inputs of its projection and B its outputs; both are cut over ranks as the projection is. Where the
projection's outputs are cut, every tensor-parallel rank has all of A and its part of B. Where its
inputs are cut, a rank has a part of A, whose results are summed, and all of B. PEFT on NeuronX
Distributed and NeMo do the same. Outputs are not scaled: alpha equals the rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, field
from trnbench.facts.workload.layout import AdapterTargets
from trnbench.facts.workload.weights import Weight
from trnbench.program.grid import Grid
from trnbench.program.tensor import ONE, Dim, Tensor, array, one

A, B = ".lora_a", ".lora_b"
"""Suffixes of the names of an adapter's two weights, after the projection's name."""
_FP8 = "fp8_e4m3"
_PROJECTIONS = ("attention.", "mlp.", "experts.", "shared_experts.")
_ADAPTED: Mapping[AdapterTargets | None, tuple[str, ...]] = {
    None: (),
    "attention": ("attention.",),
    "all-linear": ("attention.", "mlp."),
}


def has_adapter(grid: Grid, weight: str) -> bool:
    """True when the job trains an adapter beside this projection."""
    return weight.startswith(_ADAPTED[grid.adapter_on])


def stored_format(grid: Grid, weight: str) -> str:
    """Number format of a frozen weight in memory; packed formats are for projections only."""
    projection = weight.startswith(_PROJECTIONS) and not weight.endswith("bias")
    if grid.frozen_format == "none" or not projection or "norm" in weight:
        return grid.recipe.weights
    return _FP8 if grid.frozen_format == "fp8" else grid.frozen_format


def is_packed(grid: Grid, weight: Tensor) -> bool:
    return weight.frozen and weight.format not in (grid.recipe.weights, grid.recipe.linear)


_CUT_BY_TP = ("head", "kv_head", "ffn", "vocabulary", "merged")
_TABLE = "table."
_EXPERTS = "experts."
Replicas = Literal["data", "expert_data"]
Use = Literal["trained", "frozen", "fixed"]
"""Trained by the job; kept as it is, though the model could train it; never trained."""


class Parameter(Record, eq=False):
    """One weight of a block, as one rank holds it."""

    weight: Tensor
    use: Use
    replicas: Replicas = "data"  # axis of the ranks that hold the same part
    held: FloatArray = field(default_factory=one)  # 1 where a layout has it (a tied table: twice)
    copies: FloatArray = field(default_factory=one)  # tp ranks with the same key-value heads
    touched: FloatArray | None = None  # rows a step looks up; only these have a gradient


def parameters(
    grid: Grid,
    weights: Sequence[Weight],
    *,
    spread: bool = False,
    held: Mapping[str, FloatArray] | None = None,
    touched: Mapping[str, FloatArray] | None = None,
) -> dict[str, Parameter]:
    """Weights of a block by name; `spread` cuts the experts over the ranks of ep."""
    held, touched = held or {}, touched or {}
    return {
        weight.name: _parameter(
            grid, weight, spread, held.get(weight.name, ONE), touched.get(weight.name)
        )
        for weight in weights
    }


def _parameter(
    grid: Grid, weight: Weight, spread: bool, held: FloatArray, touched: FloatArray | None
) -> Parameter:
    dims = tuple(_dim(grid, weight, name, size, spread) for name, size in weight.dims)
    # A critic with adapters learns its values whole.
    frozen = weight.trained and grid.frozen and (grid.beside or weight.name != "value")
    return Parameter(
        weight=Tensor(
            name=weight.name,
            dims=dims,
            format=stored_format(grid, weight.name) if frozen else grid.recipe.weights,
            role="weight" if weight.trained else "constant",
            frozen=frozen,
        ),
        use="fixed" if not weight.trained else "frozen" if frozen else "trained",
        replicas=_replicas(grid, weight, dims, spread=spread),
        copies=_copies(grid, dims),
        held=held,
        touched=touched,
    )


def adapter_parameter(grid: Grid, name: str, dims: Sequence[Dim]) -> Parameter:
    cut = tuple(dims)
    weight = Tensor(name=name, dims=cut, format=grid.recipe.weights, role="weight")
    return Parameter(weight=weight, use="trained", copies=_copies(grid, cut))


def _dim(grid: Grid, weight: Weight, name: str, size: int, spread: bool) -> Dim:
    modulates = weight.name.startswith("modulation") and name == "hidden"
    if spread and weight.name.startswith(_EXPERTS) and name in ("expert", "ffn"):
        return grid.dim(name, size, "ep" if name == "expert" else grid.expert_cut)
    if name in _CUT_BY_TP or modulates:
        return grid.dim(name, size, "tp")
    if name == "embedding" and weight.name.startswith(_TABLE):
        return grid.dim(name, size, "ep")
    return grid.dim(name, size)


def _replicas(grid: Grid, weight: Weight, dims: tuple[Dim, ...], *, spread: bool) -> Replicas:
    # Experts that are cut over other ranks than tp have replicas of their own even at ep = 1.
    apart = spread and grid.expert_tp is not None and weight.name.startswith(_EXPERTS)
    return "expert_data" if apart or any("ep" in dim.axes for dim in dims) else "data"


def _copies(grid: Grid, dims: tuple[Dim, ...]) -> FloatArray:
    # More tensor-parallel ranks than key-value heads: several ranks hold a copy of each head.
    shared = [dim for dim in dims if dim.name == "kv_head"]
    if not shared:
        return ONE
    return array(np.maximum(1, np.floor(grid.tp / shared[0].whole)))
