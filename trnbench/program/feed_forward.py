"""The feed-forward part of a layer as operations: a plain or gated MLP, a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.program.builder import BlockBuilder
from trnbench.program.tensor import INDEX, Dim, Tensor
from trnbench.workload.model import Mlp, Moe


def mlp(b: BlockBuilder, settings: Mlp, tokens: Tensor) -> Tensor:
    """Return the down projection of a dense MLP, summed over nothing yet."""
    return feed_forward(b, "mlp", settings, tokens, lead="", row="bs", inner=tokens.dims[:2])


def feed_forward(
    b: BlockBuilder,
    name: str,
    settings: Mlp,
    tokens: Tensor,
    *,
    lead: str,
    row: str,
    inner: tuple[Dim, ...],
) -> Tensor:
    """Return the down projection of an MLP whose weights have the dimensions `lead` in front.

    `row` are the letters of a token, `inner` the dimensions before the inner width.
    """
    grid = b.grid
    ffn = grid.dim("ffn", settings.hidden, "tp")
    hidden = tokens.dims[-1]
    wide = "".join(dict.fromkeys(row + lead))
    up = f"{row}h,{lead}hf->{wide}f"
    names = ["gate", "up"] if settings.gated else ["up"]
    outputs = [(f"{name}.{part}.out", f"{name}.{part}", up, (*inner, ffn)) for part in names]
    inputs = b.linear(tokens, outputs)
    function = f"{settings.activation}_gate" if settings.gated else settings.activation
    active = b.elementwise(function, inputs, f"{name}.active", (*inner, ffn))
    down = f"{wide}f,{lead}fh->{row}h"
    output = (f"{name}.down.out", f"{name}.down", down, (*tokens.dims[:-1], hidden))
    return b.linear(active, [output], biased=False)[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Routing:
    """Which experts a token visits, and with which weight: [batch, token, choice]."""

    probabilities: Tensor
    choice: Tensor


def moe_local(b: BlockBuilder, moe: Moe, stream: Tensor) -> Tensor:
    """Return a mixture whose ranks hold a slice of every expert: tokens stay where they are."""
    routing = _route(b, moe, stream)
    gathered = _Routing(
        probabilities=b.gather_tokens(routing.probabilities), choice=b.gather_tokens(routing.choice)
    )
    tokens = b.gather_tokens(b.operand(stream))
    slots = _dispatch(b, moe, tokens, gathered.choice)
    done = _experts(b, moe, slots)
    mixed = _combine(b, done, gathered, tokens)
    shared = _shared(b, moe, tokens)
    if shared is not None:
        mixed = b.elementwise("add", (mixed, shared), "mixture", mixed.dims)
    return b.settle(mixed)


def moe_exchanged(b: BlockBuilder, moe: Moe, stream: Tensor) -> Tensor:
    """Return a mixture whose experts are spread over ranks: tokens travel to them and back.

    With sequence parallelism each tensor-parallel rank sends its own tokens only, and the experts'
    ranks share what they receive.
    """
    grid = b.grid
    routing = _route(b, moe, stream)
    slots = _dispatch(b, moe, stream, routing.choice)
    sent = slots.dims
    experts = grid.dim("expert", moe.experts, "ep")
    cut = ("tp",) if grid.sequence_parallel else ()
    slot = sent[1]
    received = Dim(
        name="slot", size=slot.size * grid.ep, whole=slot.whole, axes=grid.used("expert_data", *cut)
    )
    arrived = b.exchange("all-to-all", "ep", slots, (experts, received, sent[2]), copies=moe.top_k)
    if cut:
        full = Dim(
            name="slot",
            size=received.size * grid.tp,
            whole=slot.whole,
            axes=grid.used("expert_data"),
        )
        arrived = b.exchange("all-gather", "tp", arrived, (experts, full, sent[2]))
    done = _experts(b, moe, arrived)
    if cut:
        done = b.exchange("reduce-scatter", "tp", done, (experts, received, sent[2]))
    returned = b.exchange("all-to-all", "ep", done, sent, copies=moe.top_k)
    mixed = b.settle(_combine(b, returned, routing, stream))
    shared = _shared(b, moe, b.gather_tokens(b.operand(stream))) if moe.shared_experts else None
    if shared is None:
        return mixed
    return b.elementwise("add", (mixed, b.settle(shared)), "mixture", mixed.dims)


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
    dims = (batch, tokens, b.grid.dim("choice", moe.top_k))
    probabilities = b.tensor("router.probabilities", dims, (logits,), number_format=statistics)
    choice = b.tensor("router.choice", dims, (logits,), number_format=INDEX, role="constant")
    steered = b.optional("router.selection_bias")
    b.passes("route", (logits, *steered), (probabilities, choice))
    return _Routing(probabilities=probabilities, choice=choice)


def _dispatch(b: BlockBuilder, moe: Moe, tokens: Tensor, choice: Tensor) -> Tensor:
    """Sort tokens by expert: as many slots each as its capacity, or as an even load takes."""
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
    return b.gather("dispatch", tokens, choice, "slots", (experts, slot, hidden))


def _experts(b: BlockBuilder, moe: Moe, slots: Tensor) -> Tensor:
    return feed_forward(b, "experts", moe.expert, slots, lead="e", row="es", inner=slots.dims[:2])


def _shared(b: BlockBuilder, moe: Moe, tokens: Tensor) -> Tensor | None:
    if not moe.shared_experts:
        return None
    inner = (*tokens.dims[:2], b.grid.dim("shared_expert", moe.shared_experts))
    return feed_forward(b, "shared_experts", moe.expert, tokens, lead="e", row="bs", inner=inner)


def _combine(b: BlockBuilder, done: Tensor, routing: _Routing, tokens: Tensor) -> Tensor:
    """Add up the experts' answers to each token, by the router's weights."""
    reads = (done, routing.probabilities, routing.choice)
    return b.elementwise("combine", reads, "experts.mixed", tokens.dims)
