"""Passes and bucket shapes shared by all instances of a kind of block on a pipeline stage."""

from __future__ import annotations

from trnbench.engines.execute.operations import Workshop
from trnbench.engines.execute.passes import Pass
from trnbench.engines.execute.shards import BucketShape
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp, Phase
from trnbench.program.tensor import Tensor
from trnbench.program.vocabulary import TOKEN_TABLE

_OF_BUCKETS = ("data", "expert_data", "shard", "expert_shard")


class BlockPlan:
    """A block compiled for the ranks of a stage; `split`: weight gradients have slots of their own.

    `lends`: it has the token table of its stage; `borrows`: it reads that of another block.
    """

    def __init__(self, shop: Workshop, block: Block, *, split: bool) -> None:
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
        ranks, tied = shop.setting.ranks, block.passes.tied
        shapes = [BucketShape(ranks, block, bucket, tied) for bucket in block.buckets]
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
        for op in self._exchanges:
            if _is(op, phase, bucket, axis) and not _publishes(op):
                return op
        return None

    def publication(self, bucket: str, axis: str) -> CollectiveOp | None:
        """Exchange that brings a bucket's new weights to ranks of an axis, if any."""
        for op in self._exchanges:
            if _is(op, "optimizer", bucket, axis) and _publishes(op):
                return op
        return None


def _of_bucket(op: CollectiveOp) -> bool:
    return op.axis in _OF_BUCKETS or op.phase == "optimizer"


def _is(op: CollectiveOp, phase: Phase, bucket: str, axis: str) -> bool:
    return op.phase == phase and op.axis == axis and op.read.name.endswith(f".{bucket}")


def _publishes(op: CollectiveOp) -> bool:
    return op.phase == "optimizer" and op.op == "all-gather"


def _given(block: Block) -> tuple[Tensor, ...]:
    return block.passes.backward.given if block.kept.ops else ()
