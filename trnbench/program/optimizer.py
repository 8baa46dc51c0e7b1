"""What keeps replicas of a block's weights alike, and updates them: per step, or per micro-batch.

ZeRO 0    gradients are summed over all replicas; each updates everything
ZeRO 1    gradients are summed in slices; a replica updates its slice, then gathers the weights
ZeRO 2    the same, but slices are summed after every micro-batch, and only they are kept
ZeRO 3    weights, too, are kept in slices, and gathered for each pass through the block
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.grid import Grid
from trnbench.program.ops import CollectiveOp, Elementwise, Operation, Phase
from trnbench.program.parameters import Parameter
from trnbench.program.tensor import Tensor, TensorRole, array, element_bytes
from trnbench.workload.operation import Op

MOMENTS = 2
"""AdamW keeps a mean and a mean square of each gradient."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bucket:
    """Weights of a block whose gradients are summed over the same ranks (`axis`), per rank.

    `slices`: the replicas that share the optimizer's work. Of the elements, tensor-parallel ranks
    hold `alike` ones and sum their gradients first; groups of `copies` of them do so with `shared`
    ones, both ends of a pipeline with `tied` ones.
    """

    axis: str
    slices: FloatArray
    elements: FloatArray
    gradient_elements: FloatArray
    moment_elements: FloatArray
    quantised_elements: FloatArray
    alike: FloatArray
    shared: FloatArray
    copies: FloatArray
    tied: FloatArray


def buckets(
    grid: Grid,
    members: Sequence[Parameter],
    gradients: Mapping[str, Tensor],
    *,
    quantised: frozenset[str],
    tied: str | None,
) -> tuple[Bucket, ...]:
    """Return a block's trained weights by the ranks that hold the same of them."""
    trained = [member for member in members if member.trained]
    axes = ("data", "expert_data")
    parts = {axis: [member for member in trained if _axis(member.weight) == axis] for axis in axes}
    return tuple(
        _bucket(grid, axis, part, gradients, quantised, tied)
        for axis, part in parts.items()
        if part
    )


def _axis(weight: Tensor) -> str:
    return "expert_data" if "ep" in weight.axes else "data"


def _bucket(
    grid: Grid,
    axis: str,
    members: Sequence[Parameter],
    gradients: Mapping[str, Tensor],
    quantised: frozenset[str],
    tied: str | None,
) -> Bucket:
    def count(part: Sequence[Parameter]) -> FloatArray:
        held = (member.weight.elements * member.held for member in part)
        return array(sum(held, start=np.zeros(())))

    dense = [member for member in members if member.touched is None]
    sparse = [member for member in members if member.touched is not None]
    rows = array(sum((m.weight.dims[0].size for m in sparse), start=np.zeros(())))
    touched = array(sum((_touched(m) for m in sparse), start=np.zeros(())))
    alike = [
        member
        for member in dense
        if member.weight.name in gradients and "tp" in gradients[member.weight.name].partial
    ]
    shared = [member for member in dense if np.any(member.copies > 1)]
    return Bucket(
        axis=axis,
        slices=grid.ranks(axis) if grid.zero else array(1),
        elements=count(members),
        gradient_elements=array(count(dense) + touched),
        # A row of a table has one number of state (row-wise Adagrad), a weight has two.
        moment_elements=array(MOMENTS * count(dense) + rows),
        quantised_elements=count([m for m in dense if m.weight.name in quantised]),
        alike=count(alike),
        shared=count(shared),
        copies=shared[0].copies if shared else array(1),
        tied=count([member for member in members if member.weight.name == tied]),
    )


