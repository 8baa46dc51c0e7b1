r"""The program of a training step: operations, messages and memory of a layout or a grid.

    Model  Layout
       \    /
       Grid                     grid        degrees as arrays, one entry a layout; modes as they are
         |
         |  blocks              one block for each kind of layer, and for both ends of the model
         v
    forward operations          builder     written by hand, in `layer`, `attention`, ...
         |
         |  backward            gradients by rule       keeping    what is kept, what is made again
         |  optimizer           sums over replicas, updates, ZeRO slices
         v
    Block                       block       operations in order, and bytes by lifetime
         |
         |  stages              layers shared out: first, light, heavy, last
         v
    StepProgram                 a rank of a stage runs its blocks for every micro-batch, in the
                                order of `schedule`, then the optimizer, then `closing`

A program knows no hardware: no seconds, no links, no sizes of memory. The engines read the same
program; one prices it, one plays it, one computes it with real numbers.

One program stands for a whole grid of layouts. Each number is an array that spans only the axes it
depends on: the size of a head's share spans tp, the micro-batches span dp and micro_batch.

    tp x pp x micro_batch grid        heads on a rank    [tp, 1, 1]
                                      layers of a stage  [ 1, pp, 1]
                                      tokens of a slot   [ 1, 1, micro_batch]

So a search over a million layouts lowers a few programs, and numbers meet only when they are added
up. Where layouts differ in structure, the structure is the union: an exchange that some layouts do
without has the count 0 there, and a class of stages that they lack the multiplicity 0.

Begin with `training_step`. A layout that does not divide is no error here: its program comes back
with the reasons (`legality`), and the numbers of such a layout mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, combined, some
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout, ZeroStage
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.recompute import of_layers, repeated_layers
from trnbench.program.block import KEPT, Block, Passes
from trnbench.program.blocks import layers_of, lower_blocks
from trnbench.program.grid import Grid, grid_of
from trnbench.program.job_passes import passes_beside
from trnbench.program.legality import reasons
from trnbench.program.matrix import MatrixProduct
from trnbench.program.ops import CollectiveOp, MatMul, Operation, Send, Term, collective_op
from trnbench.program.optimizer import host_bytes
from trnbench.program.precision import PrecisionRecipe
from trnbench.program.reasons import Reason, legal
from trnbench.program.schedule import in_flight
from trnbench.program.stages import StageClass, StageFlow, stage_classes
from trnbench.program.tensor import NOTHING, ONE, Dim, Tensor, array, total


class StepProgram(Record, eq=False):
    """Training step of a model in a layout, or in every layout of an open grid.

    A rank of a stage runs the stage's blocks for each micro-batch (their `optimizer` operations
    once), in the order of the layout's schedule, and `closing` once. Arrays broadcast to `shape`.
    """

    model: Model  # with the MTP depths that the layout trains
    layout: Layout
    grid: Grid
    blocks: Mapping[str, Block]
    stages: tuple[StageClass, ...]
    closing: tuple[CollectiveOp, ...]
    reasons: tuple[Reason, ...]  # rules that layouts break

    @property
    def recipe(self) -> PrecisionRecipe:
        return self.grid.recipe

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.shape

    @property
    def micro_batches(self) -> FloatArray:
        return self.grid.micro_batches

    @cached_property
    def trains(self) -> bool:
        """True when some block has a backward pass."""
        return any(block.kept.ops for block in self.blocks.values())

    def products(
        self, known: Mapping[Terms, object], passed: Container[Passes] = ()
    ) -> tuple[JoinedProducts, ...]:
        """Matrix products joined by format, but for `known` ones and those of some passes."""
        fresh = [block for block in self.blocks.values() if block.passes not in passed]
        if not known and len(fresh) == len(self.blocks):
            return self._joined
        return joined_products(op for op in _products(fresh) if op.terms not in known)

    @cached_property
    def _joined(self) -> tuple[JoinedProducts, ...]:
        return joined_products(_products(self.blocks.values()))

    @property
    def legal(self) -> BoolArray:
        return legal(self.reasons, self.shape)

    @cached_property
    def model_flop(self) -> FloatArray:
        """FLOP of a step that the model needs: causal attention halved, no recompute."""
        return array(self.micro_batches * self._over_blocks(lambda block: block.model_flop))

    @property
    def hardware_flop(self) -> FloatArray:
        """FLOP of a step that the ranks carry out, with recompute, copies and padding."""
        ranks = self.grid.ranks_per_stage
        return array(self.micro_batches * ranks * self._over_blocks(lambda block: block.flop()))

    def _over_blocks(self, flop: Callable[[Block], FloatArray]) -> FloatArray:
        kinds = self.blocks.items()
        return total(self.times(kind) * self.instances(kind) * flop(one) for kind, one in kinds)

    def times(self, kind: str) -> int:
        """Passes of a micro-batch through blocks of a kind in a step: 1, or its epochs."""
        epochs = self.grid.update_epochs or 1
        if epochs == 1:
            return 1
        beside = (one.prefix for one in passes_beside(self.model, self.grid) if not one.trained)
        return 1 if kind.startswith(tuple(beside)) else epochs

    def instances(self, kind: str) -> FloatArray:
        """Number of blocks of a kind over all stages."""
        if kind not in self._counted:
            counts = (s.multiplicity * s.blocks.get(kind, NOTHING) for s in self.stages)
            self._counted[kind] = total(counts)
        return self._counted[kind]

    @cached_property
    def _counted(self) -> dict[str, FloatArray]:
        return {}

    def refusals(self, index: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Messages that refuse the layout at an index of the grid; empty if legal."""
        broken = self.broken(index)
        if not broken:
            return ()
        at = self.grid.at(index)
        return tuple(reason.words(at) for reason in broken)

    def broken(self, index: tuple[int, ...]) -> list[Reason]:
        """Rules that the layout at an index of the grid breaks."""
        return [
            one
            for one in self.reasons
            if some(one.broken) and np.broadcast_to(one.broken, self.shape)[index]
        ]

    def at(self, index: tuple[int, ...]) -> StepProgram:
        return training_step(self.model, self.grid.layout_at(index))


