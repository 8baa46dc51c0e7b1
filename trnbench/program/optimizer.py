"""Sums of gradients over replicas and updates of weights, per step or per micro-batch.

ZeRO 0    gradients are summed over all replicas; each updates everything
ZeRO 1    gradients are summed in slices; a replica updates its slice, then gathers the weights
ZeRO 2    the same, but slices are summed after every micro-batch, and only they are kept
ZeRO 3    weights, too, are kept in slices, and gathered for each pass through the block

With a shard group, slices are those of its ranks. Their sums are summed once more, at the step's
end, over the ranks of all groups that keep the same slice.

With the optimizer on the host a rank sends its slice of summed gradients there and receives the
weights that the host updated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TypeGuard, get_args

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, chosen, some
from trnbench.facts.records import Record, field
from trnbench.facts.workload.choices import Op
from trnbench.program.grid import Grid
from trnbench.program.ops import Elementwise, Operation, Phase, collective_op
from trnbench.program.parameters import Parameter, Replicas, Use
from trnbench.program.tensor import (
    NOTHING,
    ONE,
    Tensor,
    TensorRole,
    array,
    element_bytes,
    nothing,
    one,
    total,
)

MOMENTS = 2
"""AdamW keeps a mean and a mean square of each gradient."""
ON_HOST = "adamw on host"
"""Function of an update by the host, which reads and writes host memory, not the rank's."""


class Bucket(Record, eq=False):
    """Weights of a block with the same replicas (`axis`), use and format; elements per rank."""

    axis: str  # of the ranks that hold the same weights and sum their gradients
    format: str
    frozen: bool  # not trained, without gradients
    elements: FloatArray  # weights on a rank
    quantised_elements: FloatArray  # with a copy in the format of linear layers
    slices: FloatArray = field(default_factory=one)  # replicas that share the optimizer's work
    gradient_elements: FloatArray = field(default_factory=nothing)  # of tables only rows touched
    moment_elements: FloatArray = field(default_factory=nothing)  # numbers of optimizer state
    # held by all tp ranks, which sum their gradients first
    alike: FloatArray = field(default_factory=nothing)
    # held by groups of `copies` tp ranks: key-value heads
    shared: FloatArray = field(default_factory=nothing)
    copies: FloatArray = field(default_factory=one)  # tp ranks with the same key-value heads
    tied: FloatArray = field(default_factory=nothing)  # held by both ends of a pipeline

    @property
    def name(self) -> str:
        return f"{self.axis}.frozen.{self.format}" if self.frozen else self.axis


def buckets(
    grid: Grid,
    members: Sequence[Parameter],
    gradients: Mapping[str, Tensor],
    *,
    quantised: frozenset[str],
    tied: str | None,
) -> tuple[Bucket, ...]:
    """Weights of a block by the ranks that hold the same ones, trained weights first."""
    parts: dict[tuple[Use, str, str], list[Parameter]] = {}
    for use, axis in product(("trained", "frozen"), get_args(Replicas)):
        for member in members:
            # What a block only borrows has no states here.
            if member.use == use and member.replicas == axis and some(member.held):
                parts.setdefault((use, axis, member.weight.format), []).append(member)
    return tuple(
        _frozen_bucket(grid, axis, part, quantised)
        if use == "frozen"
        else _bucket(grid, axis, part, gradients, quantised, tied)
        for (use, axis, _), part in parts.items()
    )


def _frozen_bucket(
    grid: Grid, axis: str, members: Sequence[Parameter], quantised: frozenset[str]
) -> Bucket:
    kept = members[0].weight.format
    # What is kept in a format of its own is kept in no other.
    copied = quantised if kept == grid.recipe.weights else frozenset[str]()
    return Bucket(
        axis=axis,
        format=kept,
        frozen=True,
        elements=_count(members),
        quantised_elements=_count([m for m in members if m.weight.name in copied]),
    )


def _count(part: Sequence[Parameter]) -> FloatArray:
    return total(member.weight.elements * member.held for member in part)


def _bucket(
    grid: Grid,
    axis: str,
    members: Sequence[Parameter],
    gradients: Mapping[str, Tensor],
    quantised: frozenset[str],
    tied: str | None,
) -> Bucket:
    dense = [member for member in members if member.touched is None]
    sparse = [member for member in members if member.touched is not None]
    rows = total(m.weight.dims[0].size for m in sparse)
    touched = total(map(_touched, sparse))
    summed = alike_over_tp(members, gradients)
    alike = [member for member in dense if member.weight.name in summed]
    shared = [member for member in dense if some(member.copies > 1)]
    every = _count(members)
    of_dense = _count(dense) if sparse else every
    return Bucket(
        axis=axis,
        format=grid.recipe.weights,
        frozen=False,
        slices=chosen(grid.zero > 0, grid.ranks(grid.shard_axis(axis)), ONE),
        elements=every,
        gradient_elements=array(of_dense + touched),
        # A row of a table has one number of state (row-wise Adagrad), a weight has two.
        moment_elements=array(MOMENTS * of_dense + rows),
        quantised_elements=_count([m for m in dense if m.weight.name in quantised]),
        alike=_count(alike),
        shared=_count(shared),
        copies=shared[0].copies if shared else array(1),
        tied=_count([member for member in members if member.weight.name == tied]),
    )