def _touched(member: Parameter) -> FloatArray:
    """Return the elements of the rows that a step looks up, at most the table."""
    assert member.touched is not None
    columns = member.weight.dims[1].size
    return array(np.minimum(member.touched, member.weight.dims[0].size) * columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Flat:
    """Makes the flat tensors of a bucket, and exchanges them among its replicas."""

    grid: Grid
    bucket: Bucket

    def tensor(
        self, name: str, elements: FloatArray, number_format: str, role: TensorRole
    ) -> Tensor:
        dim = replace(self.grid.dim(name, np.ceil(elements)), axes=())
        return Tensor(
            name=f"{name}.{self.bucket.axis}", dims=(dim,), format=number_format, role=role
        )

    @property
    def gradient(self) -> Tensor:
        """All gradients, as they travel."""
        elements = self.bucket.gradient_elements
        return self.tensor("gradients", elements, self.grid.recipe.reduction, "gradient")

    @property
    def gradient_slice(self) -> Tensor:
        """The gradients this replica sums up."""
        elements = array(self.bucket.gradient_elements / self.grid.ranks(self.bucket.axis))
        return self.tensor("gradients.slice", elements, self.grid.recipe.reduction, "gradient")

    @property
    def weights(self) -> Tensor:
        """All weights."""
        return self.tensor("weights", self.bucket.elements, self.grid.recipe.weights, "weight")

    @property
    def weight_slice(self) -> Tensor:
        """The weights this replica updates."""
        elements = array(self.bucket.elements / self.grid.ranks(self.bucket.axis))
        return self.tensor("weights.slice", elements, self.grid.recipe.weights, "weight")

    def exchange(self, op: Op, phase: Phase, read: Tensor, write: Tensor) -> Iterator[Operation]:
        """Yield an exchange of the replicas, if any layout has several."""
        ranks = self.grid.ranks(self.bucket.axis)
        present = (ranks > 1) & (self.bucket.elements > 0)
        if np.any(present):
            yield CollectiveOp(
                name=f"{write.name}.{op}",
                op=op,
                axis=self.bucket.axis,
                phase=phase,
                read=read,
                write=write,
                ranks=ranks,
                count=array(present),
            )


def synchronise(grid: Grid, bucket: Bucket) -> Iterator[Operation]:
    """Yield the exchanges and the update that a bucket needs."""
    flat = _Flat(grid=grid, bucket=bucket)
    zero = grid.zero
    if zero == 3:
        for phase in ("F", "B_input"):
            yield from flat.exchange("all-gather", phase, flat.weight_slice, flat.weights)
    if zero >= 2:
        yield from flat.exchange("reduce-scatter", "B_weight", flat.gradient, flat.gradient_slice)
    yield from _within_stage(grid, bucket, flat)
    if zero == 0:
        yield from flat.exchange("all-reduce", "optimizer", flat.gradient, flat.gradient)
    elif zero == 1:
        yield from flat.exchange("reduce-scatter", "optimizer", flat.gradient, flat.gradient_slice)
    yield _update(grid, bucket, flat)
    if zero in (1, 2):
        yield from flat.exchange("all-gather", "optimizer", flat.weight_slice, flat.weights)


def _within_stage(grid: Grid, bucket: Bucket, flat: _Flat) -> Iterator[Operation]:
    """Yield the sums over ranks that hold the same weights though their work differs."""
    wanted = (
        ("tp", grid.tp, bucket.alike),
        ("kv_copies", bucket.copies, bucket.shared),
        ("tied", grid.ranks("tied") * (grid.pp > 1), bucket.tied),
    )
    for axis, ranks, elements in wanted:
        present = (ranks > 1) & (elements > 0)
        if not np.any(present):
            continue
        part = flat.tensor(f"gradients.{axis}", elements, grid.recipe.reduction, "gradient")
        yield CollectiveOp(
            name=f"{part.name}.all-reduce",
            op="all-reduce",
            axis=axis,
            phase="optimizer",
            read=part,
            write=part,
            ranks=np.maximum(ranks, 1),
            count=array(present),
        )


def _update(grid: Grid, bucket: Bucket, flat: _Flat) -> Operation:
    """Return the optimizer's pass over its slice: gradient, state and weights."""
    recipe = grid.recipe
    elements = array(bucket.elements / bucket.slices)
    weights = flat.tensor("weights.updated", elements, recipe.weights, "weight")
    moments = flat.tensor(
        "moments", array(bucket.moment_elements / bucket.slices), recipe.moments, "state"
    )
    gradient = flat.tensor(
        "gradients.summed",
        array(bucket.gradient_elements / bucket.slices),
        recipe.gradients,
        "gradient",
    )
    state = [moments]
    if recipe.master is not None:
        state.append(flat.tensor("master", elements, recipe.master, "state"))
    read = (gradient, *state) if recipe.master else (gradient, *state, weights)
    written = [weights, *state]
    if recipe.quantised:
        copies = array(bucket.quantised_elements / bucket.slices)
        written.append(flat.tensor("weights.quantised", copies, recipe.linear, "weight"))
    return Elementwise(
        name=f"update.{bucket.axis}",
        function="adamw",
        phase="optimizer",
        reads=read,
        writes=tuple(written),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateBytes:
    """Bytes of a bucket on one rank for the whole step, by category."""

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    gathered: FloatArray


def state_bytes(grid: Grid, bucket: Bucket) -> StateBytes:
    """Return the bytes of a bucket; `gathered`: those ZeRO 2 and 3 hold of one block at a time.

    A master copy counts as optimizer state.
    """
    recipe, zero = grid.recipe, grid.zero
    ranks = grid.ranks(bucket.axis)
    weights = array(bucket.elements * element_bytes(recipe.weights))
    if recipe.quantised:
        weights = array(weights + bucket.quantised_elements * element_bytes(recipe.linear))
    gradients = array(bucket.gradient_elements * element_bytes(recipe.gradients))
    state = array(bucket.moment_elements * element_bytes(recipe.moments))
    if recipe.master is not None:
        state = array(state + bucket.elements * element_bytes(recipe.master))
    sliced = array(ranks > 1)
    gathered = np.zeros(())
    if zero >= 2:
        gathered = array(gradients * sliced)
    if zero == 3:
        gathered = array(gathered + weights * sliced)
    return StateBytes(
        weights=array(weights / ranks) if zero == 3 else weights,
        gradients=array(gradients / ranks) if zero >= 2 else gradients,
        optimizer=array(state / ranks) if zero >= 1 else state,
        gathered=gathered,
    )
