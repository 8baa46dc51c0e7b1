"""What all instances of one kind of block on a pipeline stage share: passes and bucket shapes."""

from __future__ import annotations

from trnbench.execute.operations import Workshop
from trnbench.execute.passes import Pass
from trnbench.execute.shards import BucketShape
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp, Phase
from trnbench.program.tensor import Tensor
from trnbench.program.vocabulary import TOKEN_TABLE

_OF_BUCKETS = ("data", "expert_data")


class BlockPlan:
    """A block compiled for the ranks of a stage; `split`: weight gradients have slots of their own.

    `tied`: the model's token table is also its head. `borrows`: this block reads the table of the
    embedding on the same ranks.
    """

    def __init__(self, shop: Workshop, block: Block, *, split: bool, tied: bool) -> None:
        self.shop = shop
        self.block = block
        self.split = split
        self._exchanges = [op for op in block.collectives if _of_bucket(op)]
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
        self.given = _given(block)
        self.names = {gradient: name for name, gradient in block.gradients.items()}
        table = TOKEN_TABLE if tied else None
        self.buckets = [
            BucketShape(shop.setting.ranks, block, bucket, table) for bucket in block.buckets
        ]
        made = {write for op in forward for write in op.writes}
        reads = dict.fromkeys(read for op in forward for read in op.reads)
        weights = {member.weight for member in block.parameters.values()}
        self.fixed = [m.weight for m in block.parameters.values() if not m.trained]
        self.outside = [
            t for t in reads if t.role == "constant" and t not in made and t not in weights
        ]
        held = any(TOKEN_TABLE in shape.spans for shape in self.buckets)
        self.borrows = tied and block.kind == "head" and not held

    def exchange(self, phase: Phase, bucket: str, axis: str) -> CollectiveOp | None:
        """Return a bucket's exchange along an axis in a pass or at the step's end, if any.

        Gathering the weights at the end is `publication`.
        """
        for op in self._exchanges:
            if _is(op, phase, bucket, axis) and not _publishes(op):
                return op
        return None

    def publication(self, bucket: str) -> CollectiveOp | None:
        """Return the exchange that brings a bucket's new weights to all replicas, if any."""
        for op in self._exchanges:
            if _is(op, "optimizer", bucket, bucket) and _publishes(op):
                return op
        return None


def _of_bucket(op: CollectiveOp) -> bool:
    return op.axis in _OF_BUCKETS or op.phase == "optimizer"


def _is(op: CollectiveOp, phase: Phase, bucket: str, axis: str) -> bool:
    return op.phase == phase and op.axis == axis and op.read.name.endswith(f".{bucket}")


def _publishes(op: CollectiveOp) -> bool:
    return op.phase == "optimizer" and op.op == "all-gather"


def _given(block: Block) -> Tensor:
    """Return the gradient that the backward pass starts from."""
    (leaving,) = block.leaving
    made = {write for op in block.kept.ops for write in op.writes}
    reads = dict.fromkeys(read for op in block.kept.ops for read in op.reads)
    (given,) = [t for t in reads if t.name == f"d.{leaving.name}" and t not in made]
    return given
