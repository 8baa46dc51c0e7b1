"""A kind of block compiled for the ranks of its stage, and each block: state, and part of slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from trnbench.engines.execute.arithmetic import Flow, NoiseArray, Numbers
from trnbench.engines.execute.draws import Draws
from trnbench.engines.execute.kernels import Workshop
from trnbench.engines.execute.operations import Pass, Residency, Sink, Values, held_bytes
from trnbench.engines.execute.optimizer import BucketState, HeldWeights
from trnbench.engines.execute.shards import GRADIENTS_SLICED, BucketShape
from trnbench.program.block import Block, ResidentCategory
from trnbench.program.ends import TOKEN_TABLE
from trnbench.program.ops import CollectiveOp, Phase
from trnbench.program.optimizer import MOMENTS
from trnbench.program.tensor import Tensor, element_bytes

_OF_BUCKETS = ("data", "expert_data", "shard", "expert_shard")


class BlockPlan:
    """A block compiled for the ranks of a stage; `split`: weight gradients have slots of their own.

    `lends`: it has the token table of its stage; `borrows`: it reads that of another block.
    """

    def __init__(self, shop: Workshop, block: Block, *, split: bool) -> None:
        self.shop = shop
        self.block = block
        self.split = split
        self._exchanges = [
            op for op in block.collectives if op.axis in _OF_BUCKETS or op.phase == "optimizer"
        ]
        forward = [op for op in block.phase("F") if op not in self._exchanges]
        kept = block.kept
        backward = [op for op in kept.ops if not (split and op.phase == "B_weight")]
        weight = [op for op in kept.ops if split and op.phase == "B_weight"]
        sunk = tuple(block.gradients.values())
        self.later = (*kept.for_weights, *kept.waiting) if split else ()
        lasting = (*kept.tensors, *self.later)
        into = tuple(block.entering_gradients.values())
        self.forward = Pass(shop, forward, lasting=kept.tensors, leaving=block.leaving)
        # What waits for the weights' slot takes the place of what only this pass reads.
        consumed = [t for t in kept.tensors if split and t not in self.later]
        self.backward = Pass(
            shop, backward, lasting=lasting, leaving=into, sunk=sunk, consumed=consumed
        )
        self.weight = Pass(shop, weight, lasting=lasting, sunk=sunk)
        self.given: tuple[Tensor, ...] = block.passes.backward.given if kept.ops else ()
        self.names = {gradient: name for name, gradient in block.gradients.items()}
        shapes = [
            BucketShape(shop.ranks, block, bucket, block.passes.tied) for bucket in block.buckets
        ]
        self.buckets = [shape for shape in shapes if not shape.bucket.frozen]
        self.frozen = [shape for shape in shapes if shape.bucket.frozen]
        made = {write for op in forward for write in op.writes}
        reads = dict.fromkeys(read for op in forward for read in op.reads)
        weights = {member.weight for member in block.parameters.values()}
        self.fixed = [m.weight for m in block.parameters.values() if m.use == "fixed"]
        self.outside = [
            t for t in reads if t.role == "constant" and t not in made and t not in weights
        ]
        self.lends = any(TOKEN_TABLE in shape.spans for shape in shapes)
        self.borrows = TOKEN_TABLE in block.parameters and not self.lends

    def exchange(self, phase: Phase, bucket: str, axis: str) -> CollectiveOp | None:
        """A bucket's exchange along an axis in a pass or at the step's end, if any.

        Gathering the weights at the end is `publication`.
        """
        wanted = (op for op in self._of(phase, bucket, axis) if not _publishes(op))
        return next(wanted, None)

    def publication(self, bucket: str, axis: str) -> CollectiveOp | None:
        """Exchange that brings a bucket's new weights to ranks of an axis, if any."""
        return next(filter(_publishes, self._of("optimizer", bucket, axis)), None)

    def _of(self, phase: Phase, bucket: str, axis: str) -> Iterator[CollectiveOp]:
        return (
            op
            for op in self._exchanges
            if op.phase == phase and op.axis == axis and op.read.name.endswith(f".{bucket}")
        )


def _publishes(op: CollectiveOp) -> bool:
    return op.phase == "optimizer" and op.op == "all-gather"