def alike_over_tp(members: Sequence[Parameter], gradients: Mapping[str, Tensor]) -> frozenset[str]:
    """Names of weights that all tp ranks hold, each with a part of the gradient.

    Experts cut apart from tp are left out: all ranks that hold the same ones are their replicas.
    """
    names = {member.weight.name for member in members if member.replicas == "data"}
    return frozenset(
        name for name, gradient in gradients.items() if name in names and "tp" in gradient.partial
    )


def _touched(member: Parameter) -> FloatArray:
    assert member.touched is not None
    columns = member.weight.dims[1].size
    return array(np.minimum(member.touched, member.weight.dims[0].size) * columns)


class _Flat(Record, eq=False):
    """Flat tensors of a bucket, whole and in slices, and their exchanges among its replicas.

    The ranks of the axis `shard` share slices. Gradients are in the format of their exchange.
    """

    grid: Grid
    bucket: Bucket

    def tensor(
        self, name: str, elements: FloatArray, number_format: str, role: TensorRole
    ) -> Tensor:
        dim = self.grid.dim(name, np.ceil(elements))
        return Tensor(
            name=f"{name}.{self.bucket.name}", dims=(dim,), format=number_format, role=role
        )

    @property
    def shard(self) -> str:
        return self.grid.shard_axis(self.bucket.axis)

    @property
    def gradient(self) -> Tensor:
        elements = self.bucket.gradient_elements
        return self.tensor("gradients", elements, self.grid.recipe.reduction, "gradient")

    @property
    def gradient_slice(self) -> Tensor:
        elements = array(self.bucket.gradient_elements / self.grid.ranks(self.shard))
        return self.tensor("gradients.slice", elements, self.grid.recipe.reduction, "gradient")

    @property
    def scattered(self) -> tuple[Tensor, Tensor]:
        """What sums in slices read and write."""
        return self.gradient, self.gradient_slice

    @property
    def gathered(self) -> tuple[Tensor, Tensor]:
        """What gathering weights reads and writes."""
        return self.weight_slice, self.weights

    @property
    def weights(self) -> Tensor:
        return self.tensor("weights", self.bucket.elements, self.bucket.format, "weight")

    @property
    def weight_slice(self) -> Tensor:
        elements = array(self.bucket.elements / self.grid.ranks(self.shard))
        return self.tensor("weights.slice", elements, self.bucket.format, "weight")

    def exchange(
        self, op: Op, phase: Phase, sent: tuple[Tensor, Tensor], zero: BoolArray, axis: str = ""
    ) -> Iterator[Operation]:
        """Exchange of layouts with some ZeRO stages; none for a single rank.

        It runs along an axis, or among ranks that share slices.
        """
        axis = axis or self.shard
        ranks, (_, write) = self.grid.ranks(axis), sent
        present = zero & (ranks > 1) & (self.bucket.elements > 0)
        if some(present):
            name, count = f"{write.name}.{op}", array(present)
            yield collective_op(op, axis, phase, sent, ranks, name=name, count=count)


def synchronise(grid: Grid, bucket: Bucket) -> Iterator[Operation]:
    """Exchanges and update of a bucket, by its ZeRO stage."""
    flat, zero = _Flat(grid=grid, bucket=bucket), grid.zero
    # ZeRO 3 has no whole weights between passes: each pass gathers them, frozen ones too.
    if some(zero == 3):
        for phase in ("F", "B_input"):
            yield from flat.exchange("all-gather", phase, flat.gathered, zero == 3)
    if bucket.frozen:
        return
    if some(zero >= 2):
        yield from flat.exchange("reduce-scatter", "B_weight", flat.scattered, zero >= 2)
    # Once a step: sums among the ranks of a stage, then over its replicas.
    yield from _within_stage(grid, bucket, flat)
    if some(zero == 0):
        whole = flat.gradient, flat.gradient
        yield from flat.exchange("all-reduce", "optimizer", whole, zero == 0, bucket.axis)
    if some(zero == 1):
        yield from flat.exchange("reduce-scatter", "optimizer", flat.scattered, zero == 1)
    # Shard groups have each summed their own samples: ranks with like slices add up.
    if grid.shard is not None and some(zero):
        part = flat.gradient_slice, flat.gradient_slice
        yield from flat.exchange("all-reduce", "optimizer", part, zero > 0, "copies")
    yield from _update(grid, bucket, flat)
    if some(once := (zero == 1) | (zero == 2)):
        yield from flat.exchange("all-gather", "optimizer", flat.gathered, once)


def _within_stage(grid: Grid, bucket: Bucket, flat: _Flat) -> Iterator[Operation]:
    """Sums over ranks that hold the same weights and see different work."""
    wanted = (
        ("tp", grid.tp, bucket.alike),
        ("kv_copies", bucket.copies, bucket.shared),
        ("tied", grid.ranks("tied") * (grid.pp > 1), bucket.tied),
    )
    for axis, ranks, elements in wanted:
        present = (ranks > 1) & (elements > 0)
        if not some(present):
            continue
        part = flat.tensor(f"gradients.{axis}", elements, grid.recipe.reduction, "gradient")
        yield collective_op(
            "all-reduce",
            axis,
            "optimizer",
            (part, part),
            np.maximum(ranks, 1),
            name=f"{part.name}.all-reduce",
            count=array(present),
        )


