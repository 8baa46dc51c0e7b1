"""What a job with adapters trains: low-rank pairs A and B beside frozen projections, W x + B (A x).

A has the inputs of its projection and B its outputs, cut over ranks as those of the projection are.
So beside a projection whose outputs are cut, every tensor-parallel rank has all of A and its part
of B; beside one whose inputs are cut, a part of A, whose results are summed, and all of B. That is
how PEFT on NeuronX Distributed and NeMo have it. Outputs are not scaled: alpha is the rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.workload.layout import AdapterTargets
from trnbench.program.grid import Grid
from trnbench.program.tensor import Tensor

A, B = ".lora_a", ".lora_b"
"""What the names of an adapter's two weights end in, behind that of the projection."""
_FP8 = "fp8_e4m3"
_PROJECTIONS = ("attention.", "mlp.", "experts.", "shared_experts.")
_ADAPTED: Mapping[AdapterTargets | None, tuple[str, ...]] = {
    None: (),
    "attention": ("attention.",),
    "all-linear": ("attention.", "mlp."),
}


def has_adapter(grid: Grid, weight: str) -> bool:
    """Return whether an adapter stands beside a projection."""
    return weight.startswith(_ADAPTED[grid.adapter_on])


def stored_format(grid: Grid, weight: str) -> str:
    """Return the format in which a frozen weight is kept: a packed one is for projections only."""
    projection = weight.startswith(_PROJECTIONS) and not weight.endswith("bias")
    if grid.frozen_format == "none" or not projection or "norm" in weight:
        return grid.recipe.weights
    return _FP8 if grid.frozen_format == "fp8" else grid.frozen_format


def is_packed(grid: Grid, weight: Tensor) -> bool:
    """Return whether a weight is to be unpacked before products read it."""
    return weight.frozen and weight.format not in (grid.recipe.weights, grid.recipe.linear)
