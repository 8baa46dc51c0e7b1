"""One transformer layer as operations: norms and residuals, around attention and feed-forward.

The feed-forward part is a plain or gated MLP, or a mixture of experts.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.model import Mlp, Moe, Transformer
from trnbench.facts.workload.weights import LAYER_MODULATIONS
from trnbench.program.attention import attention, scanned
from trnbench.program.builder import BlockBuilder
from trnbench.program.ends import modulation
from trnbench.program.tensor import INDEX, Dim, Tensor, array


def mlp(b: BlockBuilder, settings: Mlp, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Down projection of a dense MLP before its sum over ranks, and tensors to add after it."""
    out, joining = _feed_forward(
        b, "mlp", settings, tokens, lead="", row="bs", inner=tokens.dims[:2]
    )
    return out, (*b.optional("mlp.down.bias"), *joining)


def _feed_forward(
    b: BlockBuilder,
    name: str,
    settings: Mlp,
    tokens: Tensor,
    *,
    lead: str,
    row: str,
    inner: tuple[Dim, ...],
    cut: str = "tp",
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Down projection of an MLP, and the output of its adapter.

    `lead`: letters of the dimensions in front of a weight (experts); `row`: letters of a token;
    `inner`: dimensions before the inner width, which ranks along `cut` share.
    """
    grid = b.grid
    ffn = grid.dim("ffn", settings.hidden, cut)
    hidden = tokens.dims[-1]
    wide = "".join(dict.fromkeys(row + lead))
    up = f"{row}h,{lead}hf->{wide}f"
    names = ["gate", "up"] if settings.gated else ["up"]
    outputs = [(f"{name}.{part}.out", f"{name}.{part}", up, (*inner, ffn)) for part in names]
    inputs = b.linear(tokens, outputs)
    function = f"{settings.activation}_gate" if settings.gated else settings.activation
    b.module = "activations"
    active = b.elementwise(function, inputs, f"{name}.active", (*inner, ffn))
    b.module = None
    down = f"{wide}f,{lead}fh->{row}h"
    output = (f"{name}.down.out", f"{name}.down", down, (*tokens.dims[:-1], hidden))
    out = b.linear(active, [output], summed_here=False)[0]
    biases = b.optional(f"{name}.down.bias") if lead else ()
    if biases:
        # Each expert adds its own to what all ranks of the sum will have made together.
        out = b.elementwise("add_once", (out, *biases), f"{name}.down.biased", out.dims)
    return out, b.adapter(active, output)


_Routing: TypeAlias = tuple[Tensor, Tensor]
"""Weights of the experts that each token visits, and their numbers: [batch, token, choice]."""


def moe_local(b: BlockBuilder, moe: Moe, stream: Tensor) -> Tensor:
    """Mixture whose ranks hold a slice of every expert: tokens stay on their ranks."""
    # Routes are decided where the tokens are and then gathered: choices are few bytes, and with
    # sequence parallelism no token is routed twice.
    routing = _route(b, moe, stream)
    narrow = _narrowed(b, moe, stream)
    probabilities, choice = map(b.gather_tokens, routing)
    tokens = b.gather_tokens(b.operand(stream))
    sent = tokens if moe.latent is None else b.gather_tokens(b.operand(narrow))
    slots = _dispatch(b, moe, sent, choice)
    done = _experts(b, moe, slots, "tp")
    mixed = _combine(b, done, (probabilities, choice), sent)
    shared = _shared(b, moe, tokens)
    # Sums of experts and of shared experts are one exchange, unless a projection stands between.
    if moe.latent is not None:
        mixed = _widened(b, b.settle(mixed), stream)
        return mixed if shared is None else _mixture(b, mixed, b.settle(shared))
    return b.settle(mixed if shared is None else _mixture(b, mixed, shared))


def _mixture(b: BlockBuilder, mixed: Tensor, shared: Tensor) -> Tensor:
    return b.elementwise("add", (mixed, shared), "mixture", mixed.dims)


def _narrowed(b: BlockBuilder, moe: Moe, stream: Tensor) -> Tensor:
    """Tokens in the width that the experts read."""
    if moe.latent is None:
        return stream
    dims = (*stream.dims[:2], b.grid.dim("latent", moe.latent))
    return b.linear(stream, [("latent.out", "latent.down", "bsh,hl->bsl", dims)])[0]


def _widened(b: BlockBuilder, mixed: Tensor, stream: Tensor) -> Tensor:
    return b.linear(mixed, [("latent.wide", "latent.up", "bsl,lh->bsh", stream.dims)])[0]


def moe_exchanged(b: BlockBuilder, moe: Moe, stream: Tensor) -> Tensor:
    """Mixture whose experts are spread over ranks: tokens travel to experts and back.

    With sequence parallelism each tensor-parallel rank sends its own tokens only, and the ranks
    that share an expert share the tokens they receive.
    """
    grid = b.grid
    routing = _route(b, moe, stream)
    narrow = _narrowed(b, moe, stream)
    slots = _dispatch(b, moe, narrow, routing[1])
    sent = slots.dims
    experts = grid.dim("expert", moe.experts, "ep")
    # Without sequence parallelism the ranks of an expert have received the same tokens already.
    cut = (grid.expert_cut,) if grid.sequence_parallel else ()
    slot = sent[1]
    received = Dim(
        name="slot",
        size=slot.size * grid.ep,
        factors=slot.factors,
        axes=grid.used("expert_data", *cut),
    )
    arrived = b.exchange("all-to-all", "ep", slots, (experts, received, sent[2]), copies=moe.top_k)
    if cut:
        full = Dim(
            name="slot",
            size=received.size * grid.expert_ranks,
            factors=slot.factors,
            axes=grid.used("expert_data"),
        )
        arrived = b.exchange("all-gather", *cut, arrived, (experts, full, sent[2]))
    done = _experts(b, moe, arrived, grid.expert_cut)
    if cut:
        done = b.exchange("reduce-scatter", *cut, done, (experts, received, sent[2]))
    returned = b.exchange("all-to-all", "ep", done, sent, copies=moe.top_k)
    mixed = b.settle(_combine(b, returned, routing, narrow))
    if moe.latent is not None:
        mixed = _widened(b, mixed, stream)
    shared = _shared(b, moe, b.gather_tokens(b.operand(stream))) if moe.shared_experts else None
    return mixed if shared is None else _mixture(b, mixed, b.settle(shared))


def _route(b: BlockBuilder, moe: Moe, stream: Tensor) -> _Routing:
    batch, tokens, _ = stream.dims
    statistics = b.grid.recipe.statistics
    experts = b.grid.dim("expert", moe.experts)
    logits = b.multiply(
        "router.logits",
        stream,
        b.weights["router"],
        "bsh,he->bse",
        (batch, tokens, experts),
        number_format=statistics,
    )
    # Scores are in the recipe's format of statistics, so that rounding does not swap close ones.
    bias = b.optional("router.bias")
    if bias:
        reads = (logits, *bias)
        logits = b.elementwise("add", reads, "router.biased", logits.dims, number_format=statistics)
    dims = (batch, tokens, b.grid.dim("choice", moe.top_k))
    probabilities = b.tensor("router.probabilities", dims, (logits,), number_format=statistics)
    choice = b.tensor("router.choice", dims, (logits,), number_format=INDEX, role="constant")
    steered = b.optional("router.selection_bias")
    b.passes("route", (logits, *steered), (probabilities, choice))
    return probabilities, choice


def _dispatch(b: BlockBuilder, moe: Moe, tokens: Tensor, choice: Tensor) -> Tensor:
    """Sort tokens into slots by expert: its capacity, or the tokens of an even load."""
    batch, position, hidden = tokens.dims
    visits = moe.top_k / moe.experts
    factor = b.grid.capacity_factor or 1.0
    slot = Dim(
        name="slot",
        size=np.ceil(batch.size * position.size * visits * factor),
        factors=(*batch.factors, *position.factors, array(visits)),
        axes=(*batch.axes, *position.axes),
    )
    experts = b.grid.dim("expert", moe.experts)
    b.region = "experts"
    slots = b.gather("dispatch", tokens, choice, "slots", (experts, slot, hidden))
    b.region = ""
    return slots


def _experts(b: BlockBuilder, moe: Moe, slots: Tensor, cut: str) -> Tensor:
    b.region = "experts"
    done, _ = _feed_forward(
        b, "experts", moe.expert, slots, lead="e", row="es", inner=slots.dims[:2], cut=cut
    )
    b.region = ""
    return done


def _shared(b: BlockBuilder, moe: Moe, tokens: Tensor) -> Tensor | None:
    if not moe.shared_experts:
        return None
    inner = (*tokens.dims[:2], b.grid.dim("shared_expert", moe.shared_experts))
    done, _ = _feed_forward(
        b, "shared_experts", moe.shared, tokens, lead="e", row="bs", inner=inner
    )
    if not moe.shared_gate:
        return done
    reads = (done, tokens, b.weights["shared_gate"])
    return b.elementwise("weighed", reads, "shared_experts.weighed", done.dims)


def _combine(b: BlockBuilder, done: Tensor, routing: _Routing, tokens: Tensor) -> Tensor:
    """Add up the experts' outputs for each token, weighted by the router."""
    reads = (done, *routing)
    b.region = "experts"
    mixed = b.elementwise("combine", reads, "experts.mixed", tokens.dims)
    b.region = ""
    return mixed


FeedForward = Literal["dense", "moe", "moe_exchanged"]


class LayerFlow(Record, eq=False):
    """Tensors that pass from block to block: residual stream and a denoiser's condition."""

    stream: Tensor
    condition: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.stream,) if self.condition is None else (self.stream, self.condition)


def flow_into(b: BlockBuilder, transformer: Transformer, *, conditioned: bool) -> LayerFlow:
    """Tensors a layer or head receives."""
    hidden = b.grid.dim("hidden", transformer.hidden)
    stream = b.tensor("stream", (*b.stream(), hidden), number_format=b.grid.recipe.residual)
    if not conditioned:
        return LayerFlow(stream=stream)
    return LayerFlow(stream=stream, condition=b.tensor("condition", condition_dims(b, transformer)))


def streams_into(b: BlockBuilder, transformer: Transformer, count: int) -> tuple[Tensor, ...]:
    """Stream a block receives, and those of the depths before it."""
    (stream,) = flow_into(b, transformer, conditioned=False).tensors
    return (stream, *(replace(stream, name=f"stream.{i}") for i in range(1, count)))


def condition_dims(b: BlockBuilder, transformer: Transformer) -> tuple[Dim, ...]:
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
        result = b.elementwise("gate_add", gated, name, stream.dims, number_format=stream.format)
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
    return b.elementwise("add", (stream, *branches), name, stream.dims, number_format=stream.format)


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