def _update(grid: Grid, bucket: Bucket, flat: _Flat) -> Iterator[Operation]:
    """Yield the optimizer's pass over its slice: gradient, state and weights."""
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
    # With a master copy the weights are only written; without one they are read as well.
    if recipe.master is not None:
        state.append(flat.tensor("master", elements, recipe.master, "state"))
    read = (gradient, *state) if recipe.master else (gradient, *state, weights)
    copies: tuple[Tensor, ...] = ()
    if recipe.quantised:
        elements = array(bucket.quantised_elements / bucket.slices)
        copies = (flat.tensor("weights.quantised", elements, recipe.weight_operands, "weight"),)
    away = grid.optimizer_offload == "host"
    yield Elementwise(
        name=f"update.{bucket.axis}",
        function=ON_HOST if away else "adamw",
        phase="optimizer",
        reads=read,
        writes=(weights, *state, *(() if away else copies)),
    )
    if away and copies:
        yield Elementwise(
            name=f"quantise.{bucket.axis}",
            function="cast",
            phase="optimizer",
            reads=(weights,),
            writes=copies,
        )


def is_on_host(op: Operation) -> TypeGuard[Elementwise]:
    return isinstance(op, Elementwise) and op.function == ON_HOST


def link_bytes(op: Elementwise) -> FloatArray:
    """Bytes between host and rank for an update by the host: gradients and weights."""
    return array(op.reads[0].bytes + op.writes[0].bytes)


def host_bytes(grid: Grid, bucket: Bucket) -> FloatArray:
    """Bytes that the host holds of a bucket for one rank.

    These are states, and the host's own copies of the gradients and weights it reads and writes.
    """
    if grid.optimizer_offload != "host" or bucket.frozen:
        return NOTHING
    weights = bucket.elements * element_bytes(bucket.format)
    gradients = bucket.gradient_elements * element_bytes(grid.recipe.gradients)
    states = bucket.moment_elements * element_bytes(grid.recipe.moments)
    if grid.recipe.master is not None:
        states = states + bucket.elements * element_bytes(grid.recipe.master)
    return array((states + weights + gradients) / bucket.slices)


class StateBytes(Record, eq=False):
    """Bytes of a bucket on one rank for the whole step, by category."""

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    gathered: FloatArray  # in ZeRO 2 and 3, of one block at a time


class WeightBuckets(Record, eq=False):
    """Weights of a block, their updates and their states, equal in all recompute modes."""

    grid: Grid
    buckets: tuple[Bucket, ...] = ()
    _known: dict[bool, StateBytes] = field(default_factory=dict)

    @cached_property
    def synchronised(self) -> tuple[Operation, ...]:
        """Exchanges and updates of the weights."""
        return tuple(op for bucket in self.buckets for op in synchronise(self.grid, bucket))

    def states(self, *, cached: bool) -> StateBytes:
        """Bytes of all buckets; the argument is that of `state_bytes`."""
        cached = cached and self.grid.recipe.cached
        if cached not in self._known:
            each = [state_bytes(self.grid, bucket, cached=cached) for bucket in self.buckets]
            self._known[cached] = StateBytes(
                weights=total(of.weights for of in each),
                gradients=total(of.gradients for of in each),
                optimizer=total(of.optimizer for of in each),
                gathered=total(of.gathered for of in each),
            )
        return self._known[cached]


def state_bytes(grid: Grid, bucket: Bucket, *, cached: bool = True) -> StateBytes:
    """Bytes of a bucket on one rank; a master copy counts as optimizer state.

    `cached`: copies that a recipe casts for products stay until the backward pass has read them.
    """
    recipe, zero = grid.recipe, grid.zero
    ranks = grid.ranks(grid.shard_axis(bucket.axis))
    weights = array(bucket.elements * element_bytes(bucket.format))
    if recipe.quantised or (recipe.cached and cached):
        weights = array(weights + bucket.quantised_elements * element_bytes(recipe.weight_operands))
    gradients = array(bucket.gradient_elements * element_bytes(recipe.gradients))
    state = array(bucket.moment_elements * element_bytes(recipe.moments))
    if recipe.master is not None and not bucket.frozen:
        state = array(state + bucket.elements * element_bytes(recipe.master))
    # A block's gradients are whole before they are scattered, its weights after they are gathered:
    # for the time of one block, on top of the slices.
    gathered = NOTHING
    if some(zero >= 2):
        gathered = array((gradients * (zero >= 2) + weights * (zero == 3)) * (ranks > 1))
    return StateBytes(
        weights=array(weights / chosen(zero == 3, ranks, ONE)),
        gradients=array(gradients / chosen(zero >= 2, ranks, ONE)),
        optimizer=array(state / chosen(zero >= 1, ranks, ONE)),
        gathered=gathered,
    )