SHARED_KNOBS = frozenset({"zero", "recompute"})
"""Programs that differ in these knobs alone share their forward pass and their legal layouts. Modes
that repeat some layers whole are excepted, as these have one more kind of layers."""


def training_step(
    model: Model,
    layout: Layout,
    *,
    like: StepProgram | None = None,
    known_legal: bool = False,
    zero: Sequence[ZeroStage] = (),
) -> StepProgram:
    """Program of a step; a layout that does not divide comes back with its reasons.

    `known_legal` skips all rules. `like`: program of a layout that differs in nothing but
    `SHARED_KNOBS` and the blocks of stages; common parts are reused. Several `zero` stages stand
    along one more axis of arrays, in front of those of the degrees.
    """
    # Reuse goes as far as knobs allow: all blocks, blocks with other states, or stages as well.
    model = model.with_depths(layout.mtp_depths)
    grid = grid_of(layout, zero)
    layers = layers_of(model, grid)
    broken = () if known_legal else reasons(model, grid)
    if like is None or bool(repeated_layers(like.layout.recompute)) != bool(layers.again):
        blocks = lower_blocks(model, grid, layers)
    else:
        blocks = like.blocks
        if _of_blocks(layout) != _of_blocks(like.layout):
            blocks = lower_blocks(model, grid, layers, blocks)
        if stages_alike(layout, like.layout):
            return replace(like, layout=layout, grid=grid, blocks=blocks, reasons=broken)
    # All kinds of layers take and hand on the same stream: any of them shows what stages send.
    kind = next(iter(layers.kinds))
    others: dict[bool, list[Tensor]] = {True: [], False: []}
    for one in passes_beside(model, grid):
        others[one.trained] += (
            replace(tensor, name=f"{one.prefix}{tensor.name}")
            for tensor in blocks[f"{one.prefix}{kind}"].entering
        )
    flow = StageFlow(
        tensors=(*blocks[kind].entering, *others[True]),
        beside=tuple(others[False]),
        depths=blocks["head"].entering[1:] if layers.depths else (),
    )
    return StepProgram(
        model=model,
        layout=layout,
        grid=grid,
        blocks=blocks,
        stages=stage_classes(grid, layers, flow),
        closing=_closing(grid),
        reasons=broken,
    )


def stages_alike(layout: Layout, other: Layout) -> bool:
    return _of_stages(layout) == _of_stages(other)


def _of_stages(layout: Layout) -> tuple[object, ...]:
    return layout.pipeline_layout, layout.stage_split, repeated_layers(layout.recompute)


def _of_blocks(layout: Layout) -> tuple[object, ...]:
    return layout.zero, of_layers(layout.recompute)


def _closing(grid: Grid) -> tuple[CollectiveOp, ...]:
    """Exchange that ends a step: the gradients' squares, summed for clipping."""
    ranks = grid.ranks("world")
    if not some(ranks > 1):
        return ()
    norm = Tensor(name="gradients.norm", dims=(), format=grid.recipe.statistics, role="gradient")
    name = "gradients.norm.all-reduce"
    return (collective_op("all-reduce", "world", "optimizer", (norm, norm), ranks, name=name),)


def host_states_bytes(program: StepProgram, node_ranks: int) -> FloatArray:
    """Bytes the hosts of a node hold at most for its ranks, over the grid of layouts.

    Optimizer states, and what micro-batches in flight keep there. Where several stages share a
    node, the stages with the most are taken first.
    """
    grid, shape = program.grid, program.shape
    if grid.optimizer_offload != "host" and grid.activation_offload != "host":
        return NOTHING
    of_kind = {
        kind: total(host_bytes(grid, bucket) for bucket in block.buckets)
        for kind, block in program.blocks.items()
    }
    kept = {kind: block.offloaded.get(KEPT, 0.0) for kind, block in program.blocks.items()}

    def of(stage: StageClass) -> FloatArray:
        held = in_flight(
            program.layout.schedule,
            pp=grid.pp,
            vpp=grid.vpp,
            micro_batches=grid.micro_batches_of(lambda values: values),
            stage=stage.index,
        ).until_backward
        return total(n * (of_kind[k] + held * kept[k]) for k, n in stage.blocks.items())

    of_stage = [of(stage) for stage in program.stages]
    shape = np.broadcast_shapes(shape, *(one.shape for one in of_stage))
    ranks_of = [s.multiplicity * grid.ranks_per_stage for s in program.stages]
    each, ranks = (
        np.stack([np.broadcast_to(one, shape) for one in stages]) for stages in (of_stage, ranks_of)
    )
    most = np.argsort(-each, axis=0, kind="stable")
    each, ranks = (np.take_along_axis(values, most, axis=0) for values in (each, ranks))
    # A node takes ranks from the sorted stages until it is full: an upper bound for any placement.
    before = np.cumsum(ranks, axis=0) - ranks
    return array((np.clip(node_ranks - before, 0, ranks) * each).sum(axis=0))


