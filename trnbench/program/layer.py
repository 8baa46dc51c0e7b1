"""One transformer layer as operations: norms, residuals, and attention or MLP between them."""

from __future__ import annotations

from typing import Literal

from trnbench.errors import unhandled
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.model import Transformer
from trnbench.facts.workload.weights import LAYER_MODULATIONS
from trnbench.program.attention import attention
from trnbench.program.builder import BlockBuilder
from trnbench.program.feed_forward import mlp, moe_exchanged, moe_local
from trnbench.program.image import modulation
from trnbench.program.scan import scanned
from trnbench.program.tensor import Dim, Tensor

FeedForward = Literal["dense", "moe", "moe_exchanged"]


class LayerFlow(Record, eq=False):
    """Tensors that pass from block to block: residual stream and a denoiser's condition."""

    stream: Tensor
    condition: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that a stage hands to the next."""
        return (self.stream,) if self.condition is None else (self.stream, self.condition)


def flow_into(b: BlockBuilder, transformer: Transformer, *, conditioned: bool) -> LayerFlow:
    """Tensors a layer or head receives."""
    hidden = b.grid.dim("hidden", transformer.hidden)
    stream = b.tensor("stream", (*b.stream(), hidden))
    if not conditioned:
        return LayerFlow(stream=stream)
    return LayerFlow(stream=stream, condition=b.tensor("condition", condition_dims(b, transformer)))


def streams_into(b: BlockBuilder, transformer: Transformer, count: int) -> tuple[Tensor, ...]:
    """Stream a block receives, and those of the depths before it."""
    (stream,) = flow_into(b, transformer, conditioned=False).tensors
    return (stream, *(replace(stream, name=f"stream.{i}") for i in range(1, count)))


def condition_dims(b: BlockBuilder, transformer: Transformer) -> tuple[Dim, ...]:
    """Dimensions of the condition of a denoiser's layers."""
    return (b.grid.batch(), b.grid.dim("condition", transformer.hidden))


def layer(
    b: BlockBuilder, transformer: Transformer, flow: LayerFlow, kind: FeedForward
) -> LayerFlow:
    """Emit a layer; its result is the flow into the next block."""
    modulators = None
    if flow.condition is not None:
        modulators = modulation(b, transformer, flow.condition, "modulation", LAYER_MODULATIONS)
    if transformer.residual == "parallel":
        stream = _parallel(b, transformer, flow.stream, kind)
    else:
        stream = flow.stream
        (parts,) = transformer.layer_kinds.values()
        if parts.mixer != "none":
            stream = _part(b, transformer, stream, "attention", kind, modulators)
        if parts.feed_forward != "none":
            stream = _part(b, transformer, stream, "mlp", kind, modulators)
    return LayerFlow(stream=stream, condition=flow.condition)


def _part(
    b: BlockBuilder,
    transformer: Transformer,
    stream: Tensor,
    part: Literal["attention", "mlp"],
    kind: FeedForward,
    modulators: Tensor | None,
) -> Tensor:
    """Emit attention or feed-forward with its norm and residual."""
    norm = f"norm.{part}"
    placed = transformer.norm_placement
    before = placed in ("pre", "both") and (norm in b.weights or transformer.norm == "plain")
    b.module = "norms"
    given = b.norm(stream, norm) if before else stream
    if modulators is not None:
        given = b.elementwise("modulate", (given, modulators), f"{part}.modulated", given.dims)
    b.module = None
    out, joining = _inner(b, transformer, given, part, kind)
    branches, name = (b.settle(out), *joining), f"{part}.residual"
    if placed in ("branch", "both"):
        whole = (
            branches[0]
            if not joining
            else b.elementwise("add", branches, f"{part}.whole", stream.dims)
        )
        branches = (b.norm(whole, norm if placed == "branch" else f"{norm}.out"),)
    if modulators is None:
        result = _residual(b, transformer, stream, branches, name)
    else:
        gated = (stream, branches[0], modulators, *joining)
        result = b.elementwise("gate_add", gated, name, stream.dims)
    return b.norm(result, norm) if placed == "post" else result


def _inner(
    b: BlockBuilder,
    transformer: Transformer,
    given: Tensor,
    part: Literal["attention", "mlp"],
    kind: FeedForward,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output of attention or MLP, and tensors to add after its sum: bias, adapter."""
    if part == "attention":
        mixed = scanned if transformer.scan is not None else attention
        return mixed(b, transformer, given)
    match kind:
        case "dense":
            assert transformer.mlp is not None
            # Cast before the gather: narrow operands are fewer bytes on the links.
            whole = b.gather_tokens(b.operand(given))
            return mlp(b, transformer.mlp, whole)
        case "moe":
            assert transformer.moe is not None
            return moe_local(b, transformer.moe, given), ()
        case "moe_exchanged":
            assert transformer.moe is not None
            return moe_exchanged(b, transformer.moe, given), ()
        case _:
            unhandled(kind, "feed-forward part to emit")


def _residual(
    b: BlockBuilder,
    transformer: Transformer,
    stream: Tensor,
    branches: tuple[Tensor, ...],
    name: str,
) -> Tensor:
    """Add branches to the stream, with the model's dropout."""
    if transformer.dropout:
        joined = b.elementwise("add", branches, f"{name}.branch", stream.dims, view=True)
        branches = (b.dropout(joined),)
    return b.elementwise("add", (stream, *branches), name, stream.dims)


def _parallel(
    b: BlockBuilder, transformer: Transformer, stream: Tensor, kind: FeedForward
) -> Tensor:
    """Emit attention and MLP side by side; what tensor-parallel ranks hold is summed once."""
    parts = []
    for part in ("attention", "mlp"):
        b.module = "norms"
        given = b.norm(stream, f"norm.{part}")
        b.module = None
        parts.append(_inner(b, transformer, given, part, kind))
    joining = tuple(tensor for _, of_part in parts for tensor in of_part)
    if kind != "dense":
        branches = tuple(b.settle(out) for out, _ in parts)
    else:
        # Both halves are partial sums over the same ranks: added first, they are exchanged once.
        joined = tuple(out for out, _ in parts)
        branches = (b.settle(b.elementwise("add", joined, "parts", joined[0].dims)),)
    return _residual(b, transformer, stream, (*branches, *joining), "residual")
