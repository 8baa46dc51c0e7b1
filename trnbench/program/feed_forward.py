"""The feed-forward part of a layer as operations: a plain or gated MLP, a mixture of experts."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from trnbench.facts.workload.model import Mlp, Moe
from trnbench.program.builder import BlockBuilder
from trnbench.program.tensor import INDEX, Dim, Tensor


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
        name="slot", size=slot.size * grid.ep, whole=slot.whole, axes=grid.used("expert_data", *cut)
    )
    arrived = b.exchange("all-to-all", "ep", slots, (experts, received, sent[2]), copies=moe.top_k)
    if cut:
        full = Dim(
            name="slot",
            size=received.size * grid.expert_ranks,
            whole=slot.whole,
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
        whole=batch.whole * position.whole * visits,
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