def _products(blocks: Iterable[Block]) -> Iterator[MatMul]:
    return (op for block in blocks for op in block.passes.ops if isinstance(op, MatMul))


Terms: TypeAlias = tuple[Term, ...]
"""Operands of an operation; operations with the same ones take equally long."""


class JoinedProducts(Record, eq=False):
    """Products of equal formats, joined into one."""

    product: MatrixProduct  # distinct sizes, one after the other
    places: Mapping[Terms, IntArray]  # by operands: index into the sizes, over the grid's axes


def joined_products(ops: Iterable[Operation]) -> tuple[JoinedProducts, ...]:
    """Matrix products among operations: those of equal formats joined, each size once."""
    # The joining follows from the program alone, so that every chip prices the same products.
    by_terms = {op.terms: op for op in ops if isinstance(op, MatMul)}
    groups: dict[tuple[str, str], dict[Terms, MatrixProduct]] = {}
    for terms, op in by_terms.items():
        product = op.product
        groups.setdefault((product.format_a, product.format_out), {})[terms] = product
    return tuple(map(_joined, groups.values()))


def _joined(group: Mapping[Terms, MatrixProduct]) -> JoinedProducts:
    keys = {terms: _key(product) for terms, product in group.items()}
    distinct = {keys[terms]: product for terms, product in group.items()}
    # Sizes repeat over the grid: `combined` lists each once, with every layout's place in the list.
    listed = {key: combined((p.m, p.k, p.n, p.batch)) for key, p in distinct.items()}
    m, k, n, batch = np.concatenate([sizes for sizes, _ in listed.values()], axis=1)
    starts = np.cumsum([0, *(sizes.shape[1] for sizes, _ in listed.values())])
    where = {
        key: first + places
        for first, (key, (_, places)) in zip(starts[:-1], listed.items(), strict=True)
    }
    first = next(iter(group.values()))
    return JoinedProducts(
        product=replace(first, m=m, k=k, n=n, batch=batch),
        places={terms: where[keys[terms]] for terms in group},
    )


def _key(product: MatrixProduct) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    sizes = (product.m, product.k, product.n, product.batch)
    return tuple((size.shape, size.tobytes()) for size in sizes)


def messages_of(program: StepProgram) -> tuple[Send, ...]:
    """One message for each tensor that stages hand on: the tensor, and its gradient back.

    A tensor without gradient counts half, because it goes one way. A tensor that only some stages
    hand on counts by their share.
    """
    # All stages hand on the same tensors; what the last one gets and sends back, others name too.
    messages = [send for stage in program.stages if stage.role != "last" for send in stage.messages]
    back = {send.tensor for send in messages if send.phase == "B_input"}
    found = {
        send.tensor: send if send.tensor in back else _part(send, "one way", array(0.5))
        for send in messages
        if send.phase == "F" and send.direction == "send"
    }
    # Behind the stream, the head reads streams of MTP depths, which only some stages hand on.
    head = program.blocks.get("head")
    for tensor in head.entering[1:] if head is not None else ():
        if tensor in found:
            found[tensor] = _part(found[tensor], "hops", _share_of_hops(program, tensor))
    return tuple(found.values())


def _share_of_hops(program: StepProgram, tensor: Tensor) -> FloatArray:
    """Share of the messages between chunks that carry a tensor."""
    sent = (
        stage.multiplicity * send.count
        for stage in program.stages
        for send in stage.messages
        if send.tensor is tensor and (send.phase, send.direction) == ("F", "send")
    )
    hops = np.maximum(program.grid.pp * program.grid.vpp - 1, 1)
    return array(total(sent) / hops)


def _part(send: Send, name: str, share: FloatArray) -> Send:
    part = Dim(name=name, size=share, factors=(share,))
    return replace(send, tensor=replace(send.tensor, dims=(*send.tensor.dims, part)))


def slice_of(send: Send, ranks: FloatArray) -> Send:
    """Slice of a tensor that one of the ranks with a copy of it sends."""
    # With sequence parallelism each rank has tokens of its own: nothing is held twice.
    if "tp" in send.tensor.axes:
        return send
    part = Dim(name="slice", size=array(1 / ranks), factors=(ONE,), axes=("tp",))
    return replace(send, tensor=replace(send.tensor, dims=(*send.tensor.dims, part)))
