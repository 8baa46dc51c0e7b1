"""One transformer layer as operations: norms, residuals, and what stands between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trnbench.errors import unhandled
from trnbench.program.attention import attention
from trnbench.program.builder import BlockBuilder
from trnbench.program.feed_forward import mlp, moe_exchanged, moe_local
from trnbench.program.image import modulation
from trnbench.program.tensor import Dim, Tensor
from trnbench.workload.model import Transformer
from trnbench.workload.weights import LAYER_MODULATIONS

FeedForward = Literal["dense", "moe", "moe_exchanged"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerFlow:
    """What passes from block to block: the residual stream and, of a denoiser, the condition."""

    stream: Tensor
    condition: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that a stage hands to the next."""
        return (self.stream,) if self.condition is None else (self.stream, self.condition)


def flow_into(b: BlockBuilder, transformer: Transformer, *, conditioned: bool) -> LayerFlow:
    """Return the tensors a layer or head receives."""
    hidden = b.grid.dim("hidden", transformer.hidden)
    stream = b.tensor("stream", (*b.stream(), hidden))
    if not conditioned:
        return LayerFlow(stream=stream)
    return LayerFlow(stream=stream, condition=b.tensor("condition", condition_dims(b, transformer)))


def condition_dims(b: BlockBuilder, transformer: Transformer) -> tuple[Dim, ...]:
    """Return the dimensions of the condition of a denoiser's layers."""
    return (b.grid.batch(), b.grid.dim("condition", transformer.hidden))


def layer(
    b: BlockBuilder, transformer: Transformer, flow: LayerFlow, kind: FeedForward
) -> LayerFlow:
    """Emit a layer and return what it hands on."""
    modulators = None
    if flow.condition is not None:
        modulators = modulation(b, transformer, flow.condition, "modulation", LAYER_MODULATIONS)
    if transformer.residual == "parallel":
        stream = _parallel(b, transformer, flow.stream, kind)
    else:
        stream = _part(b, transformer, flow.stream, "attention", kind, modulators)
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
    before = transformer.norm_placement == "pre"
    given = b.norm(stream, norm) if before else stream
    if modulators is not None:
        given = b.elementwise("modulate", (given, modulators), f"{part}.modulated", given.dims)
    out, bias = _inner(b, transformer, given, part, kind)
    branches, name = (b.settle(out), *bias), f"{part}.residual"
    if modulators is None:
        result = _residual(b, transformer, stream, branches, name)
    else:
        gated = (stream, branches[0], modulators, *bias)
        result = b.elementwise("gate_add", gated, name, stream.dims)
    return result if before else b.norm(result, norm)


def _inner(
    b: BlockBuilder,
    transformer: Transformer,
    given: Tensor,
    part: Literal["attention", "mlp"],
    kind: FeedForward,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the part's output, and the bias that joins it once it is summed."""
    if part == "attention":
        return attention(b, transformer, given), b.optional("attention.output.bias")
    match kind:
        case "dense":
            assert transformer.mlp is not None
            whole = b.gather_tokens(b.operand(given))
            return mlp(b, transformer.mlp, whole), b.optional("mlp.down.bias")
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
    """Add branches to the stream, dropped out where the model does that."""
    if transformer.dropout:
        joined = b.elementwise("add", branches, f"{name}.branch", stream.dims, view=True)
        branches = (b.dropout(joined),)
    return b.elementwise("add", (stream, *branches), name, stream.dims)


def _parallel(
    b: BlockBuilder, transformer: Transformer, stream: Tensor, kind: FeedForward
) -> Tensor:
    """Emit attention and MLP side by side; what tensor-parallel ranks hold is summed once."""
    parts = [
        _inner(b, transformer, b.norm(stream, "norm.attention"), "attention", kind),
        _inner(b, transformer, b.norm(stream, "norm.mlp"), "mlp", kind),
    ]
    bias = tuple(tensor for _, biases in parts for tensor in biases)
    if kind != "dense":
        branches = tuple(b.settle(out) for out, _ in parts)
    else:
        joined = tuple(out for out, _ in parts)
        branches = (b.settle(b.elementwise("add", joined, "parts", joined[0].dims)),)
    return _residual(b, transformer, stream, (*branches, *bias), "residual")
