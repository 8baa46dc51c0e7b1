"""The weights of a block as a rank holds them: cut by tensor and expert parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.grid import Grid
from trnbench.program.tensor import ONE, Dim, Tensor, array, one
from trnbench.workload.weights import Weight

_CUT_BY_TP = ("head", "kv_head", "ffn", "vocabulary")
_TABLE = "table."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parameter:
    """One weight of a block.

    `held`: 1 where a layout has it here (a shared vocabulary is held twice only by a pipeline).
    `copies`: ranks along tp that hold the same slice (key-value heads fewer than ranks).
    `touched`: the rows a step looks up, where only those have a gradient.
    """

    weight: Tensor
    trained: bool
    held: FloatArray = field(default_factory=one)
    copies: FloatArray = field(default_factory=one)
    touched: FloatArray | None = None


def parameters(
    grid: Grid,
    weights: Sequence[Weight],
    *,
    spread: bool = False,
    held: Mapping[str, FloatArray] | None = None,
    touched: Mapping[str, FloatArray] | None = None,
) -> dict[str, Parameter]:
    """Return a block's weights by name; `spread` cuts the experts over the ranks of ep."""
    made = (_parameter(grid, weight, spread) for weight in weights)
    return {
        parameter.weight.name: replace(
            parameter,
            held=(held or {}).get(parameter.weight.name, ONE),
            touched=(touched or {}).get(parameter.weight.name),
        )
        for parameter in made
    }


def _parameter(grid: Grid, weight: Weight, spread: bool) -> Parameter:
    dims = tuple(_dim(grid, weight, name, size, spread) for name, size in weight.dims)
    return Parameter(
        weight=Tensor(
            name=weight.name,
            dims=dims,
            format=grid.recipe.weights,
            role="weight" if weight.trained else "constant",
        ),
        trained=weight.trained,
        copies=_copies(grid, dims),
    )


def _dim(grid: Grid, weight: Weight, name: str, size: int, spread: bool) -> Dim:
    modulates = weight.name.startswith("modulation") and name == "hidden"
    if name in _CUT_BY_TP or modulates:
        return grid.dim(name, size, "tp")
    if name == "expert" and spread and weight.name.startswith("experts."):
        return grid.dim(name, size, "ep")
    if name == "embedding" and weight.name.startswith(_TABLE):
        return grid.dim(name, size, "ep")
    return grid.dim(name, size)


def _copies(grid: Grid, dims: tuple[Dim, ...]) -> FloatArray:
    shared = [dim for dim in dims if dim.name == "kv_head"]
    if not shared:
        return ONE
    return array(np.maximum(1, np.floor(grid.tp / shared[0].whole)))
