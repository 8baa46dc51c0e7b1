"""The grid of layouts a program spans: the meaning of each knob to a step.

The lowering reads a knob as the attribute of `Grid` that bears its name, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Literal

import numpy as np

from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, fields, replace
from trnbench.facts.workload.choices import Dispatcher, Job, neighbours_of
from trnbench.facts.workload.layout import (
    DEGREES,
    KNOBS,
    AdapterTargets,
    AttentionKernel,
    FrozenFormat,
    IdleModels,
    Layout,
    LossKernel,
    OptimizerOffload,
    Overlapped,
    Reference,
    Reward,
    Schedule,
    StageSplit,
    ZeroStage,
)
from trnbench.program.precision import PrecisionRecipe, recipe_named
from trnbench.program.tensor import ONE, Dim, array

SHARDED = {"shard": "data", "expert_shard": "expert_data"}
"""Axis of ranks that share slices -> axis of all ranks that hold the same weights."""
TIED_COPIES = 2
"""Stages that hold a shared vocabulary: the first and the last."""


class Grid(Record, eq=False):
    """A layout, or an open grid of layouts: degrees as arrays, modes, and a precision recipe."""

    layout: Layout
    tp: FloatArray
    pp: FloatArray
    dp: FloatArray
    cp: FloatArray
    ep: FloatArray
    expert_tp: int | None
    vpp: FloatArray
    micro_batch: FloatArray
    global_batch: FloatArray
    sequence: FloatArray
    zero: FloatArray
    shard: int | None
    optimizer_offload: OptimizerOffload
    activation_offload: Literal["host"] | None
    sequence_parallel: bool
    recompute: str
    schedule: Schedule
    attention: AttentionKernel
    loss: LossKernel
    context_parallel: str
    stage_split: StageSplit
    pipeline_layout: str | None
    mtp_depths: int | None
    dispatcher: Dispatcher | None
    overlapped: Overlapped | None
    capacity_factor: float | None
    precision: PrecisionRecipe
    job: Job
    adapter_rank: int | None
    adapter_on: AdapterTargets | None
    frozen_format: FrozenFormat
    samples_per_prompt: int | None
    response: int | None
    reward: Reward | None
    reference: Reference | None
    idle_models: IdleModels
    update_epochs: int | None
    mini_batches: int | None
    generation_batch: int | None
    generation_nodes: int | None
    generation_tokens_per_s: float | None
    beside: bool = False  # a model that is only passed forward (reference, rewards)
    valued: bool = False  # a model that gives each token a value in place of words

    @property
    def recipe(self) -> PrecisionRecipe:
        return self.precision

    @property
    def frozen(self) -> bool:
        """True when the model's own weights are not trained."""
        return self.beside or self.adapter_rank is not None

    @property
    def arrays(self) -> dict[str, FloatArray]:
        return {name: getattr(self, name) for name in DEGREES}

    @cached_property
    def _cuts(self) -> Memo[tuple[str, ...], tuple[FloatArray, tuple[str, ...]]]:
        return Memo()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(value.shape for value in self.arrays.values()))

    @property
    def micro_batches(self) -> FloatArray:
        return self.micro_batches_of(lambda sizes: sizes)

    def micro_batches_of(self, pick: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Micro-batches of the layouts that `pick` takes out of an array over the grid."""
        return np.ceil(pick(self.global_batch) / (pick(self.dp) * pick(self.micro_batch)))

    @property
    def updated(self) -> Grid:
        """Grid whose global batch is the samples of one weight update."""
        parts = self.mini_batches or 1
        return self if parts == 1 else replace(self, global_batch=array(self.global_batch / parts))

    @property
    def updates(self) -> int:
        return (self.update_epochs or 1) * (self.mini_batches or 1)

    @property
    def ranks_per_stage(self) -> FloatArray:
        return array(self.tp * self.cp * self.dp)

    def shard_axis(self, replicas: str) -> str:
        """Axis whose ranks share the slices of weights that are held along `replicas`."""
        if self.shard is None:
            return replicas
        return next(axis for axis, of in SHARDED.items() if of == replicas)

    @property
    def expert_ranks(self) -> FloatArray:
        return self.tp if self.expert_tp is None else array(self.expert_tp)

    @property
    def expert_cut(self) -> str:
        """Axis along which experts that are spread over ranks are cut."""
        return "tp" if self.expert_tp is None else "expert_tp"

    def at(self, index: tuple[int, ...]) -> dict[str, int]:
        """Degrees and batch sizes of the layout at an index, by name."""
        return {
            name: int(np.broadcast_to(values, self.shape)[index])
            for name, values in self.arrays.items()
        }

    def layout_at(self, index: tuple[int, ...]) -> Layout:
        return replace(self.layout, **self.at(index))

    def ranks(self, axis: str) -> FloatArray:
        """Number of ranks in a group along an axis."""
        return self._ranks.of(axis, lambda: self._ranks_along(axis))

    @cached_property
    def _ranks(self) -> Memo[str, FloatArray]:
        return Memo()

    def _ranks_along(self, axis: str) -> FloatArray:
        match axis:
            case "data":
                return array(self.cp * self.dp)
            case "expert_data":
                return array(self.ranks_per_stage / (self.expert_ranks * self.ep))
            case "expert_tp":
                return self.expert_ranks
            case "shard" | "expert_shard":
                whole = self.ranks(SHARDED[axis])
                return whole if self.shard is None else array(whole / self.ranks("copies"))
            case "copies":
                return array(1 if self.shard is None else self.cp * self.dp / self.shard)
            case "tied":
                return array(TIED_COPIES)
            case "cp_inside":
                inside = neighbours_of(self.context_parallel) or 1
                return array(np.where(self.cp > 1, inside, 1))
            case "cp_outside":
                return array(self.cp / self.ranks("cp_inside"))
            case "world":
                return array(self.ranks_per_stage * self.pp)
            case _:
                degree: FloatArray = getattr(self, axis)
                return degree

    def dim(self, name: str, whole: float | FloatArray, *axes: str) -> Dim:
        """Dimension cut along axes; the last rank's part is padded."""
        # Sizes that do not divide are rounded up: the fullest rank sets the time.
        size = array(whole)
        if not axes:
            return Dim(name=name, size=np.ceil(size), factors=(size,))
        ranks, used = self._cuts.of(axes, lambda: self._cut(axes))
        return Dim(name=name, size=np.ceil(size / ranks), factors=(size,), axes=used)

    def _cut(self, axes: tuple[str, ...]) -> tuple[FloatArray, tuple[str, ...]]:
        return array(prod((self.ranks(axis) for axis in axes), start=ONE)), self.used(*axes)

    def used(self, *axes: str) -> tuple[str, ...]:
        """Axes along which some layout has several ranks."""
        return tuple(axis for axis in axes if some(self.ranks(axis) > 1))

    def batch(self) -> Dim:
        factors = self.micro_batch, self.dp
        return Dim(name="batch", size=self.micro_batch, factors=factors, axes=self.used("dp"))

    def tokens(self, *axes: str) -> Dim:
        return self.dim("sequence", self.sequence, *axes)


# A knob that the lowering does not know would be ignored in silence: fail at import instead.
_missing = sorted(set(KNOBS) - {one.name for one in fields(Grid)})
if _missing:
    raise TypeError(
        f"the program ignores the knob {_missing[0]!r}: give `Grid` a field of its name, and read "
        f"it where a step is lowered"
    )


def grid_of(layout: Layout, zero: Sequence[ZeroStage] = ()) -> Grid:
    """Grid of a layout; an unknown precision is an input error.

    Several ZeRO stages stand along an axis in front of those of the degrees.
    """
    values = {name: getattr(layout, name) for name in KNOBS}
    values |= {name: array(values[name]) for name in DEGREES}
    values["precision"] = recipe_named(layout.precision)
    values["zero"] = array(layout.zero)
    if len(zero) > 1:
        behind = np.broadcast_shapes(*(values[name].shape for name in DEGREES))
        values["zero"] = array(zero).reshape(-1, *(1 for _ in behind))
    return Grid(layout=layout, **values)