class BlockInstance:
    """One block of the model; `layer` counts those of its kind.

    `lender`: the block whose token table this one reads, where one stage has both.
    """

    def __init__(
        self,
        plan: BlockPlan,
        layer: int,
        draws: Draws,
        residency: Residency,
        lender: BlockInstance | None = None,
    ) -> None:
        self.plan = plan
        self.layer = layer
        self._lender = lender if plan.borrows else None
        self._draws = draws
        self._residency = residency
        self._kept: dict[int, Values] = {}  # Tensors of micro-batches between their slots
        # Gradients wait for the others where all of a block travel together (since ZeRO 2).
        self._waiting: dict[int, list[tuple[str, Numbers]]] = {}
        self._table: Numbers | None = None
        shop = self._shop = plan.shop
        self.states = [
            BucketState(
                shape,
                shop.arithmetic,
                shop.exchange,
                draws.first_weights((span.weight for span in shape.spans.values()), layer),
            )
            for shape in plan.buckets
        ]
        self.frozen = [
            HeldWeights(shape, shop.exchange, self._packed(s.weight for s in shape.spans.values()))
            for shape in plan.frozen
        ]
        self._fixed: Values = {
            weight: shop.ranks.cut(
                weight, draws.first_weights([weight], layer).astype(shop.arithmetic.dtype)
            )
            for weight in plan.fixed
        }
        for category, size in self._lasting_bytes():
            residency.hold(category, size)

    def _lasting_bytes(self) -> list[tuple[ResidentCategory, float]]:
        recipe = self._shop.arithmetic.recipe
        sizes: list[tuple[ResidentCategory, float]] = [
            ("weights", held_bytes(weight)) for weight in self._fixed
        ]
        for held in (*self.states, *self.frozen):
            of_all = held.weights.shape[1] / held.shape.elements
            sizes.append(("weights", of_all * self._weight_bytes(held)))
        for state in self.states:
            sizes.append(("gradients", _bytes(state.gradients, recipe.gradients)))
            sizes.append(("optimizer", MOMENTS * _bytes(state.mean, recipe.moments)))
            if state.master is not None and recipe.master is not None:
                sizes.append(("optimizer", _bytes(state.master, recipe.master)))
        return sizes

    def _packed(self, weights: Iterable[Tensor]) -> Numbers:
        arithmetic, draws = self._shop.arithmetic, self._draws
        firsts = (
            (w, draws.first_weights([w], self.layer).astype(arithmetic.dtype)) for w in weights
        )
        return np.concatenate([arithmetic.packed(first, w.format) for w, first in firsts])

    def _weight_bytes(self, held: HeldWeights) -> float:
        """Bytes of a bucket's whole weights, copies in smaller formats included."""
        recipe, bucket = self._shop.arithmetic.recipe, held.shape.bucket
        size = held.shape.elements * element_bytes(bucket.format)
        if recipe.quantised:
            size += float(bucket.quantised_elements) * element_bytes(recipe.weight_operands)
        return size

    # Slots

    def run_forward(self, micro_batch: int, entering: Flow, outside: Mapping[str, Numbers]) -> Flow:
        """Tensors the block hands on; `outside` are whole tensors it is given."""
        block, hold = self.plan.block, self._residency.hold
        values, gathered = self._weights("F")
        for tensor in self.plan.outside:
            values[tensor] = self._shop.ranks.cut(tensor, outside[tensor.name])
        values.update(zip(block.entering, entering, strict=True))
        hold("activations", sum(held_bytes(t) for t in block.kept.tensors if t in values))
        self.plan.forward.run(values, self._residency, self._sink(micro_batch))
        self._residency.release("communication", gathered)
        kept = {tensor: values[tensor] for tensor in block.kept.tensors}
        self._kept[micro_batch], self._waiting[micro_batch] = kept, []
        return tuple(values[tensor] for tensor in block.leaving)

    def run_backward(self, micro_batch: int, gradients: Flow) -> Flow:
        """Gradients of the block's inputs, from those of its outputs."""
        plan, kept = self.plan, self._kept[micro_batch]
        # A block that gets no gradients has no backward pass.
        if not plan.given:
            return ()
        values, gathered = self._weights("B_input")
        values.update(kept)
        for given, gradient in zip(plan.given, gradients, strict=True):
            values[given] = gradient
            if given in plan.later:
                self._residency.hold("activations", held_bytes(given))
        room = self._gradient_room()
        plan.backward.run(values, self._residency, self._sink(micro_batch))
        stays = {tensor: values[tensor] for tensor in plan.later}
        if not plan.split:
            self._drop(kept)
            self._finish(micro_batch)
        self._kept[micro_batch] = stays
        self._residency.release("communication", gathered + room)
        return tuple(values[tensor] for tensor in plan.block.entering_gradients.values())

    def run_weight(self, micro_batch: int) -> None:
        """Compute the weight gradients that a split backward pass has left."""
        kept = self._kept[micro_batch]
        if not self.plan.given:
            return
        values: Values = {**kept}
        room = self._gradient_room()
        self.plan.weight.run(values, self._residency, self._sink(micro_batch))
        self._drop(kept)
        self._finish(micro_batch)
        self._residency.release("communication", room)

    def _drop(self, kept: Values) -> None:
        self._residency.release("activations", sum(map(held_bytes, kept)))

    # Weights and their gradients

    def _weights(self, phase: Phase) -> tuple[Values, float]:
        """Weights for a pass, and the bytes of gathered weights."""
        values, gathered = dict(self._fixed), 0.0
        for held in (*self.states, *self.frozen):
            op = self.plan.exchange(phase, held.shape.bucket.name, held.shape.shard)
            flat = held.gather(op)
            if op is not None:
                gathered += self._weight_bytes(held)
            for name, span in held.shape.spans.items():
                values[span.weight] = span.of(flat)
                if name == TOKEN_TABLE:
                    self._table = values[span.weight]
        if self._lender is not None:
            assert self._lender._table is not None
            values[self.plan.block.parameters[TOKEN_TABLE].weight] = self._lender._table
        self._residency.hold("communication", gathered)
        return values, gathered

    def _gradient_room(self) -> float:
        """Make room for all gradients of the block where they are kept in slices; return bytes."""
        recipe = self._shop.arithmetic.recipe
        room = sum(
            state.shape.elements * element_bytes(recipe.gradients)
            for state in self.states
            if state.shape.zero >= GRADIENTS_SLICED and state.shape.shards > 1
        )
        self._residency.hold("communication", room)
        return float(room)

    def _sink(self, micro_batch: int) -> Sink:
        return lambda gradient, numbers: self._take(micro_batch, self.plan.names[gradient], numbers)

    def _take(self, micro_batch: int, name: str, numbers: Numbers) -> None:
        """Take in a weight's gradient; that of a borrowed table goes to its owner."""
        for state in self.states:
            if name in state.shape.spans:
                if state.shape.zero < GRADIENTS_SLICED:
                    state.add(name, numbers)
                else:
                    self._waiting[micro_batch].append((name, numbers))
                return
        assert self._lender is not None, name
        self._lender._take(micro_batch, name, numbers)

    def _finish(self, micro_batch: int) -> None:
        """Close a micro-batch: gradients kept in slices are summed over the replicas now."""
        waiting = self._waiting.pop(micro_batch)
        for state in self.states:
            axis, spans = state.shape.axis, state.shape.spans
            if state.shape.zero < GRADIENTS_SLICED:
                continue
            ranks = self._shop.ranks.ranks
            flat = np.zeros((ranks, state.shape.elements), dtype=state.gradients.dtype)
            for name, numbers in waiting:
                if name in spans:
                    into = spans[name].of(flat)
                    into += numbers
            state.add_flat(flat, self.plan.exchange("B_weight", axis, state.shape.shard))

    # The end of a step

    def noise(self, state: BucketState, step: int, of: str) -> NoiseArray | None:
        """Noise for rounding a state of a bucket in a step; None where rounding needs no noise."""
        arithmetic = self._shop.arithmetic
        if arithmetic.exact or arithmetic.recipe.rounding != "sr":
            return None
        weights = (span.weight for span in state.shape.spans.values())
        return state.shape.own_noise(self._draws.noise(weights, self.layer, of, step))


def _bytes(numbers: Numbers, number_format: str) -> float:
    return float(numbers.shape[1] * element_bytes(number_format))
