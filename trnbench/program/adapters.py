"""Adapters of a fine-tuning job: low-rank weights A and B beside a frozen W, W x + B (A x).

A has the inputs of its projection and B its outputs; both are cut over ranks as the projection is.
Where the projection's outputs are cut, every tensor-parallel rank has all of A and its part of B.
Where its inputs are cut, a rank has a part of A, whose results are summed, and all of B. PEFT on
NeuronX Distributed and NeMo do the same. Outputs are not scaled: alpha equals the rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.workload.layout import AdapterTargets
from trnbench.program.grid import Grid
from trnbench.program.tensor import Tensor

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
    """True when a weight is unpacked before products read it."""
    return weight.frozen and weight.format not in (grid.recipe.weights, grid.recipe.linear)
